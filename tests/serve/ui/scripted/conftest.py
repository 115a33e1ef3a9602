"""The HTTP application over memories of this process, for a real Chromium to look into them.

HTTP, memories, routing, ranking and streaming are the real thing; encoders and anchors are the
fakes that ship with vmem, and the words of the answer are scripted.
"""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI

from serve.http import make_app
from serve.service import Embedded, Found, Options, Readiness
from serve.settings import load_serve_settings
from vmem.bank import Bank, database_url
from vmem.config import replace
from vmem.errors import ModelError, ModelUnavailableError
from vmem.pipeline import retrieve
from vmem.stores.keys import KeyStore
from vmem.stores.records import Appended, MemoryInfo
from vmem.types import Answer, Query, Round, Usage

ANSWER = "The blend is called Lamplighter (D3:6)."
ERASED = "D1:5"
LONG = 300
FLAG = "window.pwned = true"
MARKUP = f'<script>{FLAG}</script><img src="x" onerror="{FLAG}"><svg onload="{FLAG}">'


@dataclass(frozen=True, kw_only=True)
class Site:
    """An application under way.

    Attributes:
        url: The open one's address; it holds the memories `sample`, `long`, `extreme`, `hostile`,
            `empty`.
        locked_url: The address of one over the same memories that asks for a key.
        key: A key of the tenant `acme`, which has the memory `sample` alone.
    """

    url: str
    locked_url: str
    key: str

    def post(self, memory: str, action: str, body: dict[str, Any]) -> dict[str, Any]:
        """What the application itself says."""
        reply = httpx.post(f"{self.url}/v1/memories/{memory}/{action}", json=body, timeout=60)
        assert reply.status_code == 200, reply.text
        return dict(reply.json())


@pytest.fixture(scope="session")
def site(
    tmp_path_factory: pytest.TempPathFactory, sample_rounds: list[dict[str, Any]]
) -> Iterator[Site]:
    """The application, open and with a key, over one set of memories."""
    opened, locked = (
        load_serve_settings(settings(tmp_path_factory.getbasetemp() / "memories", open_=open_))
        for open_ in (True, False)
    )
    memory = opened.memory_settings()
    with Bank(memory) as bank:
        keys = KeyStore(database_url(memory))
        _, key = keys.create("acme")
        apps = [make_app(InProcess(bank), keys, each) for each in (opened, locked)]
        with serving(apps[0]) as url, serving(apps[1]) as locked_url:
            fill(url, locked_url, key, sample_rounds)
            yield Site(url=url, locked_url=locked_url, key=key)
        keys.close()


class InProcess:
    """A `Service` on a bank of this process; what it answers is scripted by marks in the question.

    `@slow` never stops, `@cut` fails in mid-answer, `@dead` has no model.

    Args:
        bank: The memories.
    """

    def __init__(self, bank: Bank) -> None:
        self._bank = bank
        self._name = bank.settings.store.bank
        bank.parts  # noqa: B018  # the encoders, before several threads ask for them

    async def create(self, memory_id: str) -> MemoryInfo:
        return self._bank.create(memory_id)

    async def memories(self, prefix: str, after: str, limit: int) -> list[MemoryInfo]:
        return self._bank.catalogue.memories_page(self._name, prefix, after, limit)

    async def memory(self, memory_id: str) -> MemoryInfo:
        return self._bank.catalogue.memory(self._name, memory_id)

    async def delete(self, memory_id: str) -> None:
        self._bank.delete(memory_id)

    async def append(self, memory_id: str, rounds: Sequence[Round]) -> Appended:
        return self._bank.append(memory_id, rounds)

    async def rounds(self, memory_id: str, after_position: int, limit: int) -> tuple[Round, ...]:
        return self._bank.catalogue.rounds_page(self._name, memory_id, after_position, limit)

    async def round(self, memory_id: str, round_id: str) -> Round:
        return self._bank.catalogue.round(self._name, memory_id, round_id)

    async def erase_round(self, memory_id: str, round_id: str) -> int:
        return self._bank.erase_round(memory_id, round_id)

    async def media(self, memory_id: str, digest: str) -> bytes:
        return self._bank.media.get(digest)

    async def search(self, memory_id: str, query: Query, options: Options) -> Found:
        memory, version = self._bank.versioned(memory_id)
        asked = options.model_dump(exclude_none=True, exclude={"max_tokens", "temperature"})
        changed = replace(self._bank.settings, retrieval=asked)
        retrieval = await retrieve(query, memory, self._bank.parts, changed)
        shown = {each.position for each in retrieval.ranked} | set(retrieval.context.positions)
        rounds = {position: memory.rounds[position] for position in sorted(shown)}
        return Found(retrieval=retrieval, rounds=rounds, version=version)

    async def answer(
        self, memory_id: str, query: Query, options: Options
    ) -> AsyncIterator[Found | str | Answer]:
        found = await self.search(memory_id, query, options)
        yield found
        if "@dead" in query.text:
            raise ModelUnavailableError("127.0.0.1:1 refuses")
        while "@slow" in query.text:
            yield "and on "
            await asyncio.sleep(0.05)
        for n, word in enumerate(ANSWER.split(" ")):
            yield f" {word}" if n else word
            await asyncio.sleep(0.02)
            if "@cut" in query.text:
                raise ModelError("the model's server closed the stream")
        usage = Usage(role="answer", prompt_tokens=1843, completion_tokens=12)
        retrieval = found.retrieval
        yield Answer(
            text=ANSWER,
            retrieval=retrieval,
            prompt="",
            usage=(*retrieval.anchors.usage, usage),
            seconds={**retrieval.seconds, "answer": 1.84},
        )

    async def embed(self, texts: Sequence[str]) -> Embedded:
        raise NotImplementedError

    async def readiness(self) -> Readiness:
        return Readiness(parts={})

    async def metrics(self) -> bytes:
        return b""


