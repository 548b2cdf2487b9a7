"""Start, health, disconnects, overload, draining, thousands of streams."""
import json
import pathlib
import resource
import signal
import socket
import struct
import threading
import time

import pytest

from running_server import DUMMY, RunningServer, eventually

ENDLESS = {"prompt": "a", "max_tokens": 100000, "ignore_eos": True, "temperature": 1}


def begin(server, body, path="/v1/completions"):
    data = json.dumps(body).encode()
    connection = server.connect()
    connection.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(data)) + data)
    return connection


def read_to_end(connection):
    connection.settimeout(30)
    with connection, connection.makefile("rb") as file:
        return file.read()


def test_case_69_disconnects_free_everything(random_model):
    """Mid-stream, mid-queue and not streaming; a reset as well as an orderly close."""
    aborted = random_model.metric("assay_requests_total", finish_reason="abort")
    rounds = 120
    for i in range(rounds):
        connection = begin(random_model, {**ENDLESS, "stream": i % 2 == 0, "n": 1 + i % 3})
        if i % 4 == 0:
            connection.recv(10)
        elif i % 4 == 1:
            time.sleep(0.01)
        if i % 5 == 0:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    eventually(random_model.idle)
    assert random_model.metric("assay_requests_total", finish_reason="abort") > aborted
    random_model.assert_alive()


def test_case_71_health_before_the_model_is_there(tmp_path):
    """The socket answers while the model loads: alive and ready are 503 with the envelope, then 200."""
    folder = tmp_path / "big"
    from scripted_model import write_config, write_random_model
    write_random_model(folder)
    write_config(folder, 320, hidden_size=512, intermediate_size=2048, num_hidden_layers=8, num_attention_heads=8,
                 num_key_value_heads=8, head_dim=64)
    with RunningServer(folder, *DUMMY, wait=False) as server:
        early = server.get("/health")
        if early.status == 503:  # loading takes about a second; a very fast machine may be through already
            assert "loading" in early.error["message"] and early.headers["Retry-After"]
            assert server.get("/version").status == 200 and server.get("/metrics").status == 200
        eventually(lambda: server.get("/ready").status == 200, 60)
        assert server.get("/health").status == 200


def test_case_71_health_while_the_queue_is_full(random_folder):
    with RunningServer(random_folder, *DUMMY, "--max-num-seqs", "1", "--max-num-queued-reqs", "2") as server:
        waiting = [begin(server, {**ENDLESS, "stream": True}) for _ in range(3)]
        eventually(lambda: server.metric("assay_num_requests_waiting") >= 1)
        assert server.get("/health").status == 200 and server.get("/ready").status == 200
        for connection in waiting:
            connection.close()
        eventually(server.idle)


def test_case_75_overflow_is_refused_at_once(random_folder):
    with RunningServer(random_folder, *DUMMY, "--max-num-seqs", "1", "--max-num-queued-reqs", "3") as server:
        running = [begin(server, {**ENDLESS, "stream": True})]
        eventually(lambda: server.metric("assay_num_requests_running") == 1)  # it holds no place of the queue any more
        running += [begin(server, {**ENDLESS, "stream": True}) for _ in range(3)]
        eventually(lambda: server.metric("assay_num_requests_waiting") == 3)
        start = time.monotonic()
        reply = server.post("/v1/completions", {"prompt": "b"})
        assert reply.status == 429 and time.monotonic() - start < 1
        assert reply.error["code"] == "queue_full" and int(reply.headers["Retry-After"]) >= 1
        running.pop().close()
        running.pop().close()
        eventually(lambda: server.metric("assay_num_requests_waiting") == 1)
        assert server.post("/v1/completions", {"prompt": "b", "n": 3}).status == 429  # n counts n slots
        assert server.metric("vllm:admission_rejections_total", reason="queue_full") == 2
        for connection in running:
            connection.close()
        eventually(server.idle)


def test_request_timeout(random_folder):
    with RunningServer(random_folder, *DUMMY, "--request-timeout", "300ms") as server:
        reply = server.post("/v1/completions", ENDLESS)
        assert reply.status == 408 and reply.error["code"] == "request_timeout"
        events = server.events("/v1/completions", ENDLESS)
        assert events[-1] == "[DONE]" and events[-2]["error"]["code"] == "request_timeout"
        assert server.post("/v1/completions", {"prompt": "a", "max_tokens": 2}).status == 200
        eventually(server.idle)


