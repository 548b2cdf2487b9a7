"""Completions of a scripted model, whose every token is known: text, stops, streaming shape, limits. Case numbers: the case list."""
import json

import pytest

from running_server import RunningServer
from scripted_model import TURN_END

PEPPER = "\u010f\U0001F336"


def stream_text(server, prompt, **fields):
    events = server.events("/v1/completions", {"prompt": prompt, "temperature": 0, "max_tokens": 64, **fields})
    assert events[-1] == "[DONE]"
    chunks = [event for event in events[:-1] if event["choices"]]
    finishes = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert all(finish is None for finish in finishes[:-1]) and finishes[-1] is not None
    return "".join(chunk["choices"][0]["text"] for chunk in chunks), finishes[-1], chunks


def both_ways(server, prompt, **fields):
    """Text and finish reason; asserts that streaming says the same."""
    choice = server.complete(prompt, **fields)
    text, finish, _ = stream_text(server, prompt, **fields)
    assert (text, finish) == (choice["text"], choice["finish_reason"])
    return text, finish


def test_script_and_end_token(scripted):
    assert both_ways(scripted, "A") == ("alpha beta gamma", "stop")


def test_case_15_characters_split_over_tokens(scripted):
    text, _, chunks = stream_text(scripted, "B")
    assert text == PEPPER
    assert not any("\ufffd" in chunk["choices"][0]["text"] for chunk in chunks)


def test_case_16_stream_ends_inside_a_character(scripted):
    assert both_ways(scripted, "B", max_tokens=4) == ("\u010f\ufffd", "length")


@pytest.mark.parametrize("prompt, stop, text", [
    ("A", ["beta gamma"], "alpha "), ("D", ["lo"], "do"), ("D", "r s", "dolo"), ("A", ["gamma", "a b"], "alph")])
def test_case_20_stop_strings_over_tokens(scripted, prompt, stop, text):
    assert both_ways(scripted, prompt, stop=stop) == (text, "stop")


def test_stop_string_can_stay_in_the_output(scripted):
    assert both_ways(scripted, "A", stop=["beta"], include_stop_str_in_output=True) == ("alpha beta", "stop")


def test_case_21_held_back_tail_is_released(scripted):
    assert both_ways(scripted, "E", stop=["\n"]) == ("...Mars?", "stop")
    assert both_ways(scripted, "E", stop=["\nmore and more"]) == ("...Mars?\nmore", "stop")
    assert both_ways(scripted, "E", stop=["?\nmore!"], max_tokens=3) == ("...Mars?", "length")


def test_case_23_nothing_is_held_back_without_a_match(scripted):
    _, _, chunks = stream_text(scripted, "F", stop=["ZZZZZZZZZZZZZZZZZZZZ"], max_tokens=5)
    assert [chunk["choices"][0]["text"] for chunk in chunks if chunk["choices"][0]["text"]] == \
        ["one ", "two ", "three ", "four ", "five "]


@pytest.mark.parametrize("stop, status", [("", 400), ([""], 400), ([], 200), (None, 200), ("x", 200), (list("uvwxyz"), 200),
                                          ([1], 400), ({}, 400)])
def test_case_24_odd_stop_values(scripted, stop, status):
    reply = scripted.post("/v1/completions", {"prompt": "A", "stop": stop, "temperature": 0})
    assert reply.status == status
    if status == 200:
        assert reply.json()["choices"][0]["text"] == "alpha beta gamma"
    else:
        assert reply.error["param"] == "stop"


def test_case_25_stop_that_is_a_special_token(scripted):
    choice = scripted.complete("A", stop=["<|im_end|>"], ignore_eos=True)
    assert (choice["text"], choice["finish_reason"]) == ("alpha beta gamma", "stop")
    shown = scripted.complete("A", skip_special_tokens=False, ignore_eos=True, max_tokens=4)
    assert shown["text"] == "alpha beta gamma<|im_end|>"


def test_stop_token_ids_and_return_token_ids(scripted):
    plain = scripted.complete("A", return_token_ids=True)
    assert plain["prompt_token_ids"] == [65]
    assert plain["token_ids"][-1] == TURN_END
    second = plain["token_ids"][1]
    choice = scripted.complete("A", stop_token_ids=[second])
    assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == ("alpha", "stop", second)


def test_case_29_finish_reason_length(scripted):
    assert both_ways(scripted, "F", max_tokens=6) == ("one two three four five six ", "length")


def test_min_tokens_and_ignore_eos_give_exact_lengths(scripted):
    reply = scripted.post("/v1/completions", {"prompt": "A", "ignore_eos": True, "max_tokens": 20, "temperature": 0})
    assert reply.json()["usage"]["completion_tokens"] == 20
    reply = scripted.post("/v1/completions", {"prompt": "A", "min_tokens": 10, "max_tokens": 10, "temperature": 0})
    assert reply.json()["usage"]["completion_tokens"] == 10


