"""HTTP as bytes: bad requests, limits, keys, TLS, CORS, paths. The server must answer with the envelope and live on."""
import json
import subprocess

import pytest

from running_server import RunningServer

GOOD = {"prompt": "A", "max_tokens": 2, "temperature": 0}


def talk(server, data, read_all=True):
    with server.connect() as connection:
        connection.sendall(data)
        received = b""
        while read_all or b"\r\n\r\n" not in received:
            try:
                part = connection.recv(65536)
            except (ConnectionResetError, TimeoutError):
                break
            if not part:
                break
            received += part
        return received


@pytest.mark.parametrize("body", [
    b'{: "model"', b"", b'{"prompt": "A"', b'\xef\xbb\xbf{"prompt": "A"}', b"[]", b'"x"', b'{"prompt": "A"} trailing',
    b"[" * 10000, b'{"a":' * 10000, b'{"prompt": "\xff\xfe"}', b'{"prompt": "\\ud800"}', b"null", b"\x00"])
def test_case_51_bodies_that_are_no_json_object(scripted, body):
    for path in ["/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"]:
        reply = scripted.post(path, body)
        assert reply.status == 400 and set(reply.error) == {"message", "type", "param", "code"}
    scripted.assert_alive()


def test_case_50_body_header_and_id_limits(scripted):
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (100 << 20)
    with scripted.connect() as connection:
        connection.sendall(head)
        try:
            for _ in range(100):
                connection.sendall(b"x" * (1 << 20))
        except (BrokenPipeError, ConnectionResetError):
            pass
        assert b" 413 " in connection.recv(65536)
    assert scripted.post("/v1/completions", b"x" * (9 << 20)).status == 413
    assert b" 431 " in talk(scripted, b"GET /health HTTP/1.1\r\nX-Big: " + b"y" * (1 << 20) + b"\r\n\r\n")
    many = b"".join(b"X-%d: y\r\n" % i for i in range(3000))
    assert b" 431 " in talk(scripted, b"GET /health HTTP/1.1\r\n" + many + b"\r\n")
    reply = scripted.post("/v1/completions", {**GOOD, "stream": True}, headers={"X-Request-Id": "i" * 20000})
    assert len(reply.headers["X-Request-Id"]) == 128 and len(reply.body) < 5000
    scripted.assert_alive()


def test_case_55_the_envelope_is_everywhere(scripted):
    for method, path, status in [("GET", "/nope", 404), ("GET", "/v1/completions", 405), ("DELETE", "/v1/models", 405),
                                 ("POST", "/health", 405), ("GET", "/v1/models/nope", 404), ("POST", "/v1/embeddings", 404),
                                 ("POST", "/v1/responses", 404)]:
        reply = scripted.request(method, path)
        assert reply.status == status and set(reply.error) == {"message", "type", "param", "code"}
        assert reply.headers["X-Request-Id"] and reply.headers["Content-Type"] == "application/json"
        assert (status == 405) == bool(reply.headers.get("Allow"))


