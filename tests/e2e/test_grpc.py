"""assay.v1.Inference with the official Python client: the same answers and the same words as HTTP, limits, and lifecycle."""
import pathlib
import signal
import socket
import subprocess
import time

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from conftest import TINY
from grpc_client import SERVICE, GrpcClient
from running_server import BINARY, DUMMY, RunningServer, clean_environment, eventually

ENDLESS = {"prompt": "a", "sampling": {"max_tokens": 100000, "ignore_eos": True, "temperature": 1.0}}
PROMPT = "The three primary colours are"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class GrpcServer(RunningServer):
    def __init__(self, model, *flags, **kwargs):
        self.grpc_port = free_port()
        super().__init__(model, "--grpc-port", self.grpc_port, *flags, **kwargs)


@pytest.fixture(scope="module")
def server():
    with GrpcServer(TINY, "--served-model-name", "tiny", "--max-body-bytes", "256KiB") as running:
        yield running


@pytest.fixture(scope="module")
def client(server):
    with GrpcClient(server.grpc_port) as connected:
        yield connected


@pytest.fixture(scope="module")
def endless(random_folder):
    with GrpcServer(random_folder, *DUMMY, "--seed", "7", "--max-num-seqs", "4", "--max-num-queued-reqs", "4") as running:
        yield running


def failure(call):
    with pytest.raises(grpc.RpcError) as caught:
        list(call())
    return caught.value.code(), caught.value.details()


def health(channel, service=""):
    return health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=service), timeout=20).status


def test_generate_equals_http(server, client):
    for prompt in [PROMPT, "A recipe for bread:", "1 2 3 4 5"]:
        expected = server.post("/v1/completions", {"prompt": prompt, "temperature": 0, "max_tokens": 40, "logprobs": 2,
                                                   "return_token_ids": True}).json()
        choice = expected["choices"][0]
        messages = list(client.stream(prompt=prompt, sampling={"temperature": 0, "max_tokens": 40, "logprobs": 2}))
        assert "".join(message.text for message in messages) == choice["text"]
        assert [id_ for message in messages for id_ in message.token_ids] == choice["token_ids"]
        logprobs = [score.chosen.logprob for message in messages for score in message.logprobs]
        assert logprobs == pytest.approx(choice["logprobs"]["token_logprobs"], abs=1e-5)
        assert all(len(score.top) == 2 for message in messages for score in message.logprobs)
        assert messages[-1].finish_reason == choice["finish_reason"]
        assert messages[-1].usage.prompt_tokens == expected["usage"]["prompt_tokens"]
        assert messages[-1].usage.completion_tokens == expected["usage"]["completion_tokens"] == 40
        assert not any(message.HasField("usage") or message.finish_reason for message in messages[:-1])


def test_a_conversation_equals_http(server, client):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Name a colour."}]
    expected = server.post("/v1/chat/completions", {"messages": messages, "temperature": 0, "max_tokens": 24}).json()
    got = list(client.stream(conversation={"messages": messages}, sampling={"temperature": 0, "max_tokens": 24}))
    assert "".join(message.text for message in got) == expected["choices"][0]["message"]["content"]
    assert got[-1].usage.prompt_tokens == expected["usage"]["prompt_tokens"]


def test_several_sequences_each_end_once(client):
    messages = list(client.stream(prompt=PROMPT, request_id="my-id",
                                  sampling={"n": 3, "max_tokens": 12, "seed": 5, "temperature": 1.0, "ignore_eos": True}))
    ends = [message.index for message in messages if message.finish_reason]
    assert sorted(ends) == [0, 1, 2] and {message.id for message in messages} == {"my-id"}
    assert messages[-1].usage.completion_tokens == 36
    assert all(sum(len(m.token_ids) for m in messages if m.index == index) == 12 for index in range(3))


def test_token_ids_as_prompt_and_stop_strings(server, client):
    ids = list(client.unary("Tokenize", prompt=PROMPT).tokens)
    by_ids = "".join(m.text for m in client.stream(prompt_token_ids={"ids": ids}, sampling={"temperature": 0, "max_tokens": 24}))
    assert by_ids == server.complete(PROMPT, max_tokens=24)["text"]
    stop = by_ids.strip().split()[2]
    expected = server.complete(PROMPT, max_tokens=24, stop=[stop])
    got = list(client.stream(prompt=PROMPT, sampling={"temperature": 0, "max_tokens": 24, "stop": [stop]}))
    assert "".join(m.text for m in got) == expected["text"] and got[-1].finish_reason == "stop"