def test_case_30_usage_rides_alone(scripted):
    events = scripted.events("/v1/completions", {"prompt": "A", "temperature": 0, "stream_options": {"include_usage": True}})
    assert events[-1] == "[DONE]" and events[-2]["choices"] == []
    assert events[-2]["usage"]["prompt_tokens"] == 1 and events[-2]["usage"]["completion_tokens"] == 4
    assert events[-2]["usage"]["total_tokens"] == 5
    assert all(not event.get("usage") for event in events[:-2])
    without = scripted.events("/v1/completions", {"prompt": "A", "temperature": 0})
    assert all(event["choices"] for event in without[:-1])


def test_case_32_continuous_usage(scripted):
    events = scripted.events("/v1/completions", {"prompt": "A", "temperature": 0, "stream_options": {
        "include_usage": True, "continuous_usage_stats": True, "unknown_key": 1}})
    counts = [event["usage"]["completion_tokens"] for event in events[:-1]]
    assert counts == sorted(counts) and counts[-1] == 4


def test_case_34_n_streamed(scripted):
    events = scripted.events("/v1/completions", {"prompt": "A", "n": 3, "temperature": 0,
                                                 "stream_options": {"include_usage": True}})
    texts, finishes = [""] * 3, [[], [], []]
    for event in events[:-2]:
        for choice in event["choices"]:
            texts[choice["index"]] += choice["text"]
            if choice["finish_reason"]:
                finishes[choice["index"]].append(choice["finish_reason"])
    assert texts == ["alpha beta gamma"] * 3 and finishes == [["stop"]] * 3
    assert events[-2]["usage"]["prompt_tokens"] == 1 and events[-2]["usage"]["completion_tokens"] == 12


def test_case_36_completion_logprobs(scripted):
    chosen_only = scripted.complete("A", logprobs=0)["logprobs"]
    assert all(len(top) == 1 for top in chosen_only["top_logprobs"])
    five = scripted.complete("A", logprobs=5)["logprobs"]
    assert five["tokens"][:3] == ["alpha", " beta", " gamma"]
    assert five["text_offset"][:3] == [0, 5, 10]
    for token, logprob, top in zip(five["tokens"], five["token_logprobs"], five["top_logprobs"]):
        assert len(top) >= 5 and top[token] == logprob <= 0
    assert scripted.complete("A")["logprobs"] is None


@pytest.mark.parametrize("fields", [{"logprobs": 1000000}, {"logprobs": -1}, {"logprobs": True}, {"logprobs": "5"}])
def test_case_37_too_many_logprobs(scripted, fields):
    reply = scripted.post("/v1/completions", {"prompt": "A", **fields})
    assert (reply.status, reply.error["param"]) == (400, "logprobs")
    scripted.assert_alive()


@pytest.mark.parametrize("max_tokens", [0, 1])
@pytest.mark.parametrize("more", [{}, {"top_k": 1, "temperature": 1}])
def test_case_39_echo_with_logprobs(scripted, max_tokens, more):
    """The exact shape lm-eval reads: [ctxlen:-1] with one generated token behind the prompt."""
    choice = scripted.complete("xyzA", echo=True, logprobs=1, max_tokens=max_tokens, **more)
    expected = ["x", "y", "z", "A"] + ["alpha"] * max_tokens
    logprobs = choice["logprobs"]
    assert logprobs["tokens"] == expected and choice["text"] == "".join(expected)
    assert logprobs["text_offset"] == [0, 1, 2, 3, 4][:len(expected)]
    assert logprobs["token_logprobs"][0] is None and logprobs["top_logprobs"][0] is None
    assert all(value < 0 for value in logprobs["token_logprobs"][1:4])
    assert {len(values) for values in logprobs.values()} == {len(expected)}
    # "y" follows "x" with a far lower probability than "x" itself, which this model repeats.
    assert logprobs["top_logprobs"][1]["x"] > logprobs["token_logprobs"][1]
    if max_tokens:
        assert logprobs["token_logprobs"][4] > -0.01