def test_paths_methods_and_connections(scripted):
    assert scripted.get("//v1//models/").status == 200
    head = talk(scripted, b"HEAD /v1/models HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert b" 200 OK" in head and head.endswith(b"\r\n\r\n")
    body = json.dumps(GOOD).encode()
    request = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n" % len(body)
    three = talk(scripted, (request + b"\r\n" + body) * 2 + request + b"Connection: close\r\n\r\n" + body)
    assert three.count(b" 200 OK") == 3
    http_1_0 = talk(scripted, b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert b" 200 OK" in http_1_0 and b"chunked" not in http_1_0


def test_curl_with_a_big_body_and_expect(scripted, tmp_path):
    (tmp_path / "body.json").write_text(json.dumps({"prompt": "x" * 3000 + "A", "max_tokens": 2, "temperature": 0,
                                                    "ignored": "y" * 2_000_000}))
    answer = subprocess.run(["curl", "-s", "-H", "Expect: 100-continue", "--data", f"@{tmp_path}/body.json",
                             scripted.url + "/v1/completions"], capture_output=True, text=True, timeout=60)
    assert json.loads(answer.stdout)["choices"][0]["text"] == "alpha beta"


def test_case_73_keys(scripted_folder, tmp_path):
    (tmp_path / "keys").write_text("# two more\nsk-file\n\n")
    with RunningServer(scripted_folder, "--api-key", "sk-one", "--api-key-file", tmp_path / "keys") as server:
        for path in ["/health", "/ready", "/version", "/metrics"]:
            assert server.get(path).status == 200
        for method, path in [("POST", "/v1/completions"), ("POST", "/v1/chat/completions"), ("POST", "/tokenize"),
                             ("POST", "/detokenize"), ("GET", "/tokenizer_info"), ("GET", "/v1/models"), ("GET", "/models"),
                             ("GET", "/server_info"), ("GET", "/"), ("GET", "/nope")]:
            reply = server.request(method, path, GOOD if method == "POST" else None)
            assert reply.status == 401 and reply.error["code"] == "invalid_api_key", path
        for value, status in [("Bearer sk-one", 200), ("bearer sk-file", 200), ("BEARER sk-one", 200), ("Bearer sk-two", 401),
                              ("Basic sk-one", 401), ("sk-one", 401), ("Bearer ", 401)]:
            assert server.post("/v1/completions", GOOD, headers={"Authorization": value}).status == status, value
        assert "sk-one" not in server.log and "sk-file" not in server.log
        info = server.get("/server_info", headers={"Authorization": "Bearer sk-one"})
        assert b"sk-one" not in info.body
    with RunningServer(scripted_folder, "--api-key", "k", "--metrics-auth") as server:
        assert server.get("/metrics").status == 401


def test_any_bearer_passes_without_keys(scripted):
    for value in ["Bearer EMPTY", "Bearer ", "Bearer sk-x"]:
        assert scripted.get("/v1/models", headers={"Authorization": value}).status == 200


def test_cors(scripted_folder):
    with RunningServer(scripted_folder, "--allowed-origins", "https://ui.example", "--api-key", "k") as server:
        preflight = server.request("OPTIONS", "/v1/chat/completions", headers={
            "Origin": "https://ui.example", "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization, content-type, x-stainless-os"})
        assert preflight.status == 204
        assert preflight.headers["Access-Control-Allow-Origin"] == "https://ui.example"
        assert "x-stainless-os" in preflight.headers["Access-Control-Allow-Headers"]
        other = server.get("/health", headers={"Origin": "https://evil.example"})
        assert other.headers.get("Access-Control-Allow-Origin") is None


def test_tls(scripted_folder, tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-keyout", key,
                    "-out", certificate], check=True, capture_output=True)
    with RunningServer(scripted_folder, "--ssl-certfile", certificate, "--ssl-keyfile", key) as server:
        assert server.complete("A")["text"] == "alpha beta gamma"
        text = "".join(event["choices"][0]["text"] for event in server.events("/v1/completions", GOOD)[:-1])
        assert text == "alpha beta"
        plain = talk(server, b"GET /health HTTP/1.1\r\n\r\n")
        assert b"200 OK" not in plain
        assert server.get("/health").status == 200


def test_case_13_a_huge_prompt_stalls_nobody(tiny):
    import threading
    import time
    done = []
    worker = threading.Thread(target=lambda: done.append(tiny.post("/tokenize", {"prompt": "a" * 4_000_000}).json()["count"]))
    worker.start()
    slowest = 0.0
    while worker.is_alive():
        start = time.monotonic()
        assert tiny.post("/tokenize", {"prompt": "hello"}).status == 200
        slowest = max(slowest, time.monotonic() - start)
    worker.join()
    assert done[0] > 1000 and slowest < 1.5


def test_tokenize_detokenize_and_info(tiny):
    tokens = tiny.post("/tokenize", {"prompt": "Hello, world! \u010f\U0001F336"}).json()["tokens"]
    assert tiny.post("/detokenize", {"tokens": tokens}).json()["prompt"] == "Hello, world! \u010f\U0001F336"
    info = tiny.get("/tokenizer_info").json()
    assert info["eos_token"] == "<|im_end|>" and "im_start" in info["chat_template"]
    for body, param in [({}, "prompt"), ({"prompt": 5}, "prompt"), ({"prompt": "a", "add_special_tokens": "x"}, "add_special_tokens")]:
        assert tiny.post("/tokenize", body).error["param"] == param
    for body in [{}, {"tokens": "x"}, {"tokens": ["a"]}, {"tokens": [-1]}, {"tokens": [10**9]}, {"tokens": [1.5]}]:
        assert tiny.post("/detokenize", body).error["param"] == "tokens"


def test_information_routes(tiny):
    assert tiny.get("/version").json()["version"]
    info = tiny.get("/server_info").json()
    assert info["status"] == "ready" and info["model"]["layers"] == 8 and info["cache"]["pool"] == "certified"
    assert info["config"]["max_num_seqs"] == 256
    page = tiny.get("/")
    assert page.headers["Content-Type"].startswith("text/html") and b"<title>Assay</title>" in page.body


def test_unfinished_chunk_lines_cost_no_memory(scripted):
    """A chunk extension or trailers without end are bounded like headers."""
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    for opening, filler in [(b"5;", b"a" * 65536), (b"0\r\n", b"abc: d\r\n" * 8192)]:
        with scripted.connect() as connection:
            connection.sendall(head + opening)
            try:
                for _ in range(64):
                    connection.sendall(filler)
            except (BrokenPipeError, ConnectionResetError):
                pass
            try:
                answer = connection.recv(65536)
            except ConnectionResetError:
                answer = b" 431 "
            assert b" 431 " in answer
    scripted.assert_alive()


@pytest.mark.parametrize("coding", [b"xchunked", b"gzip, chunked", b"chunked, identity", b"chunked;q=1"])
def test_other_transfer_codings_end_the_connection(scripted, coding):
    """Nothing behind such a head is read as a second request."""
    data = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: " + coding + b"\r\n\r\nGET /server_info HTTP/1.1\r\nHost: x\r\n\r\n"
    answer = talk(scripted, data)
    assert answer.count(b"HTTP/1.1 ") == 1 and (b"HTTP/1.1 501 " in answer or b"HTTP/1.1 400 " in answer)
    assert b" 415 " in talk(scripted, b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}")
