"""A metered client and an OpenAI-compatible server that misbehaves; processes that are killed."""

import asyncio
import email.utils
import json
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vmem.errors import VmemError
from vmem.llm.budget import SELF_HOSTED, Budget
from vmem.llm.cache import ReplyCache
from vmem.llm.ledger import Call, Ledger, read_ledger
from vmem.llm.metered import MeteredChat
from vmem.ports import ChatReply, ChatRequest

KINDS: dict[str, tuple[str, int]] = {
    # what the server does: how a call ends, and how often it is sent
    "good": ("ChatReply", 1),
    "busy seconds": ("ChatReply", 2),
    "busy date": ("ChatReply", 2),
    "busy always": ("ModelUnavailableError", 3),
    "busy for hours": ("ModelUnavailableError", 1),
    "500 once": ("ChatReply", 2),
    "503 always": ("ModelUnavailableError", 3),
    "cut once": ("ChatReply", 2),
    "cut always": ("ModelUnavailableError", 3),
    "silent once": ("ChatReply", 2),
    "silent always": ("ModelTimeoutError", 3),
    "400": ("ModelError", 1),
    "401": ("ModelUnusableError", 1),
    "broken json": ("ModelFormatError", 1),
    "no completion": ("ModelFormatError", 1),
    "odd completion": ("ModelFormatError", 1),
    "refusal": ("ModelFormatError", 1),
    "empty": ("ModelFormatError", 1),
}


def misbehaving(sent: Any, completed: Any, released: Any) -> Callable[[str, int], Any]:
    soon = email.utils.formatdate(time.time() + 1, usegmt=True)
    refusal = {"choices": [{"finish_reason": "stop", "message": {"refusal": "I will not"}}]}
    odd = {"choices": [{"finish_reason": 1, "message": {"content": [{"type": "text"}]}}]}

    def script(prompt: str, earlier: int) -> Any:
        kind = prompt.split("/")[0]
        if kind.endswith("once") and earlier:
            return completed("at last")
        return {
            "good": completed("Rome"),
            "busy seconds": completed("ok") if earlier else sent(429, b"{}", {"Retry-After": "1"}),
            "busy date": completed("ok") if earlier else sent(429, b"{}", {"Retry-After": soon}),
            "busy always": sent(429, b"{}"),
            "busy for hours": sent(429, b"{}", {"Retry-After": "7200"}),
            "500 once": sent(500, b"oops"),
            "503 always": sent(503, b"<html>"),
            "cut once": sent(body=None),
            "cut always": sent(body=None),
            "silent once": sent(wait=released, body=None),
            "silent always": sent(wait=released, body=None),
            "400": sent(400, b'{"error": {"message": "bad"}}'),
            "401": sent(401, b'{"error": {"message": "who"}}'),
            "broken json": sent(body=b'{"choices": ['),
            "no completion": sent(body=b'{"error": {"message": "boom"}}'),
            "odd completion": sent(body=json.dumps(odd).encode()),
            "refusal": sent(body=json.dumps(refusal).encode()),
            "empty": completed(""),
        }[kind]

    return script


def metered(folder: Path, chat: Any, **values: Any) -> MeteredChat:
    return MeteredChat(
        chat,
        ReplyCache(folder / "replies.sqlite3"),
        ledger=Ledger(folder / "ledger.jsonl"),
        **{
            "server": "scripted",
            "concurrency": 12,
            "budget": Budget(),
            "price": SELF_HOSTED,
            **values,
        },
    )


async def ask_all(model: MeteredChat, prompts: list[str]) -> list[Any]:
    asks = [model.complete(ChatRequest(role="answer", prompt=prompt)) for prompt in prompts]
    results = await asyncio.gather(*asks, return_exceptions=True)
    await model.close()
    model._cache.close()
    model._ledger.close()
    return results


def lines(folder: Path) -> list[Call]:
    calls, broken = read_ledger(folder / "ledger.jsonl")
    assert broken == 0
    return calls