def test_case_39_echo_streamed(scripted):
    events = scripted.events("/v1/completions", {"prompt": "xyA", "echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0})
    tokens = sum((event["choices"][0]["logprobs"]["tokens"] for event in events[:-1] if event["choices"][0]["logprobs"]), [])
    assert tokens == ["x", "y", "A", "alpha"]
    assert "".join(event["choices"][0]["text"] for event in events[:-1]) == "xyAalpha"


def test_case_41_several_prompts(scripted):
    reply = scripted.post("/v1/completions", {"prompt": ["A", "xD"], "n": 2, "logprobs": 1, "temperature": 0}).json()
    assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2, 3]
    assert [choice["text"] for choice in reply["choices"]] == ["alpha beta gamma"] * 2 + ["dolor sit"] * 2
    assert all(choice["logprobs"]["tokens"] for choice in reply["choices"])
    assert reply["usage"]["prompt_tokens"] == 3 and reply["usage"]["completion_tokens"] == 16


def test_case_42_framing(scripted):
    reply = scripted.post("/v1/completions", {"prompt": "E", "temperature": 0, "stream": True})
    assert reply.headers["X-Accel-Buffering"] == "no" and reply.headers["Cache-Control"] == "no-cache"
    assert reply.headers.get("Content-Encoding") is None
    blocks = reply.body.decode("utf-8").split("\n\n")
    assert blocks[-1] == "" and blocks[-2] == "data: [DONE]"
    for block in blocks[:-2]:
        assert block.startswith("data: ") and "\n" not in block
        json.loads(block[6:])


@pytest.mark.parametrize("value, status", [(None, 200), (5, 200), (5.0, 200), (0, 400), (-1, 400), ("256", 400), (2.5, 400),
                                           (2**63, 400), (True, 400), (10**9, 200)])
def test_case_45_max_tokens(scripted, value, status):
    reply = scripted.post("/v1/completions", {"prompt": "A", "max_tokens": value, "temperature": 0})
    assert reply.status == status
    if status == 400:
        assert reply.error["param"] == "max_tokens"


def test_case_45_default_is_16_for_completions_and_the_context_for_chat(scripted):
    assert scripted.post("/v1/completions", {"prompt": "F", "temperature": 0}).json()["usage"]["completion_tokens"] == 16
    chat = {"messages": [{"role": "user", "content": "x"}], "temperature": 0, "max_completion_tokens": 7, "max_tokens": 3,
            "ignore_eos": True}
    assert scripted.post("/v1/chat/completions", chat).json()["usage"]["completion_tokens"] == 7


@pytest.mark.parametrize("prompt", ["", [""], [], [[]]])
def test_case_46_empty_prompts(scripted, prompt):
    reply = scripted.post("/v1/completions", {"prompt": prompt})
    assert (reply.status, reply.error["param"]) == (400, "prompt")
    assert "empty" in reply.error["message"]


@pytest.mark.parametrize("prompt, status", [
    ([1, 2, 65], 200), ([[1, 2], [65]], 200), ([-1], 400), ([[-1]], 400), ([100000], 400), ([5279552648203111001], 400),
    ([1.5], 400), (["a", 1], 400), ([2**64], 400), (5, 400), ({}, 400), ([["a"]], 400)])
def test_case_47_token_prompts(scripted, prompt, status):
    reply = scripted.post("/v1/completions", {"prompt": prompt, "max_tokens": 2, "temperature": 0})
    assert reply.status == status
    if status == 400:
        assert reply.error["param"] == "prompt"
    scripted.assert_alive()


def test_context_limit_has_the_code_clients_look_for(scripted):
    reply = scripted.post("/v1/completions", {"prompt": "x" * 5000})
    assert (reply.status, reply.error["code"]) == (400, "context_length_exceeded")
    assert "4096" in reply.error["message"] and "5000" in reply.error["message"]


def test_logit_bias_forces_a_token_and_bad_ids_are_refused(scripted):
    assert scripted.complete("A", logit_bias={"90": 100}, max_tokens=3)["text"] == "ZZZ"
    for bias in [{"100000": 1}, {"-1": 1}, {"x": 1}, {"5": 101}, {"5": "1"}, [1]]:
        reply = scripted.post("/v1/completions", {"prompt": "A", "logit_bias": bias})
        assert (reply.status, reply.error["param"]) == (400, "logit_bias")
    scripted.assert_alive()


def test_best_of(scripted):
    reply = scripted.post("/v1/completions", {"prompt": "A", "best_of": 3, "n": 1, "temperature": 0}).json()
    assert len(reply["choices"]) == 1 and reply["choices"][0]["logprobs"] is None
    assert reply["usage"]["completion_tokens"] == 12
    assert scripted.post("/v1/completions", {"prompt": "A", "best_of": 2, "stream": True}).error["param"] == "best_of"


@pytest.fixture(scope="module")
def exact_pool(scripted_folder):
    with RunningServer(scripted_folder, "--kv-pool", "exact") as server:
        yield server


def test_certificate_of_the_exact_pool(exact_pool):
    scripted = exact_pool
    body = {"prompt": "A", "temperature": 0, "certificate": {"report": True, "tau": 0.1, "policy": "exact"}}
    report = scripted.post("/v1/completions", body).json()["certificate"]
    assert report["pool"] == "exact" and report["certified"] is True and report["tau"] == 0.1
    assert report["cells"]["decode"]["exact"] == 1 * 2 * 3  # layers, heads, decode steps (the first token is of the prefill)
    streamed = scripted.events("/v1/completions", body)
    assert streamed[-2]["choices"] == [] and streamed[-2]["certificate"] == report
    for wrong, param in [({"tua": 1}, "certificate.tua"), ({"tau": 0.5}, "certificate.tau"), ({"delta": 0.5}, "certificate.delta"),
                         ({"policy": "hope"}, "certificate.policy"), ({"tau": "0.1"}, "certificate.tau")]:
        reply = scripted.post("/v1/completions", {"prompt": "A", "certificate": wrong})
        assert (reply.status, reply.error["param"]) == (400, param)
