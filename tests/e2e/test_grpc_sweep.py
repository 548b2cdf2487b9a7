"""`assay sweep --grpc` against the real server: what the client counts is what the server counts."""
import json
import subprocess

import pytest

from conftest import TINY
from running_server import BINARY, clean_environment
from test_grpc import GrpcServer, free_port


@pytest.fixture(scope="module")
def server():
    with GrpcServer(TINY, "--served-model-name", "tiny") as running:
        yield running


def test_sweep_totals_equal_the_servers_counters(server, tmp_path):
    levels, requests, prompt, output = [1, 4], 8, 32, 10
    names = ["vllm:prompt_tokens_total", "vllm:generation_tokens_total", "assay_requests_total"]
    before = {name: server.metric(name) for name in names}
    http_before = server.log.count("route=/v1/completions")
    run = subprocess.run([BINARY, "sweep", "--url", server.url, "--grpc", f"127.0.0.1:{server.grpc_port}", "--concurrency",
                          ",".join(map(str, levels)), "--requests-per-level", str(requests), "--input-len", str(prompt),
                          "--output-len", str(output), "--warmup", "0", "--output", str(tmp_path)],
                         capture_output=True, text=True, timeout=300, env=clean_environment())
    assert run.returncode == 0, run.stdout + run.stderr
    counted = {name: server.metric(name) - before[name] for name in names}
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["config"]["grpc"].endswith(str(server.grpc_port))
    total = len(levels) * requests
    assert counted["vllm:generation_tokens_total"] == sum(level["tokens"]["output"] for level in results["levels"]) == total * output
    assert counted["vllm:prompt_tokens_total"] == sum(level["tokens"]["input"] for level in results["levels"]) == total * prompt
    assert counted["assay_requests_total"] == sum(level["requests"]["completed"] for level in results["levels"]) == total
    for level in results["levels"]:
        assert level["requests"]["kinds"] == {"completed": requests}
        assert level["anomalies"] == dict.fromkeys(level["anomalies"], 0)
    assert server.log.count("route=/v1/completions") == http_before  # all of it went over gRPC
    assert server.log.count("method=Generate code=OK") >= total


def test_sweep_counts_refusals_and_silence(server, tmp_path):
    def kinds(address, *more):
        subprocess.run([BINARY, "sweep", "--url", server.url, "--grpc", address, "--concurrency", "2", "--requests-per-level", "4",
                        "--input-len", "8", "--output-len", "2", "--warmup", "0", "--output", str(tmp_path), *more],
                       capture_output=True, text=True, timeout=120, env=clean_environment())
        return json.loads((tmp_path / "results.json").read_text())["levels"][0]["requests"]["kinds"]
    assert kinds(f"127.0.0.1:{server.grpc_port}", "--model", "other") == {"grpc_NOT_FOUND": 4}
    assert kinds(f"127.0.0.1:{free_port()}") == {"connect_failed": 4}
