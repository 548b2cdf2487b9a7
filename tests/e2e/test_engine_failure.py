"""Case 71: a device fails while requests run. What is in flight fails with words, health is red, and the process ends by itself."""
import pathlib
import threading
import time

import grpc
import pytest

import running_server
from grpc_client import GrpcClient
from running_server import eventually
from test_grpc import ENDLESS, GrpcServer, health

FAILING = pathlib.Path(running_server.BINARY).parents[1] / "tests" / "e2e" / "assay_failing_engine"
LONG = {"prompt": "a", "max_tokens": 3000, "ignore_eos": True}


@pytest.fixture
def failing(random_folder, tmp_path, monkeypatch):
    """(server, function that makes its next step fail)"""
    monkeypatch.setattr(running_server, "BINARY", str(FAILING))
    trigger = tmp_path / "fail"
    with GrpcServer(random_folder, environment={"FAIL_WHEN_THERE": str(trigger)}) as server:
        yield server, trigger.touch


def test_case_71_in_flight_requests_fail_and_the_process_ends(failing):
    server, fail = failing
    assert server.get("/health").status == server.get("/ready").status == 200
    replies = {}
    threads = [threading.Thread(target=lambda: replies.update(stream=server.events("/v1/completions", LONG))),
               threading.Thread(target=lambda: replies.update(whole=server.post("/v1/completions", LONG)))]
    for thread in threads:
        thread.start()
    with GrpcClient(server.grpc_port) as client:
        call = client.stream(**ENDLESS)
        next(call)
        eventually(lambda: server.metric("assay_num_requests_running") == 3)
        fail()
        with pytest.raises(grpc.RpcError) as caught:
            list(call)
        assert caught.value.code() == grpc.StatusCode.INTERNAL and "the device is gone" in caught.value.details()
        for thread in threads:
            thread.join(30)
        # Red for as long as probes need to see it, and no new request is taken.
        red = server.get("/health")
        assert red.status == 503 and "failed" in red.error["message"]
        assert server.get("/ready").status == 503
        refused = server.post("/v1/completions", {"prompt": "a"})
        assert refused.status == 503 and refused.headers["Retry-After"]
        assert server.metric("assay_engine_healthy") == 0 and server.metric("assay_requests_total", finish_reason="error") == 3
        eventually(lambda: health(client.channel) == 2, 5)  # NOT_SERVING
    assert replies["whole"].status == 500 and replies["whole"].error["code"] == "internal_error"
    error, done = replies["stream"][-2:]
    assert done == "[DONE]" and error["error"]["code"] == "internal_error" and "the device is gone" in error["error"]["message"]
    assert any(event["choices"][0]["text"] for event in replies["stream"][:-2])  # it had begun
    start = time.monotonic()
    assert server.process.wait(30) == 1 and time.monotonic() - start < 20
    assert "the engine has failed" in server.log
