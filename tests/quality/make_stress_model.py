#!/usr/bin/env python3
"""Writes a variant of a model folder with massive key channels that computes the same function.

In every layer, four random rotary pairs of each KV head have their rows of W_k (and of its bias) multiplied by ALPHA and
the same pairs of the head's query heads in W_q divided by it. ALPHA is a power of two, so no bit of a mantissa changes
and every product q.k is what it was; only what a quantiser sees of the keys is not.

    make_stress_model.py MODEL_FOLDER OUTPUT_FOLDER --alpha 64 [--pairs 4] [--seed 1]
"""
import argparse
import json
import math
import pathlib
import random
import shutil
import struct
import sys

EXPONENT_BITS = {"BF16": (8, 7), "F16": (5, 10), "F32": (8, 23)}
COPIED = {".json", ".jinja", ".txt", ".model"}


def scaled(bits: int, shift: int, dtype: str, where: str) -> int:
    """The float with these bits times 2^shift; an error where that is not a normal number any more."""
    exponent_bits, mantissa_bits = EXPONENT_BITS[dtype]
    largest = (1 << exponent_bits) - 1
    exponent = bits >> mantissa_bits & largest
    if bits & ~(1 << (exponent_bits + mantissa_bits)) == 0:
        return bits
    if not 0 < exponent < largest or not 0 < exponent + shift < largest:
        sys.exit(f"{where}: a weight cannot be scaled by 2^{shift} in {dtype} without loss")
    return bits + (shift << mantissa_bits)


class Shard:
    """A safetensors file in memory."""

    def __init__(self, path: pathlib.Path):
        self.path = path
        self.data = bytearray(path.read_bytes())
        (length,) = struct.unpack_from("<Q", self.data)
        self.tensors = json.loads(self.data[8:8 + length])
        self.tensors.pop("__metadata__", None)
        self.begin = 8 + length

    def scale_rows(self, name: str, rows, shift: int) -> None:
        entry = self.tensors[name]
        dtype, shape = entry["dtype"], entry["shape"]
        if dtype not in EXPONENT_BITS:
            sys.exit(f"{name}: dtype {dtype} is not known here; BF16, F16 and F32 are")
        columns = shape[1] if len(shape) == 2 else 1
        code = "<I" if dtype == "F32" else "<H"
        size = struct.calcsize(code)
        for row in rows:
            at = self.begin + entry["data_offsets"][0] + row * columns * size
            for i in range(at, at + columns * size, size):
                (bits,) = struct.unpack_from(code, self.data, i)
                struct.pack_into(code, self.data, i, scaled(bits, shift, dtype, name))


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--alpha", type=int, required=True, help="a power of two")
    parser.add_argument("--pairs", type=int, default=4, help="rotary pairs of each KV head (default 4)")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.alpha < 1 or arguments.alpha & (arguments.alpha - 1):
        parser.error("--alpha must be a power of two, so that the function stays the same to the bit")
    if arguments.output.exists() and any(arguments.output.iterdir()):
        parser.error(f"{arguments.output} is not empty")
    return arguments


def main() -> int:
    arguments = parse_arguments()
    config = json.loads((arguments.model / "config.json").read_text())
    heads = config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads", heads)
    dim = config.get("head_dim") or config["hidden_size"] // heads
    if not 0 < arguments.pairs <= dim // 2:
        sys.exit(f"--pairs must be from 1 to {dim // 2}")
    shards = [Shard(path) for path in sorted(arguments.model.glob("*.safetensors"))]
    owner = {name: shard for shard in shards for name in shard.tensors}
    if any("self_attn.k_norm" in name for name in owner):
        sys.exit("this model normalises its keys after W_k: scaling W_k would change nothing")
    shift, draw = int(math.log2(arguments.alpha)), random.Random(arguments.seed)
    for layer in range(config["num_hidden_layers"]):
        for kv_head in range(kv_heads):
            pairs = sorted(draw.sample(range(dim // 2), arguments.pairs))
            channels = pairs + [pair + dim // 2 for pair in pairs]
            group = range(kv_head * heads // kv_heads, (kv_head + 1) * heads // kv_heads)
            for projection, of, by in (("k", [kv_head], shift), ("q", group, -shift)):
                for kind in ("weight", "bias"):
                    name = f"model.layers.{layer}.self_attn.{projection}_proj.{kind}"
                    if name in owner:
                        owner[name].scale_rows(name, [head * dim + c for head in of for c in channels], by)
                    elif kind == "weight":
                        sys.exit(f"{arguments.model}: has no tensor {name}")
    arguments.output.mkdir(parents=True, exist_ok=True)
    for shard in shards:
        (arguments.output / shard.path.name).write_bytes(shard.data)
    for path in arguments.model.iterdir():
        if path.suffix in COPIED and path.is_file():
            shutil.copyfile(path, arguments.output / path.name)
    print(f"{arguments.output}: alpha {arguments.alpha}, {arguments.pairs} pairs of each KV head, seed {arguments.seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
