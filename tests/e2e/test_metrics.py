"""What Prometheus scrapes: both formats through the reference parsers, values that add up, names that dashboards read."""
import re
import shutil
import subprocess
import time

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_classic

from running_server import RunningServer, eventually

VLLM_NAMES = """num_requests_running num_requests_waiting kv_cache_usage_perc gpu_cache_usage_perc cache_config_info
prompt_tokens_total generation_tokens_total request_success_total num_preemptions_total prefix_cache_queries_total
prefix_cache_hits_total time_to_first_token_seconds inter_token_latency_seconds time_per_output_token_seconds
request_time_per_output_token_seconds e2e_request_latency_seconds request_queue_time_seconds request_inference_time_seconds
request_prefill_time_seconds request_decode_time_seconds request_prompt_tokens request_generation_tokens
request_prefill_kv_computed_tokens request_max_num_generation_tokens request_params_n request_params_max_tokens
iteration_tokens_total""".split()

REQUESTS = 12


@pytest.fixture(scope="module")
def busy(scripted_folder):
    """A server of its own after a known amount of work: 12 requests of 14 prompt and 4 generated tokens, and 2 refusals."""
    with RunningServer(scripted_folder, "--served-model-name", "m\"1") as server:
        for i in range(REQUESTS):
            server.post("/v1/completions", {"prompt": "thirteen byteA", "temperature": 0, "stream": i % 2 == 0})
        for _ in range(2):
            server.post("/v1/completions", {"prompt": ""})
        yield server


def samples(text):
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in parse_classic(text) for sample in family.samples}


def value(server, name, **labels):
    text = server.get("/metrics").body.decode()
    found = [sample.value for family in parse_classic(text) for sample in family.samples
             if sample.name == name and labels.items() <= sample.labels.items()]
    assert found, name
    return sum(found)


def test_both_formats_parse_and_agree(busy):
    classic = busy.get("/metrics", headers={"Accept": "text/plain"})
    assert classic.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    accept = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;q=0.5"
    modern = busy.get("/metrics", headers={"Accept": accept})
    assert modern.headers["Content-Type"].startswith("application/openmetrics-text")
    assert modern.body.endswith(b"# EOF\n")
    names = {family.name for family in parse_openmetrics(modern.body.decode())}
    assert len(names) > 50
    assert {sample[0] for sample in samples(classic.body.decode())} >= {"assay_prompt_tokens_total", "vllm:prompt_tokens_total"}


def test_promtool_accepts_it(busy):
    """Debian's reference checker. It has opinions on colons, which the aliases need; anything else fails."""
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed (package prometheus)")
    check = subprocess.run(["promtool", "check", "metrics"], input=busy.get("/metrics").body, capture_output=True)
    problems = [line for line in (check.stdout + check.stderr).decode().splitlines() if line and not line.startswith("vllm:")]
    assert problems == []


def test_case_98_names_that_dashboards_read_have_our_values(busy):
    text = busy.get("/metrics").body.decode()
    values = samples(text)
    names = {name for name, _ in values}
    for name in VLLM_NAMES:
        assert any(known.startswith(f"vllm:{name}") for known in names), name
    for (name, labels), number in values.items():
        if name.startswith("vllm:"):
            assert dict(labels)["engine"] == "0" and dict(labels)["model_name"] == 'm"1'
    for ours, theirs in [("assay_prompt_tokens_total", "vllm:prompt_tokens_total"), ("assay_time_to_first_token_seconds_sum",
                         "vllm:time_to_first_token_seconds_sum"), ("assay_requests_total", "vllm:request_success_total")]:
        total = lambda wanted: sum(number for (name, _), number in values.items() if name == wanted)
        assert total(ours) == total(theirs) > 0