def test_case_72_drain(random_folder):
    with RunningServer(random_folder, *DUMMY, "--seed", "3") as server:
        alone = server.complete("a", max_tokens=4000, ignore_eos=True)["text"]
        result = []
        body = {"prompt": "a", "max_tokens": 4000, "ignore_eos": True, "temperature": 0}
        reader = threading.Thread(target=lambda: result.extend(server.events("/v1/completions", body)))
        reader.start()
        eventually(lambda: server.metric("assay_num_requests_running") == 1)
        server.process.send_signal(signal.SIGTERM)
        eventually(lambda: server.get("/ready").status == 503)
        refused = server.post("/v1/completions", {"prompt": "a"})
        assert refused.status == 503 and refused.headers["Retry-After"]
        assert server.get("/health").status == 200 and server.get("/metrics").status == 200
        reader.join(60)
        assert result[-1] == "[DONE]" and "".join(event["choices"][0]["text"] for event in result[:-1]) == alone
        assert server.process.wait(30) == 0


def test_case_72_shutdown_timeout_and_second_signal(random_folder):
    endless = {**ENDLESS, "n": 60, "stream": True}
    with RunningServer(random_folder, *DUMMY, "--shutdown-timeout", "500ms") as server:
        connection = begin(server, endless)
        connection.recv(10)
        whole = begin(server, {**ENDLESS, "n": 60})
        eventually(lambda: server.metric("assay_num_requests_running") + server.metric("assay_num_requests_waiting") == 120)
        start = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        cut, refused = read_to_end(connection), read_to_end(whole)
        assert server.process.wait(30) == 0 and time.monotonic() - start < 5
        # The cut stream ends as a whole one does, and says why; the reply that never began is a 503.
        last = cut.split(b"data: ")[-2:]
        assert json.loads(last[0].split(b"\n")[0])["error"]["code"] == "cancelled" and last[1].startswith(b"[DONE]")
        assert cut.endswith(b"0\r\n\r\n")
        assert refused.startswith(b"HTTP/1.1 503") and b"Retry-After" in refused and b"shutting down" in refused
    with RunningServer(random_folder, *DUMMY) as server:
        connection = begin(server, endless)
        connection.recv(10)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert server.process.poll() is None
        start = time.monotonic()
        assert server.stop(signal.SIGTERM) != 0 and time.monotonic() - start < 2
        connection.close()


def test_thousands_of_idle_streams_cost_no_threads(random_folder):
    """5,000 open event streams on one process: one runs, the others wait in the queue."""
    streams = 5000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < streams + 200:
        pytest.fail(f"this machine allows {hard} file descriptors, the test needs {streams + 200}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with RunningServer(random_folder, *DUMMY, "--max-num-seqs", "1", "--max-num-queued-reqs", "6000") as server:
        tasks = pathlib.Path(f"/proc/{server.process.pid}/task")
        server.post("/v1/completions", {"prompt": "a", "max_tokens": 1})
        threads = len(list(tasks.iterdir()))
        memory = server.metric("process_resident_memory_bytes")
        connections = [begin(server, {**ENDLESS, "stream": True}) for _ in range(streams)]
        for connection in connections:
            assert connection.recv(15) == b"HTTP/1.1 200 OK"
        assert len(list(tasks.iterdir())) == threads
        assert server.metric("assay_num_requests_waiting") + server.metric("assay_num_requests_running") > streams - 100
        start = time.monotonic()
        assert server.get("/health").status == 200 and server.get("/metrics").status == 200
        assert time.monotonic() - start < 2
        assert server.metric("process_resident_memory_bytes") - memory < streams * 100_000
        for connection in connections:
            connection.close()
        eventually(server.idle, 60)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_one_log_line_per_request_without_its_text(scripted_folder):
    with RunningServer(scripted_folder) as server:
        server.post("/v1/completions", {"prompt": "secret words A", "temperature": 0}, headers={"X-Request-Id": "my-id"})
        server.post("/v1/completions", {"prompt": "secret words A", "n": "2"})
        eventually(lambda: server.log.count(" request ") == 2)
        line = next(line for line in server.lines if "id=my-id" in line)
        for part in ["route=/v1/completions", "status=200", "prompt_tokens=14", "completion_tokens=4", "first_token_s="]:
            assert part in line
        assert "secret" not in server.log and "alpha" not in server.log
