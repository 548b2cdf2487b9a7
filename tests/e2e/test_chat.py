"""Chat: templates, parts, streaming shape, what is refused by name; on scripted and bundled models."""
import pytest

from running_server import RunningServer
from scripted_model import CHATML, write_scripted_model

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


def chat(server, messages, **fields):
    return server.post("/v1/chat/completions", {"messages": messages, "temperature": 0, "max_tokens": 32, **fields})


def test_the_bundled_model_answers(tiny):
    reply = chat(tiny, QUESTION, model="tiny").json()
    assert "Paris" in reply["choices"][0]["message"]["content"]
    assert reply["choices"][0]["finish_reason"] == "stop" and reply["object"] == "chat.completion"


def test_case_33_the_role_comes_with_the_first_token(tiny):
    events = tiny.events("/v1/chat/completions", {"messages": QUESTION, "temperature": 0, "max_tokens": 32})
    first = events[0]["choices"][0]["delta"]
    assert first["role"] == "assistant" and first["content"]
    assert all("role" not in event["choices"][0]["delta"] for event in events[1:-1])
    text = "".join(event["choices"][0]["delta"].get("content", "") for event in events[:-1])
    assert text == chat(tiny, QUESTION).json()["choices"][0]["message"]["content"]
    assert len({event["id"] for event in events[:-1]}) == 1 and events[0]["object"] == "chat.completion.chunk"


def test_case_10_no_double_special_tokens(tiny):
    tokens = tiny.post("/tokenize", {"messages": QUESTION, "return_prompt": True}).json()
    assert tokens["count"] == len(tokens["tokens"]) == chat(tiny, QUESTION).json()["usage"]["prompt_tokens"]
    assert tokens["prompt"].startswith("<|im_start|>user\n") and tokens["prompt"].endswith("<|im_start|>assistant\n")


def test_case_36_chat_logprobs(tiny):
    content = chat(tiny, QUESTION, logprobs=True).json()["choices"][0]["logprobs"]["content"]
    assert content and all(entry["top_logprobs"] == [] for entry in content)
    content = chat(tiny, QUESTION, logprobs=True, top_logprobs=2).json()["choices"][0]["logprobs"]["content"]
    for entry in content:
        assert len(entry["top_logprobs"]) == 2 and entry["top_logprobs"][0]["logprob"] == entry["logprob"]
        assert bytes(entry["bytes"]).decode() == entry["token"]
    reply = chat(tiny, QUESTION, top_logprobs=2)
    assert (reply.status, reply.error["param"]) == (400, "top_logprobs")
    reply = chat(tiny, QUESTION, logprobs=True, top_logprobs=1000000)
    assert (reply.status, reply.error["param"]) == (400, "top_logprobs")


def test_case_64_parts(tiny):
    parts = [{"role": "user", "content": [{"type": "text", "text": "What is the capital"}, {"type": "text", "text": "of France?"}]}]
    prompt = tiny.post("/tokenize", {"messages": parts, "return_prompt": True}).json()["prompt"]
    assert "What is the capital\nof France?<|im_end|>" in prompt
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:x"}}]}]
    reply = chat(tiny, image)
    assert reply.status == 400 and "image_url" in reply.error["message"]


def test_continue_final_message(tiny):
    messages = [*QUESTION, {"role": "assistant", "content": "The capital of"}]
    fields = {"messages": messages, "add_generation_prompt": False, "continue_final_message": True, "return_prompt": True}
    assert tiny.post("/tokenize", fields).json()["prompt"].endswith("<|im_start|>assistant\nThe capital of")
    assert tiny.post("/tokenize", {**fields, "add_generation_prompt": True}).status == 400
    assert chat(tiny, messages, add_generation_prompt=False, continue_final_message=True).status == 200


@pytest.mark.parametrize("body, param", [
    ({"messages": "hi"}, "messages"), ({"messages": []}, "messages"), ({}, "messages"), ({"messages": [5]}, "messages[0]"),
    ({"messages": [{"content": "x"}]}, "messages[0].role"), ({"messages": QUESTION, "stream": "false"}, "stream"),
    ({"messages": QUESTION, "temperature": "0.7"}, "temperature"), ({"messages": QUESTION, "n": "2"}, "n"),
    ({"messages": QUESTION, "n": 0}, "n"), ({"messages": QUESTION, "n": 1000}, "n"),
    ({"messages": QUESTION, "top_p": 0}, "top_p"), ({"messages": QUESTION, "top_k": 1.5}, "top_k"),
    ({"messages": QUESTION, "min_p": 2}, "min_p"), ({"messages": QUESTION, "presence_penalty": 3}, "presence_penalty"),
    ({"messages": QUESTION, "repetition_penalty": 0}, "repetition_penalty"), ({"messages": QUESTION, "model": 7}, "model"),
    ({"messages": QUESTION, "stop_token_ids": [99999]}, "stop_token_ids"),
    ({"messages": QUESTION, "max_tokens": 4, "min_tokens": 5}, "min_tokens"),
    ({"messages": QUESTION, "chat_template_kwargs": 5}, "chat_template_kwargs")])