def test_tokenize_detokenize_and_models(server, client):
    expected = server.post("/tokenize", {"prompt": PROMPT}).json()
    got = client.unary("Tokenize", prompt=PROMPT)
    assert list(got.tokens) == expected["tokens"] and got.count == expected["count"]
    assert got.max_model_len == expected["max_model_len"]
    chat = {"messages": [{"role": "user", "content": "Hi"}]}
    assert list(client.unary("Tokenize", conversation=chat).tokens) == server.post("/tokenize", chat).json()["tokens"]
    assert client.unary("Detokenize", tokens=expected["tokens"]).prompt == \
        server.post("/detokenize", {"tokens": expected["tokens"]}).json()["prompt"]
    model = server.get("/v1/models").json()["data"][0]
    listed = client.unary("ListModels").models
    assert [(m.id, m.root, m.max_model_len) for m in listed] == [(model["id"], model["root"], model["max_model_len"])]


@pytest.mark.parametrize("fields", [
    {"temperature": 2.1}, {"temperature": -0.5}, {"top_p": 0.0}, {"top_k": -2}, {"min_p": 1.5}, {"repetition_penalty": 0.0},
    {"presence_penalty": 2.5}, {"n": 0}, {"n": 129}, {"max_tokens": 0}, {"max_tokens": -1}, {"max_tokens": 2, "min_tokens": 3},
    {"stop": [""]}, {"stop_token_ids": [1 << 30]}, {"logprobs": 21}, {"logit_bias": {1: 101.0}}, {"logit_bias": {1 << 30: 1.0}},
    {"temperature": float("nan")},
])
def test_invalid_arguments_have_the_words_of_http(server, client, fields):
    code, message = failure(lambda: client.stream(prompt="a", sampling=fields))
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    if fields.get("temperature") != fields.get("temperature"):  # JSON has no NaN
        return
    reply = server.post("/v1/completions", {"prompt": "a", **fields})
    assert reply.status == 400
    assert message == reply.error["message"] and reply.error["param"] == list(fields)[-1]


def test_other_errors_have_the_words_of_http(server, client):
    def same(http_body, code, path="/v1/completions", **fields):
        reply = server.post(path, http_body)
        assert failure(lambda: client.stream(**fields)) == (code, reply.error["message"])
        return reply.status
    assert same({"prompt": "a", "model": "gpt"}, grpc.StatusCode.NOT_FOUND, prompt="a", model="gpt") == 404
    assert same({}, grpc.StatusCode.INVALID_ARGUMENT) == 400
    assert same({"prompt": ""}, grpc.StatusCode.INVALID_ARGUMENT, prompt="") == 400
    assert same({"prompt": [-1]}, grpc.StatusCode.INVALID_ARGUMENT, prompt_token_ids={"ids": [-1]}) == 400
    assert same({"prompt": [1 << 30]}, grpc.StatusCode.INVALID_ARGUMENT, prompt_token_ids={"ids": [1 << 30]}) == 400
    assert same({"prompt": "word " * 9000}, grpc.StatusCode.INVALID_ARGUMENT, prompt="word " * 9000) == 400
    assert same({"messages": []}, grpc.StatusCode.INVALID_ARGUMENT, "/v1/chat/completions", conversation={}) == 400
    reply = server.post("/detokenize", {"tokens": [1 << 30]})
    with pytest.raises(grpc.RpcError) as caught:
        client.unary("Detokenize", tokens=[1 << 30])
    assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.INVALID_ARGUMENT, reply.error["message"])
    for kwargs in ["[1]", "{", '{"a":' * 30_000 + "1" + "}" * 30_000]:
        code, message = failure(lambda: client.stream(conversation={"messages": [{"role": "user", "content": "x"}],
                                                                    "chat_template_kwargs_json": kwargs}))
        assert code == grpc.StatusCode.INVALID_ARGUMENT and message.startswith("chat_template_kwargs_json ")


def test_case_76_messages_are_bounded(server, client):
    """--max-body-bytes holds here as well; packed messages, which could unpack to anything, are refused."""
    code, message = failure(lambda: client.stream(prompt="x" * (300 << 10)))
    assert code == grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in message
    with pytest.raises(grpc.RpcError) as caught:
        client.unary("Tokenize", prompt="x" * (300 << 10))
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    path, serialize, parse, request = client.call("Tokenize", prompt="x" * (300 << 10))
    with pytest.raises(grpc.RpcError) as caught:
        client.channel.unary_unary(path, serialize, parse)(request, timeout=20, compression=grpc.Compression.Gzip)
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
    assert client.unary("Tokenize", prompt="x" * (200 << 10)).count > 0  # the limit is not the 4 MiB or less of a default
    server.assert_alive()


def test_a_broken_message_is_refused(server, client):
    raw = client.channel.unary_stream(f"/{SERVICE}/Generate", lambda data: data, lambda data: data)
    code, _ = failure(lambda: raw(b"\x0a\xff\xff\xff\xff\x0f", timeout=20))
    assert code == grpc.StatusCode.UNIMPLEMENTED  # the library's answer to bytes that are no message of the type
    server.assert_alive()


