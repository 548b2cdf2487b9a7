"""Sampling through the API: seeds, batches, hot random models, penalties."""
import concurrent.futures

import pytest

from running_server import DUMMY, RunningServer


def texts(server, **fields):
    reply = server.post("/v1/completions", {"prompt": "abc", "max_tokens": 24, "ignore_eos": True, "temperature": 1.0, **fields})
    assert reply.status == 200, reply.body
    return [choice["text"] for choice in reply.json()["choices"]]


def test_case_59_seeds(random_model):
    alone = texts(random_model, seed=42)
    assert texts(random_model, seed=42) == alone and texts(random_model, seed=43) != alone
    three = texts(random_model, seed=42, n=3)
    assert texts(random_model, seed=42, n=3) == three and len(set(three)) == 3
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        noise = [pool.submit(texts, random_model, prompt=f"noise {i}") for i in range(12)]
        seeded = [pool.submit(texts, random_model, seed=42) for _ in range(4)]
        assert all(future.result() == alone for future in seeded)
        [future.result() for future in noise]


@pytest.mark.parametrize("seed, status", [(0, 200), (-1, 200), (2**63 - 1, 200), (2**64 - 1, 200), (2**64, 400), ("1", 400), (1.5, 400)])
def test_case_59_seed_values(random_model, seed, status):
    reply = random_model.post("/v1/completions", {"prompt": "a", "max_tokens": 2, "seed": seed})
    assert reply.status == status
    if status == 400:
        assert reply.error["param"] == "seed"


def test_case_59_no_seed_differs_between_requests_and_restarts(random_folder):
    seen = set()
    for _ in range(2):
        with RunningServer(random_folder, *DUMMY) as server:
            seen.update(texts(server)[0] for _ in range(3))
    assert len(seen) == 6


def test_case_17_hot_random_model_never_breaks_json(random_model):
    def one(i):
        stream = i % 2 == 0
        if stream:
            events = random_model.events("/v1/completions", {"prompt": "x", "temperature": 2, "ignore_eos": True, "max_tokens": 30,
                                                             "seed": i, "logprobs": 2})
            return "".join(event["choices"][0]["text"] for event in events[:-1])
        return texts(random_model, temperature=2, seed=i, max_tokens=30, logprobs=2)[0]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(len(text) > 0 for text in pool.map(one, range(200)))


def test_streams_equal_whole_replies_in_any_batch(random_model):
    """The same greedy request alone, streamed, and among others."""
    alone = random_model.complete("determinism", max_tokens=40, ignore_eos=True)["text"]

    def one(i):
        if i % 3 == 0:
            return random_model.complete("determinism", max_tokens=40, ignore_eos=True)["text"]
        if i % 3 == 1:
            events = random_model.events("/v1/completions", {"prompt": "determinism", "max_tokens": 40, "ignore_eos": True, "temperature": 0})
            return "".join(event["choices"][0]["text"] for event in events[:-1])
        random_model.complete("other " * i, max_tokens=20)
        return alone
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        assert set(pool.map(one, range(36))) == {alone}


def test_presence_penalty_and_bias_change_the_output(scripted):
    assert scripted.complete("x", max_tokens=4)["text"] == "xxxx"
    # The head's margin is about 17; a bias of -100 on the repeated token breaks the repetition.
    assert scripted.complete("x", max_tokens=4, logit_bias={"120": -100})["text"] != "xxxx"
    assert "x" in scripted.complete("x", max_tokens=4, repetition_penalty=1.5)["text"]


def test_priority_is_taken(random_model):
    assert random_model.post("/v1/completions", {"prompt": "a", "max_tokens": 1, "priority": -5}).status == 200
    assert random_model.post("/v1/completions", {"prompt": "a", "priority": "high"}).error["param"] == "priority"