def test_case_96_histograms_add_up(busy):
    count = lambda name: value(busy, name + "_count")
    total = lambda name: value(busy, name + "_sum")
    assert count("assay_time_to_first_token_seconds") == REQUESTS
    assert count("assay_e2e_request_latency_seconds") == REQUESTS
    assert count("assay_inter_token_latency_seconds") == REQUESTS * 3
    assert total("assay_request_prompt_tokens") == REQUESTS * 14 == value(busy, "assay_prompt_tokens_total")
    assert total("assay_request_generation_tokens") == REQUESTS * 4 == value(busy, "assay_generation_tokens_total")
    assert total("assay_e2e_request_latency_seconds") >= total("assay_time_to_first_token_seconds") > 0
    parts = sum(total(f"assay_request_{part}_time_seconds") for part in ["queue", "prefill", "decode"])
    assert parts == pytest.approx(total("assay_e2e_request_latency_seconds"), rel=0.5, abs=0.01 * REQUESTS)
    assert total("assay_e2e_request_latency_seconds") < 60  # seconds, not milliseconds
    assert value(busy, "assay_requests_total", finish_reason="stop") == REQUESTS
    assert value(busy, "assay_requests_rejected_total", reason="invalid_request") == 2
    for family in parse_classic(busy.get("/metrics").body.decode()):
        if family.type != "histogram":
            continue
        buckets = [sample for sample in family.samples if sample.name.endswith("_bucket")]
        by_labels = {}
        for sample in buckets:
            key = tuple(sorted((k, v) for k, v in sample.labels.items() if k != "le"))
            by_labels.setdefault(key, []).append((float(sample.labels["le"]), sample.value))
        for key, edges in by_labels.items():
            counts = [number for _, number in edges]
            assert counts == sorted(counts) and edges[-1][0] == float("inf")
            assert [sample.value for sample in family.samples if sample.name.endswith("_count")
                    and tuple(sorted(sample.labels.items())) == key] == [counts[-1]]
        if family.name.endswith("_seconds") and "token" not in family.name:
            assert max(edge for edge, _ in edges[:-1]) >= 600


def test_http_and_process_metrics(busy):
    # A request is counted once its reply is out, a moment after the client has it.
    eventually(lambda: value(busy, "http_requests_total", handler="/v1/completions", method="POST", status="200") == REQUESTS)
    assert value(busy, "http_requests_total", handler="/v1/completions", status="400") == 2
    busy.get("/some/random/path")
    assert value(busy, "http_requests_total", handler="none", status="404") >= 1
    for name in ["process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds", "process_start_time_seconds"]:
        assert value(busy, name) > 0
    assert value(busy, "assay_kv_info", pool="certified") == 1
    assert value(busy, "assay_kv_pages", state="in_use") == 0


def test_case_80_prefix_hits_are_counted_once(tiny):
    prompt = "The lighthouse keeper wrote in his book every evening. " * 8
    before = value(tiny, "assay_prefix_cache_hits_total")
    first = tiny.post("/v1/completions", {"prompt": prompt, "max_tokens": 1, "temperature": 0, "cache_salt": "case80"}).json()
    again = tiny.post("/v1/completions", {"prompt": prompt, "max_tokens": 1, "temperature": 0, "cache_salt": "case80"}).json()
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    cached = again["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert 0 < cached < again["usage"]["prompt_tokens"]
    assert value(tiny, "assay_prefix_cache_hits_total") - before == cached
    assert again["choices"][0]["text"] == first["choices"][0]["text"]


def test_case_100_scrapes_are_small_and_quick(busy):
    start = time.monotonic()
    body = busy.get("/metrics").body
    assert time.monotonic() - start < 1 and len(body) < 1_000_000
    assert re.search(rb"^# HELP assay_", body, re.M)


def test_metrics_port(scripted_folder):
    import socket
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    import urllib.request
    with RunningServer(scripted_folder, "--metrics-port", port) as server:
        assert b"assay_num_requests_running" in urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read()
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models")
        assert server.get("/metrics").status == 200
