"""Times of the best fp16 attention that PyTorch finds on this machine, at the shapes of attention_bench.cc: what those are compared with.

   python3 tests/gpu/fp16_attention.py [FILE]      text; with FILE also one JSON object a line
Decode: the group's heads as rows of one query (no copy of K and V) and as heads, cuDNN and flash; the best of all. Prefill: causal.
"""
import json
import statistics
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


def time_ms(call, calls=10, repeats=9):
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    times = []
    for i in range(repeats + 2):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        if i >= 2:
            times.append(begin.elapsed_time(end) / calls)
    return statistics.median(times)


def best_of(calls):
    best, name = float("inf"), "none"
    for backend, kind in BACKENDS.items():
        for variant, call in calls.items():
            try:
                with sdpa_kernel(kind):
                    ms = time_ms(call)
            except Exception:  # this backend does not do this shape
                continue
            if ms < best:
                best, name = ms, f"{backend}-{variant}"
    return best, name


def decode(batch, heads, group, length, dim=128):
    q = torch.randn(batch, heads * group, 1, dim, device="cuda", dtype=torch.float16)
    k = torch.randn(batch, heads, length, dim, device="cuda", dtype=torch.float16)
    v = torch.randn_like(k)
    packed = q.view(batch, heads, group, dim)
    return best_of({"heads": lambda: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
                    "packed": lambda: F.scaled_dot_product_attention(packed, k, v)})


def prefill(batch, heads, group, length, rows, dim=128):
    q = torch.randn(batch, heads * group, rows, dim, device="cuda", dtype=torch.bfloat16)
    k = torch.randn(batch, heads, length + rows, dim, device="cuda", dtype=torch.bfloat16)
    v = torch.randn_like(k)
    causal = length == 0  # with a prefix: no mask, the tokens that the mask would hide are counted as work
    return best_of({"heads": lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)})


def main():
    out = open(sys.argv[1], "w") if len(sys.argv) > 1 else None

    def report(row, line):
        print(line, flush=True)
        if out:
            out.write(json.dumps(row) + "\n")
            out.flush()

    for b, h, g, s, d in [(64, 8, 4, 8192, 128), (128, 8, 4, 4096, 128), (16, 4, 7, 32768, 128), (16, 8, 4, 8192, 128),
                          (256, 8, 4, 1024, 128), (1, 8, 4, 131072, 128), (1, 8, 4, 32768, 128), (1, 8, 4, 8192, 128),
                          (32, 8, 4, 2048, 128), (64, 8, 4, 8192, 64)]:
        ms, name = decode(b, h, g, s, d)
        report({"what": "decode", "batch": b, "length": s, "kv_heads": h, "group": g, "head_dim": d, "ms": ms, "by": name},
               f"decode {b} x {s} kv {h} group {g} dim {d}: {ms:.4f} ms ({name}, {b * s * h * d * 4 / ms / 1e6:.0f} GB/s)")
    for b, h, g, s, r, d in [(1, 8, 4, 0, 2048, 128), (1, 8, 4, 0, 8192, 128), (1, 8, 4, 32768, 2048, 128),
                             (1, 8, 4, 8192, 2048, 128), (8, 8, 4, 0, 1024, 128), (1, 8, 4, 0, 8192, 64)]:
        ms, name = prefill(b, h, g, s, r, d)
        work = 4 * b * h * g * d * (r * (r + 1) / 2 if s == 0 else r * (s + r))
        report({"what": "prefill", "batch": b, "length": s, "rows": r, "kv_heads": h, "group": g, "head_dim": d, "ms": ms,
                "TFLOP/s": work / ms / 1e9, "by": name},
               f"prefill {b} x {s} rows {r} kv {h} group {g} dim {d}: {ms:.4f} ms ({name}, {work / ms / 1e9:.0f} TFLOP/s)")
    x = torch.empty(4 << 30, dtype=torch.uint8, device="cuda")
    y = torch.empty_like(x)
    ms = time_ms(lambda: y.copy_(x), 3, 5)
    report({"what": "copy", "ms": ms, "GB/s": 2 * (4 << 30) / ms / 1e6}, f"device copy {2 * (4 << 30) / ms / 1e6:.0f} GB/s")


main()
