"""`assay sweep` against `assay serve` with the bundled model: what the client counts is what the server counts."""
import csv
import json
import subprocess

import pytest

from running_server import BINARY, RunningServer, clean_environment

LEVELS = [1, 2, 4, 8]
REQUESTS, INPUT, OUTPUT = 16, 48, 12


def sweep(*arguments):
    return subprocess.run([BINARY, "sweep", *map(str, arguments)], capture_output=True, text=True, timeout=300,
                          env=clean_environment())


def load(folder):
    return json.loads((folder / "results.json").read_text())


@pytest.fixture(scope="module")
def measured(tiny, tmp_path_factory):
    """One sweep, and how far the server's own counters went meanwhile."""
    folder = tmp_path_factory.mktemp("sweep")
    names = ["vllm:prompt_tokens_total", "vllm:generation_tokens_total", "assay_requests_total",
             "vllm:time_to_first_token_seconds_count"]
    before = {name: tiny.metric(name) for name in names}
    run = sweep("--url", tiny.url, "--concurrency", ",".join(map(str, LEVELS)), "--requests-per-level", REQUESTS,
                "--input-len", INPUT, "--output-len", OUTPUT, "--warmup", 0, "--goodput", "ttft:60000", "tpot:60000",
                "--output", folder)
    assert run.returncode == 0, run.stdout + run.stderr
    return run, folder, {name: tiny.metric(name) - before[name] for name in names}


def test_totals_equal_the_servers_counters(measured):
    _, folder, counted = measured
    levels = load(folder)["levels"]
    assert [level["concurrency"] for level in levels] == LEVELS
    assert counted["vllm:generation_tokens_total"] == sum(level["tokens"]["output"] for level in levels) == \
        len(LEVELS) * REQUESTS * OUTPUT
    assert counted["vllm:prompt_tokens_total"] == sum(level["tokens"]["input"] for level in levels) == \
        len(LEVELS) * REQUESTS * INPUT
    assert counted["assay_requests_total"] == sum(level["requests"]["completed"] for level in levels) == len(LEVELS) * REQUESTS
    assert counted["vllm:time_to_first_token_seconds_count"] == sum(level["ttft_ms"]["count"] for level in levels)


def test_each_level_agrees_with_the_server(measured):
    for level in load(measured[1])["levels"]:
        change = level["server_metrics_change"]
        assert change["vllm:generation_tokens_total"] == level["tokens"]["output"] == REQUESTS * OUTPUT
        assert change["vllm:prompt_tokens_total"] == level["tokens"]["input"] == REQUESTS * INPUT
        assert level["requests"]["kinds"] == {"completed": REQUESTS}
        assert level["anomalies"] == dict.fromkeys(level["anomalies"], 0)
        assert level["tokens"]["cached"] == 0  # no two prompts share a page
        assert level["goodput"]["good_requests"] == REQUESTS
        assert level["steady_window"]["max_in_flight"] == level["concurrency"]


def test_files_and_server_description(measured, tmp_path):
    run, folder, _ = measured
    results = load(folder)
    assert results["prompt_method"] == "tokenize" and results["label"] == "tiny"
    assert results["server"]["version"] and results["server"]["server_info"] and results["server"]["notes"] == []
    rows = list(csv.DictReader((folder / "results.csv").open()))
    assert [row["level"] for row in rows] == [str(level) for level in LEVELS]
    assert [int(row["completed"]) for row in rows] == [REQUESTS] * len(LEVELS)
    assert (folder / "frontier.svg").read_text().rstrip().endswith("</svg>")
    for level in LEVELS:
        assert f"level {level}: {REQUESTS} of {REQUESTS} completed" in run.stderr
    compared = sweep("compare", folder / "results.json", folder / "results.json", "--output", tmp_path)
    assert compared.returncode == 0 and "(1.00x)" in compared.stdout
    assert "tiny #2" in (tmp_path / "frontier.svg").read_text()


def test_chat_with_a_shared_prefix_hits_the_prefix_cache(tiny, tmp_path):
    run = sweep("--url", tiny.url, "--chat", "--concurrency", 2, "--requests-per-level", 6, "--input-len", 96,
                "--shared-prefix-len", 64, "--output-len", 4, "--output", tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    level = load(tmp_path)["levels"][0]
    assert level["tokens"]["input"] == 6 * 96 and level["tokens"]["output"] == 6 * 4
    assert level["tokens"]["cached"] >= 6 * 48  # the warm-up put the prefix's full pages there


def test_a_missing_key_is_counted_and_said(tmp_path, random_folder):
    with RunningServer(random_folder, "--load-format", "dummy", "--api-key", "secret") as server:
        refused = sweep("--url", server.url, "--concurrency", 1)
        assert refused.returncode == 1 and "--api-key" in refused.stderr
        counted = sweep("--url", server.url, "--model", "m", "--concurrency", 2, "--requests-per-level", 4, "--warmup", 0,
                        "--input-len", 8, "--output-len", 2, "--output", tmp_path)
        assert counted.returncode == 1
        assert load(tmp_path)["levels"][0]["requests"]["kinds"] == {"http_401": 4}
        served = sweep("--url", server.url, "--api-key", "secret", "--concurrency", 2, "--requests-per-level", 4,
                       "--input-len", 8, "--output-len", 2)
        assert served.returncode == 0, served.stdout + served.stderr


def test_bad_usage_is_status_2():
    assert sweep("--url", "localhost").returncode == 2
    assert "--grpc" in sweep("--grpc").stderr