def test_case_52_wrong_types_and_ranges_are_named(tiny, body, param):
    reply = tiny.post("/v1/chat/completions", body)
    assert (reply.status, reply.error["param"]) == (400, param), reply.body
    assert reply.error["type"] == "invalid_request_error"


def test_case_54_unknown_fields_and_nulls(tiny):
    messages = [{"role": "developer", "content": "Be brief.", "id": 5, "opts": {}}, {**QUESTION[0], "name": None}]
    extra = {"metadata": {"a": "b"}, "store": True, "chat_id": "c", "reasoning_effort": "low", "cache_prompt": True, "user": "",
             "logit_bias": {}, "stop": None, "seed": None, "tools": [], "tool_choice": "none", "response_format": {"type": "text"},
             "parallel_tool_calls": True, "service_tier": "auto", "top_k": -1, "n": 1, "verbosity": "low", "logprobs": None}
    assert chat(tiny, messages, **extra).status == 200


def test_case_56_model_names(scripted):
    for name, status in [("scripted", 200), ("alias/with/slashes", 200), ("", 200), (None, 200), ("nope", 404)]:
        reply = scripted.post("/v1/completions", {"prompt": "A", "model": name})
        assert reply.status == status
    assert reply.error["code"] == "model_not_found"
    assert [model["id"] for model in scripted.get("/v1/models").json()["data"]] == ["scripted", "alias/with/slashes"]
    for path in ["/v1/models/alias/with/slashes", "/models/alias%2Fwith%2Fslashes", "/models", "/v1/models/"]:
        assert scripted.get(path).status == 200
    assert scripted.get("/v1/models/nope").status == 404


@pytest.mark.parametrize("value, status", [(0, 200), (1e-6, 200), (1e-4, 200), (2, 200), (2.01, 400), (1e15, 400), (-1, 400)])
def test_case_57_temperature(tiny, value, status):
    reply = chat(tiny, QUESTION, temperature=value)
    assert reply.status == status
    if status == 400:
        assert reply.error["param"] == "temperature"
    elif value < 1:
        assert "Paris" in reply.json()["choices"][0]["message"]["content"]


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "1e400"])
def test_case_57_numbers_that_are_none(tiny, literal):
    assert tiny.post("/v1/completions", f'{{"prompt": "a", "temperature": {literal}}}').status == 400


def test_case_62_template_errors_are_the_clients(tmp_path):
    strict = ("{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
              "{{ m.content }}{% endfor %}")
    write_scripted_model(tmp_path / "strict", [("A", [b"alpha"], 258)], chat_template=strict)
    with RunningServer(tmp_path / "strict") as server:
        reply = chat(server, [{"role": "system", "content": "x"}, {"role": "user", "content": "A"}])
        assert reply.status == 400 and "System role not supported" in reply.error["message"]
        assert chat(server, [{"role": "user", "content": "A"}]).json()["choices"][0]["message"]["content"] == "alpha"


def test_case_63_no_template_and_broken_template(tmp_path, scripted_folder):
    write_scripted_model(tmp_path / "plain", [("A", [b"alpha"], 258)], chat_template=None)
    with RunningServer(tmp_path / "plain") as server:
        assert chat(server, QUESTION).status == 400
        assert "template" in chat(server, QUESTION).error["message"]
        assert server.complete("A")["text"] == "alpha"
    (tmp_path / "good.jinja").write_text(CHATML)
    with RunningServer(tmp_path / "plain", "--chat-template", tmp_path / "good.jinja") as server:
        assert chat(server, QUESTION).status == 200
    (tmp_path / "broken.jinja").write_text("{% for x in %}")
    with RunningServer(scripted_folder, "--chat-template", tmp_path / "broken.jinja", wait=False) as server:
        assert server.process.wait(60) == 1
        assert "chat template cannot be used" in server.log


def test_case_67_tool_messages_in_the_history_are_rendered(tiny):
    messages = [*QUESTION,
                {"role": "assistant", "content": None, "tool_calls": [
                    {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]},
                {"role": "tool", "tool_call_id": "1", "content": "Paris"}]
    prompt = tiny.post("/tokenize", {"messages": messages, "return_prompt": True}).json()["prompt"]
    assert "<|im_start|>tool\nParis<|im_end|>" in prompt
    assert chat(tiny, messages).status == 200
    messages[1]["tool_calls"][0]["function"]["arguments"] = "not json"
    assert chat(tiny, messages).status == 400


@pytest.mark.parametrize("fields", [
    {"response_format": {"type": "json_object"}}, {"response_format": {"type": "json_schema", "json_schema": {"type": "notatype"}}},
    {"tools": [{"type": "function", "function": {"name": "f"}}]}, {"tool_choice": "required"}, {"guided_regex": "("},
    {"guided_json": {"$ref": "#"}}, {"structured_outputs": {"regex": "a"}}])
def test_case_68_unsupported_is_said_and_never_ignored(tiny, fields):
    reply = chat(tiny, QUESTION, **fields)
    assert reply.status == 400 and reply.error["param"] == next(iter(fields))
    assert "not supported" in reply.error["message"]
