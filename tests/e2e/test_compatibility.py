"""docs/compatibility.md, row by row: what is refused is refused by name, what is ignored changes nothing."""
import json
import re
import shutil

import pytest

from conftest import TINY
from openapi import ROOT, assert_valid
from test_command import run

ROWS = [(asked, here) for asked, here in re.findall(r"^\| .* \| `([^`]+)` \| (400|404|start|ignored) \|$",
                                                    (ROOT / "docs" / "compatibility.md").read_text(), re.MULTILINE)]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "notatype"}}}
REFUSED = {
    "tools": [TOOL], "tool_choice": "required", "functions": [TOOL["function"]], "function_call": {"name": "f"},
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}, "guided_json": SCHEMA,
    "guided_regex": "(", "guided_choice": ["a", "b"], "guided_grammar": "root ::= x", "structured_outputs": {"regex": "("},
    "grammar": "root ::= x", "ebnf": "root ::= x", "json_schema": SCHEMA, "regex": "(", "suffix": "after", "use_beam_search": True,
    "allowed_token_ids": [1], "bad_words": ["a"], "logits_processors": ["x"], "prompt_embeds": "AAAA", "prompt_logprobs": 1,
    "truncate_prompt_tokens": 5, "chat_template": "{{ messages }}", "documents": [{"title": "t", "text": "x"}],
    "modalities": ["text", "audio"], "audio": {"voice": "v", "format": "wav"}, "web_search_options": {"search_context_size": "low"},
    "typical_p": 0.5, "mirostat": 2, "dry_multiplier": 0.8, "xtc_probability": 0.5, "no_repeat_ngram_size": 3, "top_a": 0.2, "tfs_z": 0.9,
}
PARTS = {"image_url": {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
         "input_audio": {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}}
IGNORED = {
    "separate_reasoning": True, "reasoning_effort": "high", "verbosity": "low", "prediction": {"type": "content", "content": "x"},
    "parallel_tool_calls": True, "user": "u", "safety_identifier": "s", "metadata": {"a": "b"}, "store": True, "service_tier": "auto",
    "prompt_cache_key": "k", "no_such_field": {"x": [1]},
}
# The values that turn a feature off are no reason to refuse.
OFF = {"tools": [], "tool_choice": "auto", "functions": [], "function_call": "none", "response_format": {"type": "text"}, "suffix": "",
       "use_beam_search": False, "bad_words": [], "modalities": ["text"], "typical_p": 1, "mirostat": 0, "dry_multiplier": 0.0,
       "xtc_probability": 0, "no_repeat_ngram_size": 0, "top_a": 0, "tfs_z": 1.0, "guided_json": None, "documents": [],
       "prompt_logprobs": None}
CHAT = {"messages": [{"role": "user", "content": "Name a colour."}], "max_tokens": 6, "temperature": 0}
FLAGS = {"--enable-lora": [], "--quantization": ["awq"], "--speculative-config": ["{}"], "--tensor-parallel-size": ["2"],
         "--pipeline-parallel-size": ["2"]}
CONFIGS = {"quantization_config": {"quant_method": "awq"}, "architectures": ["MambaForCausalLM"],
           "sliding_window": 16}


def rows(here):
    return [asked for asked, what in ROWS if what == here]


def test_every_row_is_checked():
    assert sorted(rows("400")) == sorted([*REFUSED, *PARTS])
    assert sorted(rows("ignored")) == sorted(IGNORED)
    assert sorted(rows("start")) == sorted([*FLAGS, *CONFIGS, "some-org/some-model"])
    assert len(rows("404")) > 10


@pytest.mark.parametrize("field", REFUSED)
def test_what_would_change_the_answer_is_refused_by_name(tiny, field):
    for route, body in (("/v1/chat/completions", CHAT), ("/v1/completions", {"prompt": "a", "max_tokens": 1})):
        reply = tiny.post(route, {**body, field: REFUSED[field]})
        assert reply.status == 400 and reply.error["param"] == field and field in reply.error["message"], reply.body
        assert_valid(reply.json(), "Error")


@pytest.mark.parametrize("field", OFF)
def test_turned_off_is_fine(tiny, field):
    assert tiny.post("/v1/chat/completions", {**CHAT, field: OFF[field]}).status == 200


@pytest.mark.parametrize("part", PARTS)
def test_parts_that_are_not_text_are_refused(tiny, part):
    messages = [{"role": "user", "content": [{"type": "text", "text": "What is this?"}, PARTS[part]]}]
    reply = tiny.post("/v1/chat/completions", {**CHAT, "messages": messages})
    assert reply.status == 400 and reply.error["param"] == "messages[0].content[1]" and part in reply.error["message"], reply.body


@pytest.mark.parametrize("field", IGNORED)
def test_what_is_ignored_changes_nothing(tiny, field):
    expected = tiny.post("/v1/chat/completions", CHAT).json()["choices"]
    reply = tiny.post("/v1/chat/completions", {**CHAT, field: IGNORED[field]})
    assert reply.status == 200 and reply.json()["choices"] == expected


@pytest.mark.parametrize("route", rows("404"))
def test_routes_that_are_not_there(tiny, route):
    method, path = route.split()
    reply = tiny.request(method, path, json.dumps({"model": "tiny", "input": "x"}))
    assert reply.status == 404 and path in reply.error["message"]
    assert_valid(reply.json(), "Error")


def test_an_adapter_is_an_unknown_model(tiny):
    assert tiny.post("/v1/chat/completions", {**CHAT, "model": "my-adapter"}).error["code"] == "model_not_found"


@pytest.mark.parametrize("flag", FLAGS)
def test_flags_that_are_not_there_are_refused(flag):
    result = run("serve", TINY, "--port", "0", flag, *FLAGS[flag])
    assert result.returncode == 2 and flag in result.stderr, result.stderr


@pytest.mark.parametrize("field", CONFIGS)
def test_models_that_are_not_supported_are_refused_by_name(tmp_path, field):
    folder = shutil.copytree(TINY, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    more = {"architectures": ["MistralForCausalLM"], "model_type": "mistral"} if field == "sliding_window" else {}
    (folder / "config.json").write_text(json.dumps({**config, **more, field: CONFIGS[field]}))
    result = run("serve", folder, "--port", "0", "--grpc-port", "0")
    assert result.returncode == 1 and field in result.stderr, result.stderr


def test_a_hub_id_is_refused_with_advice():
    result = run("serve", "some-org/some-model")
    assert result.returncode == 2 and "huggingface-cli download" in result.stderr
