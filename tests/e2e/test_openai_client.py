"""The official OpenAI Python client, unmodified."""
import asyncio

import openai
import pytest

from running_server import DUMMY, RunningServer, eventually

MESSAGES = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def client(tiny):
    with openai.OpenAI(base_url=tiny.url + "/v1", api_key="EMPTY", max_retries=0) as client:
        yield client


def test_models(client):
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").id == "tiny"


def test_chat_and_stream_agree(client):
    fields = dict(model="tiny", messages=MESSAGES, temperature=0, max_tokens=32)
    whole = client.chat.completions.create(**fields)
    assert "Paris" in whole.choices[0].message.content and whole.choices[0].finish_reason == "stop"
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    chunks = list(client.chat.completions.create(**fields, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == whole.choices[0].message.content
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_the_stream_helper(client):
    with client.chat.completions.stream(model="tiny", messages=MESSAGES, temperature=0, max_tokens=32, logprobs=True, n=2) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert len(final.choices) == 2 and all("Paris" in choice.message.content for choice in final.choices)


def test_n_seed_and_logprobs(client):
    story = [{"role": "user", "content": "Tell me a story."}]
    fields = dict(model="tiny", messages=story, temperature=2, max_tokens=12, seed=5, n=3, logprobs=True, top_logprobs=3)
    first, second = (client.chat.completions.create(**fields) for _ in range(2))
    assert [choice.index for choice in first.choices] == [0, 1, 2]
    assert [choice.message.content for choice in first.choices] == [choice.message.content for choice in second.choices]
    assert len({choice.message.content for choice in first.choices}) > 1
    assert all(len(token.top_logprobs) == 3 for token in first.choices[0].logprobs.content)


def test_completions_echo_and_lists(client):
    reply = client.completions.create(model="tiny", prompt=["The sea", "The hill"], max_tokens=1, temperature=0, echo=True, logprobs=1)
    assert reply.choices[0].text.startswith("The sea") and reply.choices[1].text.startswith("The hill")
    assert reply.choices[0].logprobs.token_logprobs[0] is None


def test_errors_have_their_classes(client):
    with pytest.raises(openai.BadRequestError) as bad:
        client.chat.completions.create(model="tiny", messages=MESSAGES, temperature=5)
    assert bad.value.param == "temperature" and bad.value.type == "invalid_request_error"
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="nope", messages=MESSAGES)
    assert missing.value.code == "model_not_found" and missing.value.request_id
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="tiny", messages=MESSAGES, tools=[{"type": "function", "function": {"name": "f"}}])


def test_authentication_error(scripted_folder):
    with RunningServer(scripted_folder, "--api-key", "right") as server:
        with pytest.raises(openai.AuthenticationError):
            openai.OpenAI(base_url=server.url + "/v1", api_key="wrong", max_retries=0).models.list()
        assert openai.OpenAI(base_url=server.url + "/v1", api_key="right").models.list().data


def test_retries_after_429(random_folder):
    """A full queue answers 429 with Retry-After; the client's own retry then succeeds."""
    with RunningServer(random_folder, *DUMMY, "--seed", "1", "--max-num-seqs", "1", "--max-num-queued-reqs", "1") as server:
        base = dict(model="random", prompt="abc", temperature=1, seed=1, extra_body={"ignore_eos": True})

        async def flood():
            impatient = openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="x", max_retries=0)
            patient = openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="x", max_retries=8)
            outcomes = await asyncio.gather(*(impatient.completions.create(**base, max_tokens=4000) for _ in range(12)),
                                            return_exceptions=True)
            later = await asyncio.gather(*(patient.completions.create(**base, max_tokens=20) for _ in range(4)))
            return outcomes, later

        outcomes, later = asyncio.run(flood())
        refused = [outcome for outcome in outcomes if isinstance(outcome, openai.RateLimitError)]
        assert refused and len(refused) < 12
        assert int(refused[0].response.headers["retry-after"]) >= 1
        assert len({reply.choices[0].text for reply in later}) == 1
        assert server.metric("assay_requests_rejected_total", reason="queue_full") >= len(refused)


def test_async_streams_side_by_side(tiny):
    async def one(client):
        text = ""
        stream = await client.chat.completions.create(model="tiny", messages=MESSAGES, temperature=0, max_tokens=32, stream=True)
        async for chunk in stream:
            text += chunk.choices[0].delta.content or ""
        return text

    async def many():
        async with openai.AsyncOpenAI(base_url=tiny.url + "/v1", api_key="x") as client:
            return await asyncio.gather(*(one(client) for _ in range(16)))

    texts = asyncio.run(many())
    assert len(set(texts)) == 1 and "Paris" in texts[0]


def test_leaving_a_stream_cancels(random_model):
    client = openai.OpenAI(base_url=random_model.url + "/v1", api_key="x")
    stream = client.completions.create(model="random", prompt="a", max_tokens=100000, stream=True, extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()
    eventually(random_model.idle)
