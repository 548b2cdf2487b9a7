"""docs/openapi.json says what the server does: routes, fields, ranges, replies."""
import json
import re

import jsonschema
import pytest

from conftest import TINY
from openapi import DOCUMENT, ROOT, SCHEMAS, assert_valid, operations
from running_server import RunningServer

BODIES = {"ChatRequest": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2},
          "CompletionRequest": {"prompt": "Hi", "max_tokens": 2},
          "TokenizeRequest": {"prompt": "Hi"}, "DetokenizeRequest": {"tokens": [1]}}
ROUTES = {"ChatRequest": "/v1/chat/completions", "CompletionRequest": "/v1/completions", "TokenizeRequest": "/tokenize",
          "DetokenizeRequest": "/detokenize"}
FIELDS = [(request, field) for request in BODIES for field in SCHEMAS[request]["properties"]]


def test_the_document_is_openapi():
    assert DOCUMENT["openapi"].startswith("3.1")
    for name, schema in SCHEMAS.items():
        jsonschema.Draft202012Validator.check_schema(schema)
        for target in re.findall(r'"#/components/schemas/(\w+)"', json.dumps(schema)):
            assert target in SCHEMAS, f"{name} refers to {target}"


def test_routes_are_those_of_the_sources():
    """Both ways: a route that is not documented, and one that is gone."""
    found = set()
    for name in ("operations_routes.cc", "tokenizer_routes.cc"):
        text = (ROOT / "server" / "http" / name).read_text()
        found |= set(re.findall(r'"(GET|POST)", "(/[^"]*)"', text))
    text = (ROOT / "server" / "http" / "openai_routes.cc").read_text()
    found |= {("POST", path) for path in re.findall(r'post\("(/[^"]+)"', text)}
    prefixes = re.search(r"prefix : \{(.*?)\}", text).group(1)
    for prefix in re.findall(r'"(/[^"]+)"', prefixes):
        found |= {("GET", prefix), ("GET", prefix + "/{id}")}
    assert found == {(method, path) for method, path, _ in operations()}


def test_fields_are_those_of_the_sources():
    """Whatever the sources read by name is in a schema."""
    documented = {field for request in BODIES for field in SCHEMAS[request]["properties"]}
    documented |= set(SCHEMAS["CertificateRequest"]["properties"]) | {"include_usage", "continuous_usage_stats"}
    read = set()
    for name in ("http/openai_request.cc", "http/tokenizer_routes.cc", "service/sampling_fields.cc"):
        text = (ROOT / "server" / name).read_text()
        read |= set(re.findall(r'(?:fields|inner)\.(?:boolean|integer|number|string|strings|seed|token_ids|object|array|find)\("(\w+)"', text))
    assert read and read <= documented, read - documented


@pytest.mark.parametrize("method, path, operation", [pytest.param(*row, id=f"{row[0]} {row[1]}") for row in operations()])
def test_routes_answer(tiny, method, path, operation):
    path = path.replace("{id}", "tiny")
    other = tiny.request("POST" if method == "GET" else "GET", path, "{}" if method == "GET" else None)
    assert other.status == 405 and method in other.headers["Allow"]
    assert_valid(other.json(), "Error")
    if method == "POST":
        reply = tiny.post(path, "{")
        assert reply.status == 400
        return assert_valid(reply.json(), "Error")
    reply = tiny.get(path)
    content = operation["responses"]["200"]["content"]
    assert reply.status == 200 and reply.headers["Content-Type"].split(";")[0] in content
    if "application/json" in content:
        assert_valid(reply.json(), content["application/json"]["schema"]["$ref"].rsplit("/", 1)[1])


def test_keys_are_needed_where_the_document_says_so(random_folder):
    with RunningServer(random_folder, "--load-format", "dummy", "--kv-cache-memory", "16MiB", "--api-key", "k") as server:
        for method, path, operation in operations():
            reply = server.request(method, path.replace("{id}", "x"), "{}" if method == "POST" else None)
            assert (reply.status == 401) == (operation.get("security") != []), (method, path, reply.status)
            if reply.status >= 400:
                assert_valid(reply.json(), "Error")


def wrong_value(schema):
    """A value of a type that the field does not take."""
    text = json.dumps(schema)
    return 5 if '"string"' in text or '"object"' in text or '"array"' in text or '"boolean"' in text or "enum" in schema else "x"


