"""The closed loop through the whole server: repair, policies, audit, faults, as an operator and a client see them."""
import concurrent.futures
import json
import threading

import pytest
from conftest import TINY
from running_server import RunningServer, eventually

PROMPT = " ".join(f"Line {i}: the harbour master counted {i * 37 % 991} boats and wrote it down." for i in range(40))


def ask(server, **certificate):
    body = {"model": "tiny", "prompt": PROMPT, "max_tokens": 12, "temperature": 0, "ignore_eos": True,
            "certificate": {"report": True, **certificate}}
    reply = server.post("/v1/completions", body)
    assert reply.status == 200, reply.body
    return reply.json()["choices"][0]["text"], reply.json()["certificate"]


@pytest.fixture(scope="module")
def server():
    with RunningServer(TINY, "--served-model-name", "tiny", "--kv-pool", "certified", "--kv-audit-rate", "1",
                       "--max-num-batched-tokens", "4096") as running:
        yield running


def test_no_cell_is_over_tau_and_metrics_say_what_that_cost(server):
    assert server.get("/server_info").json()["config"]["kv_gate"] == "repair"
    _, report = ask(server, tau=0.05)
    cells = report["cells"]["decode"]
    assert cells["metered"] > 0 and cells["risk_ranked"] == 0 and report["certified"] is True
    assert report["worst"]["tv"] <= 0.05 and report["policy"] == "repair" and report["backing"] == "complete"
    gate = report["gate"]
    assert gate["paged"] + gate["whole_head"] > 0 and report["pages_in"] > 0 and report["bytes_in"] > 0
    assert report["repair_cache_hits"] > 0, "a page that is read back stays"
    # After the last step, /metrics holds the sums of what the reports said.
    eventually(server.idle, 60)
    assert server.metric("assay_gate_paged_pages_total") >= report["pages_in"]
    assert server.metric("assay_gate_paged_bytes_total") >= report["bytes_in"]
    assert server.metric("assay_repair_cache_pages") <= server.metric("assay_repair_cache_capacity_pages")
    assert 0 < server.metric("assay_backing_used_bytes") <= server.metric("assay_backing_limit_bytes")
    for name in ("assay_backing_checksum_failures_total", "assay_gate_unbacked_pages_total", "assay_backing_skipped_pages_total"):
        assert server.metric(name) == 0


def test_the_audit_finds_nothing(server):
    before = server.metric("assay_audit_cells_total", guarantee="deterministic")
    ask(server)
    eventually(server.idle, 60)
    assert server.metric("assay_audit_cells_total", guarantee="deterministic") > before
    assert server.metric("assay_audit_violations_total", guarantee="deterministic") == 0


def test_policies(server):
    observed, report = ask(server, policy="observe", tau=0.01)
    assert report["policy"] == "observe" and report["cells"]["decode"]["risk_ranked"] > 0 and report["certified"] is False
    assert report["gate"] == {"refined": 0, "paged": 0, "whole_head": 0, "whole_layer": 0} and report["pages_in"] == 0
    _, report = ask(server, policy="exact")
    cells = report["cells"]["decode"]
    assert report["policy"] == "exact" and cells["exact"] == cells["metered"] > 0 and report["certified"] is True
    assert report["gate"]["whole_layer"] >= cells["metered"] and report["cells"]["prefill"]["risk_ranked"] == 0


def test_hundreds_of_cancellations_in_mid_repair_leak_nothing(server):
    body = {"model": "tiny", "prompt": PROMPT, "max_tokens": 200, "temperature": 0, "ignore_eos": True, "stream": True,
            "certificate": {"tau": 0.02}}

    def abandoned(index):
        payload = json.dumps({**body, "prompt": PROMPT + str(index % 7)})
        with server.connect() as connection:
            connection.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {len(payload)}\r\n\r\n{payload}".encode())
            for _ in range(index % 4):
                connection.recv(1024)

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(abandoned, range(200)))
    eventually(server.idle, 60)
    assert server.metric("assay_kv_pages", state="in_use") == 0
    assert server.metric("assay_backing_checksum_failures_total") == 0
    assert server.metric("assay_audit_violations_total", guarantee="deterministic") == 0
    text, report = ask(server, tau=0.05)
    assert text and report["certified"] is True


def test_without_a_backing_store():
    with RunningServer(TINY, "--served-model-name", "tiny", "--kv-pool", "certified", "--kv-gate", "observe", "--kv-backing", "none") as server:
        _, report = ask(server)
        assert report["policy"] == "observe" and report["backing"] == "none"
        for policy in ("repair", "exact"):
            body = {"model": "tiny", "prompt": "A", "certificate": {"policy": policy}}
            reply = server.post("/v1/completions", body)
            assert reply.status == 400 and reply.json()["error"]["param"] == "certificate.policy"
        assert server.metric("assay_backing_limit_bytes") == 0
    with pytest.raises(RuntimeError, match="kv_gate repair reads exact rows, and kv_backing none keeps none"):
        RunningServer(TINY, "--kv-pool", "certified", "--kv-backing", "none")


def test_a_backing_store_too_small_is_reported_and_never_hangs():
    with RunningServer(TINY, "--served-model-name", "tiny", "--kv-pool", "certified", "--kv-backing-memory", "1MiB") as server:
        reports = []
        threads = [threading.Thread(target=lambda: reports.append(ask(server, tau=0.02)[1])) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert len(reports) == 4
        assert any(report["backing"] == "partial" and report["pages_not_backed"] > 0 and not report["certified"] for report in reports), \
            json.dumps(reports)
        eventually(server.idle, 60)
        assert server.metric("assay_backing_skipped_pages_total") > 0
        body = {"model": "tiny", "prompt": PROMPT, "max_tokens": 4, "certificate": {"policy": "exact"}}
        reply = server.post("/v1/completions", body)
        assert reply.status == 500 and "backing store had no room" in reply.json()["error"]["message"]