def settings(home: Path, *, open_: bool) -> dict[str, Any]:
    """Fake encoders and model; one answer at a time."""
    return {
        "name": "page",
        "memory": {
            "encoders": {"text": {"kind": "fake"}, "image": {"kind": "fake"}},
            "llm": {"provider": "fake"},
            "store": {"home": str(home)},
        },
        "http": {"open_on_loopback": open_},
        "admission": {"answer": 1},
    }


def fill(url: str, locked_url: str, key: str, rounds: list[dict[str, Any]]) -> None:
    """Remember what the tests read."""
    many = [{"id": f"L{n}", "session": f"S{n // 60}", "user": said(n)} for n in range(LONG)]
    with httpx.Client(base_url=f"{url}/v1", timeout=120) as client:
        client.post("/memories", json={"id": "empty"}).raise_for_status()
        remember(client, "sample", rounds)
        client.delete(f"/memories/sample/rounds/{ERASED}").raise_for_status()
        remember(client, "long", many[:150])
        remember(client, "long", many[150:])
        remember(client, "hostile", hostile_rounds())
        remember(client, "extreme", [extreme_round(rounds)])
    headers = {"authorization": f"Bearer {key}"}
    with httpx.Client(base_url=f"{locked_url}/v1", timeout=120, headers=headers) as client:
        remember(client, "sample", rounds[:3])


def said(n: int) -> str:
    """What is said in a round of `long`: a few of them are about otters."""
    return f"Note {n}: {'an otter was seen' if n % 50 == 4 else 'nothing to report'}."


def remember(client: httpx.Client, memory: str, rounds: list[dict[str, Any]]) -> None:
    """Append rounds."""
    reply = client.post(f"/memories/{memory}/rounds", json={"rounds": rounds})
    assert reply.status_code == 200, reply.text


def extreme_round(sample: list[dict[str, Any]]) -> dict[str, Any]:
    """A round of long names, words and captions, with several pictures and one that is not kept."""
    turns = [turn for each in sample for turn in [each, *each.get("turns", [])]]
    picture = next(turn["images"][0] for turn in turns if "images" in turn)
    images = [{**picture, "id": f"i{n}", "caption": "So long a caption. " * 60} for n in range(5)]
    images.append({"id": "gone", "caption": "So long a caption. " * 60})
    turns = [{"speaker": "user", "text": f"Look {'x' * 400}", "images": images}]
    return {"id": "r" * 90, "session": "s" * 90, "time": "2026-05-04T09:00", "turns": turns}


def hostile_rounds() -> list[dict[str, Any]]:
    """Rounds that would set a flag in the page if any text of them ever ran."""
    image = {"id": MARKUP[:40], "caption": MARKUP}
    turns = [
        {"speaker": speaker, "text": MARKUP, "images": [image]}
        for speaker in ("user", f"<b onclick='{FLAG}'>x</b>")
    ]
    return [{"id": f"H{n}{MARKUP}", "session": MARKUP, "turns": turns} for n in range(2)]


@contextmanager
def serving(app: FastAPI) -> Iterator[str]:
    """Serve an app in a thread; gives its address."""
    config = uvicorn.Config(app, port=0, log_level="critical", ws="none", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = server.force_exit = True
        thread.join()


@pytest.fixture
def page(open_page: Callable[[str], Any], site: Site) -> Iterator[Any]:
    """The page of the open application; whatever was stored, none of it may have run."""
    page = open_page(site.url)
    yield page
    assert page.run("return window.pwned") is None