def test_every_call_ends_as_a_reply_or_an_error_of_ours(
    tmp_path: Path, scripted_server: Any, sent: Any, completed: Any
) -> None:
    scripted_server.script = misbehaving(sent, completed, scripted_server.released)
    prompts = [f"{kind}/{number}" for kind in KINDS for number in range(2)]
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    def chat(**settings: Any) -> Any:
        chat = scripted_server.chat(**settings)
        chat._sleep = pause
        return chat

    async def run(attempts: int) -> list[Any]:
        """What must not time out on a busy machine has a minute."""
        silent = [prompt for prompt in prompts if prompt.startswith("silent")]
        others = [prompt for prompt in prompts if prompt not in silent]
        asked = await asyncio.gather(
            ask_all(metered(tmp_path, chat(attempts=attempts, timeout_s=60)), others),
            ask_all(metered(tmp_path, chat(attempts=attempts, timeout_s=1)), silent),
        )
        by_prompt = dict(zip(others + silent, asked[0] + asked[1], strict=True))
        return [by_prompt[prompt] for prompt in prompts]

    results = asyncio.run(run(attempts=3))
    assert all(isinstance(result, ChatReply | VmemError) for result in results)
    ends = [type(result).__name__ for result in results]
    expected = [KINDS[prompt.split("/")[0]] for prompt in prompts]
    assert ends == [end for end, _ in expected]
    times = Counter(scripted_server.prompts)
    assert [times[prompt] for prompt in prompts] == [tries for _, tries in expected]
    assert len(pauses) == sum(tries - 1 for _, tries in expected)
    calls = lines(tmp_path)
    assert Counter(call.error or "ChatReply" for call in calls) == Counter(ends)
    assert sum(call.prompt_tokens or 0 for call in calls) == 11 * ends.count("ChatReply")

    # Run again: only what failed is asked again.
    before = len(scripted_server.prompts)
    again = asyncio.run(run(attempts=1))
    assert len(scripted_server.prompts) - before == len(prompts) - ends.count("ChatReply")
    assert [type(result).__name__ for result in again] == ends
    cached = [result.usage.cached for result in again if isinstance(result, ChatReply)]
    assert cached == [True] * ends.count("ChatReply")


def test_retry_after_is_waited_for(scripted_server: Any, sent: Any, completed: Any) -> None:
    asked: list[float] = []

    def script(_: str, earlier: int) -> Any:
        asked.append(time.monotonic())
        return completed("ok") if earlier else sent(429, b"{}", {"Retry-After": "2"})

    scripted_server.script = script

    async def ask() -> ChatReply:
        chat = scripted_server.chat()
        try:
            return await chat.complete(ChatRequest(role="answer", prompt="Where?"))
        finally:
            await chat.close()

    assert asyncio.run(ask()).text == "ok"
    assert asked[1] - asked[0] >= 2  # its backoff alone would be over after 1.5 s


WORKER = """
import asyncio, sys
from pathlib import Path
from openai import DefaultAsyncHttpxClient
from vmem.config import ModelSettings
from vmem.llm.budget import SELF_HOSTED, Budget
from vmem.llm.cache import ReplyCache
from vmem.llm.ledger import Ledger
from vmem.llm.metered import MeteredChat
from vmem.llm.openai_chat import OpenAIChat
from vmem.ports import ChatRequest

folder, url, mode, count = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])

async def main():
    chat = OpenAIChat(
        ModelSettings(base_url=url, model="m7"),
        http_client=DefaultAsyncHttpxClient(trust_env=False),
    )
    model = MeteredChat(
        chat, ReplyCache(folder / "replies.sqlite3"), server="scripted", concurrency=3,
        budget=Budget(), ledger=Ledger(folder / "ledger.jsonl"), price=SELF_HOSTED,
    )
    async def ask(number):
        reply = await model.complete(ChatRequest(role="answer", prompt=f"question {number}"))
        print(number, reply.text, flush=True)
    if mode == "at-once":
        await asyncio.gather(*map(ask, range(count)))
    else:
        for number in range(count):
            await ask(number)
            if mode == "step":
                sys.stdin.readline()
    await model.close()

asyncio.run(main())
"""