def test_case_76_cancelling_frees_everything(endless):
    aborted = endless.metric("assay_requests_total", finish_reason="abort")
    with GrpcClient(endless.grpc_port) as client:
        for i in range(40):
            call = client.stream(**{**ENDLESS, "sampling": {**ENDLESS["sampling"], "n": 1 + i % 3}})
            if i % 3 == 0:
                next(call)
            elif i % 3 == 1:
                time.sleep(0.02)
            call.cancel()
            if i % 10 == 9:
                eventually(endless.idle)
    eventually(endless.idle)
    assert endless.metric("assay_requests_total", finish_reason="abort") > aborted
    assert endless.process.poll() is None


def test_a_client_that_vanishes_frees_everything(endless):
    client = GrpcClient(endless.grpc_port)
    calls = [client.stream(**ENDLESS) for _ in range(3)]
    next(calls[0])
    client.close()  # the connection goes, with what runs on it
    eventually(endless.idle)


def test_case_76_a_deadline_ends_the_request(endless):
    with GrpcClient(endless.grpc_port) as client:
        start = time.monotonic()
        assert failure(lambda: client.stream(timeout=0.5, **ENDLESS))[0] == grpc.StatusCode.DEADLINE_EXCEEDED
        assert time.monotonic() - start < 5
        eventually(endless.idle)
    eventually(lambda: "code=DEADLINE_EXCEEDED" in endless.log)


def test_a_full_queue_is_resource_exhausted(endless):
    with GrpcClient(endless.grpc_port) as client:
        calls = [client.stream(**ENDLESS) for _ in range(4)]
        eventually(lambda: endless.metric("assay_num_requests_running") == 4)  # they hold no place of the queue any more
        calls += [client.stream(**ENDLESS) for _ in range(4)]
        eventually(lambda: endless.metric("assay_num_requests_waiting") == 4)
        assert failure(lambda: client.stream(**ENDLESS))[0] == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert endless.post("/v1/completions", {"prompt": "a", "max_tokens": 1}).status == 429
        for call in calls:
            call.cancel()
        eventually(endless.idle)


def test_keep_alive_pings_are_permitted(server):
    """A ping every 10 s for half a minute, with no call on the connection: the server does not say too_many_pings."""
    options = [("grpc.keepalive_time_ms", 10_000), ("grpc.keepalive_timeout_ms", 5_000),
               ("grpc.keepalive_permit_without_calls", 1), ("grpc.http2.max_pings_without_data", 0)]
    with GrpcClient(server.grpc_port, options=options) as client:
        changes = []
        client.channel.subscribe(changes.append)
        assert client.unary("ListModels").models
        time.sleep(35)
        assert client.unary("ListModels").models
        lost = changes[changes.index(grpc.ChannelConnectivity.READY):] if grpc.ChannelConnectivity.READY in changes else changes
        assert set(lost) <= {grpc.ChannelConnectivity.READY}


