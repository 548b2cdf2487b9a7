"""Requests as known clients send them, replayed byte for byte where it matters (field names and shapes only)."""
import pytest


def test_lm_eval_loglikelihood(tiny):
    """local-completions: batches of token arrays, echo, one generated token; reads [ctxlen:-1]."""
    rows = [tiny.post("/tokenize", {"prompt": text, "add_special_tokens": False}).json()["tokens"]
            for text in ["The capital of France is Paris", "The sea is blue"]]
    reply = tiny.post("/v1/completions", {"model": "tiny", "prompt": rows, "temperature": 0, "max_tokens": 1, "logprobs": 1,
                                          "seed": 1234, "echo": True}, headers={"Authorization": "Bearer "}).json()
    for row, choice in zip(rows, sorted(reply["choices"], key=lambda choice: choice["index"])):
        logprobs = choice["logprobs"]
        assert len(logprobs["token_logprobs"]) == len(row) + 1
        scored = logprobs["token_logprobs"][1:-1]
        assert len(scored) == len(row) - 1 and all(isinstance(value, float) and value < 0 for value in scored)
        for token, value, top in zip(logprobs["tokens"][1:-1], scored, logprobs["top_logprobs"][1:-1]):
            best = max(top, key=top.get)
            assert top[token] == value and top[best] >= value


def test_lm_eval_generation_and_remote_tokenizer(tiny):
    reply = tiny.post("/v1/completions", {"model": "tiny", "prompt": "Once", "max_tokens": 8, "temperature": 0.0, "stop": ["\n\n"],
                                          "seed": 1234, "do_sample": False, "top_k": 50})
    assert reply.status == 200
    info = tiny.get("/tokenizer_info").json()
    assert {"eos_token", "bos_token", "pad_token", "chat_template"} <= set(info)
    tokens = tiny.post("/tokenize", {"prompt": "Once upon", "add_special_tokens": False}).json()["tokens"]
    assert tiny.post("/detokenize", {"tokens": tokens}).json()["prompt"] == "Once upon"


def test_aiperf(tiny):
    events = tiny.events("/v1/chat/completions", {
        "messages": [{"role": "user", "name": "", "content": "Hello"}], "model": "tiny", "max_completion_tokens": 12,
        "ignore_eos": True, "min_tokens": 12, "stream_options": {"include_usage": True}},
        headers={"Accept": "text/event-stream", "User-Agent": "aiperf/1.0", "X-Request-ID": "r1", "X-Correlation-ID": "c1"})
    assert events[-2]["usage"]["completion_tokens"] == 12
    reply = tiny.post("/v1/completions", {"prompt": ["Hello"], "model": "tiny", "stream": False, "max_completion_tokens": 3})
    assert reply.status == 200


def test_guidellm(tiny):
    assert tiny.get("/health").status == 200
    model = tiny.get("/v1/models").json()["data"][0]["id"]
    events = tiny.events("/v1/completions", {
        "model": model, "prompt": "Hello", "stream_options": {"include_usage": True, "continuous_usage_stats": True}, "max_tokens": 9,
        "stop": None, "ignore_eos": True})
    assert events[-2]["choices"] == [] and events[-2]["usage"]["completion_tokens"] == 9


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_vllm_bench_serve(tiny, path):
    body = {"model": "tiny", "stream": True, "repetition_penalty": 1.0, "temperature": 0.0, "ignore_eos": True,
            "stream_options": {"include_usage": True}}
    if "chat" in path:
        body |= {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}], "max_completion_tokens": 10}
    else:
        body |= {"prompt": "Hello", "max_tokens": 10, "logprobs": None}
    events = tiny.events(path, body, headers={"x-request-id": "bench-0"})
    text, output_tokens = "", 0
    for event in events[:-1]:
        if event["choices"]:
            text += event["choices"][0]["delta"].get("content") or "" if "chat" in path else event["choices"][0]["text"]
        elif event.get("usage"):
            output_tokens = event["usage"]["completion_tokens"]
    assert output_tokens == 10 and text


def test_open_webui(tiny):
    assert tiny.get("/v1/models", headers={"Authorization": "Bearer "}).json()["data"][0]["id"] == "tiny"
    events = tiny.events("/v1/chat/completions", {
        "model": "tiny", "messages": [{"role": "user", "content": "Hello!"}], "temperature": 0.8, "top_p": 0.9, "max_tokens": 16.0,
        "stop": ["###"], "logit_bias": {}, "stream_options": {"include_usage": True}, "chat_id": "x", "metadata": {"a": {}},
        "stream_response": True}, headers={"X-OpenWebUI-User-Name": "a", "Cookie": "token=x"})
    assert events[-1] == "[DONE]"


def test_browser_preflight_without_origins_is_harmless(tiny):
    reply = tiny.request("OPTIONS", "/v1/chat/completions", headers={"Origin": "https://x", "Access-Control-Request-Method": "POST"})
    assert reply.status == 204 and reply.headers.get("Access-Control-Allow-Origin") is None