def start(folder: Path, url: str, mode: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", WORKER, str(folder), url, mode, str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def finish(worker: subprocess.Popen[str]) -> list[str]:
    out, _ = worker.communicate(timeout=120)
    assert worker.returncode == 0
    return out.splitlines()


def test_killed_between_calls_nothing_is_paid_twice(tmp_path: Path, scripted_server: Any) -> None:
    worker = start(tmp_path, scripted_server.url, "step", 6)
    assert worker.stdin is not None and worker.stdout is not None
    for number in range(3):
        assert worker.stdout.readline() == f"{number} re question {number}\n"
        if number < 2:
            worker.stdin.write("\n")
            worker.stdin.flush()
    worker.kill()
    worker.communicate()
    assert len(scripted_server.prompts) == len(lines(tmp_path)) == 3
    said = finish(start(tmp_path, scripted_server.url, "straight", 6))
    assert said == [f"{number} re question {number}" for number in range(6)]
    assert scripted_server.prompts == [f"question {number}" for number in range(6)]
    assert [call.cached for call in lines(tmp_path)] == [False] * 3 + [True] * 3 + [False] * 3


def test_killed_within_calls_only_those_are_made_again(
    tmp_path: Path, scripted_server: Any, sent: Any, completed: Any
) -> None:
    count, answered, concurrency = 12, 5, 3

    def script(prompt: str, earlier: int) -> Any:
        if len(scripted_server.prompts) <= answered or earlier:
            return completed(f"re {prompt}")
        return sent(wait=scripted_server.released, body=None)

    scripted_server.script = script
    worker = start(tmp_path, scripted_server.url, "at-once", count)
    deadline = time.monotonic() + 60
    while rows(tmp_path) < answered or len(scripted_server.prompts) < answered + concurrency:
        assert time.monotonic() < deadline and worker.poll() is None
        time.sleep(0.02)
    worker.kill()
    worker.communicate()
    scripted_server.script = lambda prompt, _: completed(f"re {prompt}")
    said = finish(start(tmp_path, scripted_server.url, "at-once", count))
    assert sorted(said) == sorted(f"{number} re question {number}" for number in range(count))
    assert len(scripted_server.prompts) == count + concurrency
    assert sum(not call.cached for call in lines(tmp_path)) == count


def rows(folder: Path) -> int:
    path = folder / "replies.sqlite3"
    if not path.exists():
        return 0
    connection = sqlite3.connect(path)
    try:
        return int(connection.execute("SELECT count(*) FROM replies").fetchone()[0])
    except sqlite3.OperationalError:  # it is being made
        return 0
    finally:
        connection.close()


def test_processes_share_the_cache(tmp_path: Path, scripted_server: Any) -> None:
    said = finish(start(tmp_path, scripted_server.url, "at-once", 8))
    assert len(scripted_server.prompts) == 8
    results = asyncio.run(
        ask_all(metered(tmp_path, scripted_server.chat()), [f"question {n}" for n in range(8)])
    )
    assert sorted(said) == sorted(f"{n} {reply.text}" for n, reply in enumerate(results))
    assert all(reply.usage.cached for reply in results)
    assert len(scripted_server.prompts) == 8


@pytest.mark.parametrize("concurrency", [2, 5])
def test_the_server_sees_no_more_calls_at_once_than_allowed(
    tmp_path: Path, scripted_server: Any, sent: Any, concurrency: int
) -> None:
    scripted_server.script = lambda *_: sent(400, b"{}", wait=scripted_server.released)

    async def run() -> list[Any]:
        model = metered(tmp_path, scripted_server.chat(), concurrency=concurrency)
        asks = asyncio.create_task(ask_all(model, [str(number) for number in range(9)]))
        deadline = time.monotonic() + 60
        while len(scripted_server.prompts) < concurrency:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        assert len(scripted_server.prompts) == concurrency
        scripted_server.released.set()
        return await asks

    assert len(asyncio.run(run())) == 9
    assert len(scripted_server.prompts) == 9