def test_reflection_and_health(server, client):
    assert {SERVICE, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"} <= client.services()
    assert set(client.service.methods_by_name) >= {"Generate", "Tokenize", "Detokenize", "ListModels"}
    assert health(client.channel) == health(client.channel, SERVICE) == health_pb2.HealthCheckResponse.SERVING
    with pytest.raises(grpc.RpcError) as caught:
        health(client.channel, "no.such.Service")
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND


def test_the_api_key_is_needed(random_folder):
    with GrpcServer(random_folder, *DUMMY, "--api-key", "secret") as server, GrpcClient(server.grpc_port) as client:
        request = {"prompt": "a", "sampling": {"max_tokens": 2}}
        for metadata in [(), (("authorization", "Bearer wrong"),), (("authorization", "secret"),)]:
            reply = server.post("/v1/completions", {"prompt": "a"}, headers=dict([("Authorization", v) for _, v in metadata]))
            assert failure(lambda: client.stream(metadata=metadata, **request)) == \
                (grpc.StatusCode.UNAUTHENTICATED, reply.error["message"])
            with pytest.raises(grpc.RpcError) as caught:
                client.unary("ListModels", metadata=metadata)
            assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED
        key = (("authorization", "Bearer secret"),)
        assert list(client.stream(metadata=key, **request))[-1].usage.completion_tokens == 2
        assert health(client.channel) == health_pb2.HealthCheckResponse.SERVING  # open, like /health


def test_draining(random_folder):
    """SIGTERM: health turns red, new calls are UNAVAILABLE, what runs goes on until the limit and then ends."""
    with GrpcServer(random_folder, *DUMMY, "--shutdown-timeout", "3s") as server, GrpcClient(server.grpc_port) as client:
        running = client.stream(**ENDLESS)
        next(running)
        server.process.send_signal(signal.SIGTERM)
        eventually(lambda: health(client.channel) == health_pb2.HealthCheckResponse.NOT_SERVING)
        assert failure(lambda: client.stream(prompt="a")) == (grpc.StatusCode.UNAVAILABLE, "the server is shutting down")
        assert next(running).token_ids
        with pytest.raises(grpc.RpcError) as caught:
            list(running)
        assert caught.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
        assert server.process.wait(30) == 0


def test_a_short_request_finishes_while_draining(random_folder):
    with GrpcServer(random_folder, *DUMMY) as server, GrpcClient(server.grpc_port) as client:
        call = client.stream(prompt="a", sampling={"max_tokens": 400, "ignore_eos": True})
        first = next(call)
        server.process.send_signal(signal.SIGTERM)
        messages = [first, *call]
        assert messages[-1].usage.completion_tokens == 400
        assert server.process.wait(30) == 0


def test_tls(random_folder, tmp_path):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", tmp_path / "key.pem", "-out",
                    tmp_path / "cert.pem", "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
                   check=True, capture_output=True)
    with GrpcServer(random_folder, *DUMMY, "--ssl-certfile", tmp_path / "cert.pem", "--ssl-keyfile",
                    tmp_path / "key.pem") as server:
        credentials = grpc.ssl_channel_credentials((tmp_path / "cert.pem").read_bytes())
        with GrpcClient(server.grpc_port, credentials) as client:
            assert list(client.stream(prompt="a", sampling={"max_tokens": 3}))[-1].usage.completion_tokens == 3


def test_a_taken_port_is_an_error(random_folder):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        run = subprocess.run([BINARY, "serve", str(random_folder), *DUMMY, "--port", "0", "--grpc-port", port],
                             capture_output=True, text=True, timeout=60, env=clean_environment())
    assert run.returncode == 1
    assert f"port {port}" in run.stderr and "--grpc-port" in run.stderr


def test_many_streams_cost_no_thread(random_folder):
    """Hundreds of calls wait for their turn; the process has as many threads as with one."""
    streams = 500
    with GrpcServer(random_folder, *DUMMY, "--max-num-seqs", "1", "--max-num-queued-reqs", str(streams)) as server, \
            GrpcClient(server.grpc_port) as client:
        tasks = pathlib.Path(f"/proc/{server.process.pid}/task")
        calls = [client.stream(**ENDLESS)]
        next(calls[0])
        threads = len(list(tasks.iterdir()))
        calls += [client.stream(**ENDLESS) for _ in range(streams - 1)]
        eventually(lambda: server.metric("assay_num_requests_waiting") == streams - 1, 60)
        assert len(list(tasks.iterdir())) <= threads + 4  # gRPC's own pool may grow with the cores, not with the streams
        for call in calls:
            call.cancel()
        eventually(server.idle, 60)


def test_watch_meters_says_what_metrics_say():
    with GrpcServer(TINY, "--kv-pool", "certified") as server, GrpcClient(server.grpc_port) as client:
        watch = client.stream(method="WatchMeters", interval_s=0.5)
        model = server.get("/server_info").json()["model"]
        first = next(watch)
        assert (first.pool, first.num_layers, first.num_heads) == ("certified", model["layers"], model["heads"])
        assert [(head.layer, head.head) for head in first.heads] == \
            [(layer, head) for layer in range(model["layers"]) for head in range(model["heads"])]
        before = sum(head.decode.metered for head in first.heads)
        server.complete(PROMPT, max_tokens=60, ignore_eos=True)
        next(snapshot for snapshot in watch if sum(head.decode.metered for head in snapshot.heads) > before)
        eventually(server.idle)
        next(watch)
        last = next(watch)  # read after the last step
        for head in last.heads:
            labels = {"layer": head.layer, "head": head.head}
            assert server.metric("assay_meter_cells_total", phase="decode", **labels) == head.decode.metered > 0
            assert server.metric("assay_meter_worst", **labels) == pytest.approx(head.worst, abs=1e-6)
            assert 0 <= head.recent_worst <= head.worst <= 1
        watch.cancel()
        eventually(lambda: server.metric("grpc_requests_total", method="WatchMeters", code="CANCELLED") == 1)


def test_watch_meters_of_a_pool_without_one():
    with GrpcServer(TINY, "--kv-pool", "exact") as server, GrpcClient(server.grpc_port) as client:
        code, message = failure(lambda: client.stream(method="WatchMeters"))
    assert code == grpc.StatusCode.FAILED_PRECONDITION and "exact pool has no meter" in message
