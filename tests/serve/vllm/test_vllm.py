"""The backbone on a real vLLM, through a real Ray Serve."""

import asyncio
import io
import json
import time
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from PIL import Image

from vmem.errors import ImageError, ModelError, ModelTimeoutError, ModelUnavailableError
from vmem.ports import ChatReply, ChatRequest

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]

WAIT_S = 30
QUESTION = "Name the capital of Italy."
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Oslo"]}},
    "required": ["city"],
    "additionalProperties": False,
}


def picture(colour: str, size: int = 112) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (size, size), colour).save(buffer, "PNG")
    return buffer.getvalue()


def metric(running: Any, name: str) -> float:
    """The sum of a metric's series of one model; -1 where there is none yet."""
    with urllib.request.urlopen(f"http://127.0.0.1:{running.metrics_port}/metrics") as reply:
        lines = reply.read().decode().splitlines()
    mark = f'model_name="{running.chat.name}"'
    found = [line for line in lines if line.startswith(f"{name}{{") and mark in line]
    return sum(float(line.rsplit(" ", 1)[1]) for line in found) if found else -1.0


def wait_for(running: Any, name: str, holds: Callable[[float], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds(value := metric(running, name)):
        assert time.monotonic() < deadline, f"{name} stays at {value}"
        time.sleep(0.2)


def test_it_answers_and_counts(smollm2: Any) -> None:
    reply = smollm2.ask(QUESTION, max_tokens=16)
    assert "Rome" in reply.text
    assert reply.usage.prompt_tokens > smollm2.chat.count_tokens(QUESTION)
    assert 0 < reply.usage.completion_tokens <= 16
    smollm2.run(smollm2.chat.check())


def test_pieces_join_to_the_reply_that_comes_last(smollm2: Any) -> None:
    *pieces, last = smollm2.stream(QUESTION, max_tokens=12)
    assert isinstance(last, ChatReply)
    assert "".join(pieces) == last.text
    assert 2 < len(pieces) <= last.usage.completion_tokens
    whole = smollm2.ask(QUESTION, max_tokens=12)
    assert (last.text, last.usage, last.finish_reason) == (
        whole.text,
        whole.usage,
        whole.finish_reason,
    )


def test_the_first_piece_comes_while_the_rest_is_written(smollm2: Any) -> None:
    async def read() -> tuple[float, float, float]:
        request = ChatRequest(role="answer", prompt="Count to fifty in words.", max_tokens=48)
        started = time.perf_counter()
        seen = []
        async for _ in smollm2.chat.stream(request):
            seen.append(time.perf_counter() - started)
        return seen[0], seen[len(seen) // 2], seen[-1]

    first, middle, last = smollm2.run(read())
    assert first < middle < last
    assert first < last / 2, "pieces are passed on one by one, not at the end"


def test_a_reply_cut_short_says_so(smollm2: Any) -> None:
    reply = smollm2.ask("Count from one to one hundred in words.", max_tokens=5)
    assert (reply.finish_reason, reply.usage.completion_tokens) == ("length", 5)


@pytest.mark.parametrize("prompt", ["Where is the Colosseum?", "Where do Norwegians vote?"])
def test_a_reply_follows_its_schema(smollm2: Any, prompt: str) -> None:
    reply = smollm2.ask(prompt, max_tokens=24, json_schema=SCHEMA)
    assert json.loads(reply.text)["city"] in {"Rome", "Oslo"}
    *_, last = smollm2.stream(prompt, max_tokens=24, json_schema=SCHEMA)
    assert json.loads(last.text)["city"] in {"Rome", "Oslo"}


@pytest.mark.parametrize("way", ["ask", "stream"])
def test_a_prompt_over_the_window_is_one_sentence(smollm2: Any, way: str) -> None:
    ask = smollm2.ask if way == "ask" else smollm2.stream
    with pytest.raises(ModelError) as caught:
        ask("word " * 3_000)
    assert type(caught.value) is ModelError
    assert str(caught.value) == (
        "the prompt of the answer call is too long for model smollm2: lower answer.context_tokens"
    )


def test_tokens_are_counted_as_the_model_does(smollm2: Any) -> None:
    words = ["ship", "a ship of 1234 sails, naïve 北京 🙂"]
    costs = [smollm2.ask(word, max_tokens=1).usage.prompt_tokens for word in words]
    counts = [smollm2.chat.count_tokens(word) for word in words]
    assert costs[1] - costs[0] == counts[1] - counts[0] > 0


def test_a_name_that_is_not_served_is_refused(smollm2: Any) -> None:
    stranger = smollm2.with_settings(model="another")
    with pytest.raises(ModelError, match=r"model another is not known there: check llm\.model"):
        smollm2.run(stranger.complete(ChatRequest(role="answer", prompt="x")))


def test_calls_at_once_keep_apart(smollm2: Any) -> None:
    async def ask() -> list[ChatReply]:
        prompts = [f"Repeat the word {word}." for word in ("apple", "house", "river", "stone")] * 2
        calls = [ChatRequest(role="answer", prompt=each, max_tokens=12) for each in prompts]
        return await asyncio.gather(*(smollm2.chat.complete(call) for call in calls))

    replies = smollm2.run(ask())
    assert len(replies) == 8
    assert all(reply.usage.completion_tokens for reply in replies)


LONG = ChatRequest(role="answer", prompt="Tell a long story of a dog at sea.", max_tokens=900)
RUNNING, WRITTEN = "ray_vllm_num_requests_running", "ray_vllm_generation_tokens_total"


@pytest.mark.parametrize("way", ["complete", "stream"])
def test_a_reply_too_late_is_given_up_and_no_longer_written(smollm2: Any, way: str) -> None:
    async def ask() -> None:
        if way == "complete":
            await hasty.complete(LONG)
        async for _ in hasty.stream(LONG):
            pass

    async def give_up() -> None:
        asked = asyncio.create_task(ask())
        await asyncio.to_thread(wait_for, smollm2, RUNNING, lambda running: running == 1)
        with pytest.raises(
            ModelTimeoutError, match=r"gave no reply within 5 s: raise llm\.timeout"
        ):
            await asked

    hasty = smollm2.with_settings(timeout_s=5)
    written = max(0, metric(smollm2, WRITTEN))
    smollm2.run(give_up())
    wait_for(smollm2, RUNNING, lambda running: running == 0)
    assert metric(smollm2, WRITTEN) < written + LONG.max_tokens


def test_who_leaves_early_stops_the_writing(smollm2: Any) -> None:
    async def read_some() -> None:
        pieces = smollm2.chat.stream(LONG)
        assert isinstance(await anext(pieces), str)
        await asyncio.to_thread(wait_for, smollm2, RUNNING, lambda running: running == 1)
        await pieces.aclose()

    written = max(0, metric(smollm2, WRITTEN))
    smollm2.run(read_some())
    wait_for(smollm2, RUNNING, lambda running: running == 0)
    assert metric(smollm2, WRITTEN) < written + LONG.max_tokens


def test_pictures_are_read_and_cost_tokens(tiny_vl: Any) -> None:
    blind = tiny_vl.ask("What is this?", max_tokens=8)
    one, two = (
        tiny_vl.ask("What is this?", max_tokens=8, images=pictures)
        for pictures in ((picture("red"),), (picture("red"), picture("blue")))
    )
    each = (112 // 28) ** 2 + 2  # a token for each 28 pixels a side, between two marks
    assert one.usage.prompt_tokens == blind.usage.prompt_tokens + each
    assert two.usage.prompt_tokens == blind.usage.prompt_tokens + 2 * each
    *pieces, last = tiny_vl.stream("What is this?", max_tokens=8, images=(picture("red"),))
    assert ("".join(pieces), last.text, last.usage) == (one.text, one.text, one.usage)


def test_more_pictures_than_the_limit_are_refused(tiny_vl: Any) -> None:
    with pytest.raises(ModelError, match=r"model tiny-vl rejects the request \(HTTP 400\)"):
        tiny_vl.ask("What is this?", images=(picture("red"),) * 3)


def test_what_is_no_picture_and_what_cannot_see_are_refused_here(
    smollm2: Any, tiny_vl: Any
) -> None:
    with pytest.raises(ImageError, match="no known image format"):
        tiny_vl.ask("What is this?", images=(b"plain text",))
    with pytest.raises(ModelError, match="model smollm2 cannot see images"):
        smollm2.ask("What is this?", images=(picture("red"),))


@pytest.mark.parametrize(
    "name",
    [
        "ray_vllm_prompt_tokens_total",
        "ray_vllm_generation_tokens_total",
        "ray_vllm_time_to_first_token_seconds_count",
        "ray_vllm_inter_token_latency_seconds_count",
        "ray_vllm_e2e_request_latency_seconds_count",
    ],
)
def test_metrics_of_the_engine_are_on_rays_port(smollm2: Any, name: str) -> None:
    before = max(0, metric(smollm2, name))
    smollm2.ask(QUESTION, max_tokens=4)
    wait_for(smollm2, name, lambda value: value > before)


def test_without_a_replica_the_model_is_unavailable(  # the last: it takes the model away
    smollm2: Any,
) -> None:
    from ray import serve as ray_serve

    ray_serve.delete("smollm2")
    request = ChatRequest(role="answer", prompt="x")
    with pytest.raises(ModelUnavailableError):
        smollm2.run(smollm2.chat.complete(request))
    with pytest.raises(ModelUnavailableError):
        smollm2.run(smollm2.chat.check())