@pytest.mark.parametrize("request_name, field", FIELDS)
def test_each_field_is_read(tiny, request_name, field):
    """The wrong type is refused by name, null is as if absent."""
    schema, body = SCHEMAS[request_name]["properties"][field], BODIES[request_name]
    if "$ref" in schema:
        schema = SCHEMAS[schema["$ref"].rsplit("/", 1)[1]]
    reply = tiny.post(ROUTES[request_name], {**body, field: wrong_value(schema)})
    if request_name == "TokenizeRequest" and field not in body:  # read only with messages
        chat = {"messages": [{"role": "user", "content": "Hi"}], field: wrong_value(schema)}
        reply = reply if reply.status == 400 else tiny.post("/tokenize", chat)
    assert reply.status == 400 and reply.error["param"].split("[")[0] == field, reply.body
    assert_valid(reply.json(), "Error")
    if field not in body:
        assert tiny.post(ROUTES[request_name], {**body, field: None}).status == 200


@pytest.mark.parametrize("request_name, field", [(request, field) for request, field in FIELDS
                                                 if {"minimum", "maximum"} & set(SCHEMAS[request]["properties"][field])])
def test_ranges_end_where_the_document_says(tiny, request_name, field):
    schema = SCHEMAS[request_name]["properties"][field]
    step = 1 if schema["type"] == "integer" else 0.001
    route, body = ROUTES[request_name], BODIES[request_name]
    outside = [schema[key] + sign * step for key, sign in (("minimum", -1), ("maximum", 1)) if key in schema]
    outside += [schema[key] for key in ("exclusiveMinimum",) if key in schema]
    for value in outside:
        reply = tiny.post(route, {**body, field: value})
        assert reply.status == 400 and reply.error["param"] == field, (value, reply.body)
    inside = {"max_tokens": {"echo": True}, "min_tokens": {}, "best_of": {}, "n": {}, "top_logprobs": {"logprobs": True}}
    if "minimum" in schema:
        value = {**body, **inside.get(field, {}), field: schema["minimum"]}
        if request_name == "ChatRequest" and field == "max_tokens":
            return  # 0 is for echo, which conversations do not have
        assert tiny.post(route, value).status == 200, value


@pytest.mark.parametrize("more", [
    {}, {"n": 2}, {"stop": ["e"]}, {"return_token_ids": True}, {"certificate": {"report": True}}, {"min_tokens": 2, "ignore_eos": True}])
def test_replies_are_as_documented(tiny, more):
    chat = {"messages": [{"role": "user", "content": "Name a colour."}], "max_tokens": 6, "logprobs": True, "top_logprobs": 2, **more}
    text = {"prompt": ["One", "Two"], "max_tokens": 6, "logprobs": 2, "echo": True, **more}
    for route, body, whole, chunk in (("/v1/chat/completions", chat, "Chat", "ChatChunk"),
                                      ("/v1/completions", text, "Completion", "CompletionChunk")):
        for fields in (body, {key: value for key, value in body.items() if "logprobs" not in key}):
            reply = tiny.post(route, fields)
            assert reply.status == 200, reply.body
            assert_valid(reply.json(), whole)
            events = tiny.events(route, {**fields, "stream_options": {"include_usage": True, "continuous_usage_stats": True}})
            for event in events[:-1]:
                assert_valid(event, chunk)


def test_other_replies_are_as_documented(tiny):
    assert_valid(tiny.post("/tokenize", {"prompt": "Hi", "return_prompt": True}).json(), "Tokens")
    assert_valid(tiny.post("/tokenize", BODIES["ChatRequest"]).json(), "Tokens")
    assert_valid(tiny.post("/detokenize", {"tokens": [5, 6]}).json(), "Text")


def test_a_compressed_pools_certificate_is_as_documented():
    with RunningServer(TINY, "--kv-pool", "certified") as server:
        reply = server.post("/v1/completions", {**BODIES["CompletionRequest"], "certificate": {"report": True}})
        assert_valid(reply.json(), "Completion")


def test_usage_never_runs_ahead_of_its_chunk(tiny):
    body = {"prompt": "One", "max_tokens": 40, "ignore_eos": True, "return_token_ids": True, "n": 2, "temperature": 1, "seed": 3,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    sent = 0
    for event in tiny.events("/v1/completions", body)[:-1]:
        sent += sum(len(choice["token_ids"]) for choice in event["choices"])
        assert event["usage"]["completion_tokens"] == sent
    assert sent == 80
