"""The HTTP app in this process: a real bank with fake encoders behind it, a scripted backbone."""

import asyncio
import base64
import io
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from PIL import Image as Pillow

from serve.errors import UnknownFileError
from serve.http import make_app
from serve.service import Embedded, Found, Options, Readiness
from serve.settings import ServeSettings, load_serve_settings
from vmem.bank import Bank, database_url
from vmem.config import Settings
from vmem.config import replace as replace_settings
from vmem.llm.fake import FakeChat
from vmem.pipeline import retrieve, stream_ask
from vmem.ports import ChatRequest
from vmem.stores.catalogue import Appended, MemoryInfo
from vmem.stores.keys import KeyInfo, KeyStore
from vmem.types import Answer, Query, Retrieval, Round

BASE = "http://127.0.0.1"


@dataclass
class InProcess:
    """A `Service` on a bank of this process.

    Attributes:
        script: What the backbone replies; may raise.
        hold: Where set, answers wait for it after what was found.
        down: What a call of that name raises.
        closed: Answers whose iterator was closed before its end.
        calls: Names of the calls made.
    """

    bank: Bank
    script: Callable[[ChatRequest], str] = lambda _: "A green tent."
    hold: asyncio.Event | None = None
    down: dict[str, Exception] = field(default_factory=dict)
    closed: int = 0
    under_way: int = 0
    calls: list[str] = field(default_factory=list)

    async def _run(self, name: str, call: Callable[..., Any], *args: object) -> Any:
        self.calls.append(name)
        if name in self.down:
            raise self.down[name]
        return await asyncio.to_thread(call, *args)

    @property
    def _name(self) -> str:
        return self.bank.settings.store.bank

    async def create(self, memory_id: str) -> MemoryInfo:
        return await self._run("create", self.bank.create, memory_id)

    async def memories(self, prefix: str, after: str, limit: int) -> list[MemoryInfo]:
        page = self.bank.catalogue.memories_page
        return await self._run("memories", page, self._name, prefix, after, limit)

    async def memory(self, memory_id: str) -> MemoryInfo:
        return await self._run("memory", self.bank.catalogue.memory, self._name, memory_id)

    async def delete(self, memory_id: str) -> None:
        await self._run("delete", self.bank.delete, memory_id)

    async def append(self, memory_id: str, rounds: Sequence[Round]) -> Appended:
        return await self._run("append", self.bank.append, memory_id, rounds)

    async def rounds(self, memory_id: str, after_position: int, limit: int) -> tuple[Round, ...]:
        page = self.bank.catalogue.rounds_page
        return await self._run("rounds", page, self._name, memory_id, after_position, limit)

    async def round(self, memory_id: str, round_id: str) -> Round:
        find = self.bank.catalogue.round
        return await self._run("round", find, self._name, memory_id, round_id)

    async def erase_round(self, memory_id: str, round_id: str) -> int:
        return await self._run("erase_round", self.bank.erase_round, memory_id, round_id)

    async def media(self, memory_id: str, digest: str) -> bytes:
        def read() -> bytes:
            self.bank.catalogue.memory(self._name, memory_id)
            if not self.bank.catalogue.has_image(self._name, memory_id, digest):
                raise UnknownFileError("no round holds it")
            return self.bank.media.get(digest)

        return await self._run("media", read)

    async def search(self, memory_id: str, query: Query, options: Options) -> Found:
        memory, version = await self._run("search", self.bank.versioned, memory_id)
        retrieval = await retrieve(query, memory, self._parts(), _with(self.bank.settings, options))
        if self.hold:
            await self.hold.wait()
        return _found(retrieval, memory.rounds, version)

    async def answer(
        self, memory_id: str, query: Query, options: Options
    ) -> AsyncGenerator[Found | str | Answer, None]:
        memory, version = await self._run("answer", self.bank.versioned, memory_id)
        settings = _with(self.bank.settings, options)
        ended = False
        self.under_way += 1
        try:
            async for piece in stream_ask(query, memory, self._parts(), settings):
                if isinstance(piece, Retrieval):
                    yield _found(piece, memory.rounds, version)
                    if self.hold:
                        await self.hold.wait()
                else:
                    yield piece
            ended = True
        finally:
            self.under_way -= 1
            self.closed += not ended

    async def embed(self, texts: Sequence[str]) -> Embedded:
        encoder = self.bank.parts.text_encoder
        vectors_ND = await self._run("embed", encoder.encode, texts)
        tokens = sum(encoder.count_tokens(texts))
        return Embedded(vectors_ND=vectors_ND, tokens=tokens, model=encoder.name)

    async def readiness(self) -> Readiness:
        return Readiness(parts={"store": str(self.down.get("readiness", "ok")), "encoders": "ok"})

    async def metrics(self) -> bytes:
        return b"# TYPE vmem_requests_total counter\nvmem_requests_total 1.0\n"

    def _parts(self) -> Any:
        return replace(self.bank.parts, chat=FakeChat(self.script, name="scripted"))


def _with(settings: Settings, options: Options) -> Settings:
    asked = options.model_dump(exclude_none=True)
    answer = {name: asked.pop(name) for name in ("max_tokens", "temperature") if name in asked}
    return replace_settings(settings, retrieval=asked, answer=answer)


def _found(retrieval: Retrieval, rounds: Sequence[Round], version: int) -> Found:
    shown = {ranked.position for ranked in retrieval.ranked} | set(retrieval.context.positions)
    return Found(retrieval=retrieval, rounds={p: rounds[p] for p in sorted(shown)}, version=version)


@dataclass
class Counted:
    """`ApiMetrics` that keeps what it is told."""

    requests: list[tuple[str, str, int]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    most: dict[str, int] = field(default_factory=dict)
    now: dict[str, int] = field(default_factory=dict)

    def request(self, route: str, case: str, status: int, seconds: float) -> None:
        self.requests.append((route, case, status))

    def rejected(self, reason: str) -> None:
        self.reasons.append(reason)

    def under_way(self, kind: str, n: int) -> None:
        self.now[kind] = n
        self.most[kind] = max(self.most.get(kind, 0), n)


@dataclass
class Served:
    """An app with what stands behind and around it.

    Attributes:
        tenant: A tenant of this test alone, which `key` opens.
    """

    app: FastAPI
    service: InProcess
    keys: KeyStore
    metrics: Counted
    tenant: str
    key: KeyInfo
    secret: str

    def client(self, key: str | None = "own", **headers: str) -> httpx.AsyncClient:
        """A client with the tenant's key, another one, or None."""
        secret = self.secret if key == "own" else key
        sent = {**headers, **({"authorization": f"Bearer {secret}"} if secret else {})}
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        return httpx.AsyncClient(transport=transport, base_url=BASE, headers=sent, timeout=60)

    def other_key(self, **changes: Any) -> tuple[KeyInfo, str]:
        """A key of another tenant."""
        return self.keys.create(new_tenant(), **changes)


def new_tenant() -> str:
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bank]:
    """A bank that the tests of a file share, each with a tenant of its own."""
    settings = Settings(
        name="fakes",
        encoders={"text": {"kind": "fake"}, "image": {"kind": "fake"}},
        llm={"provider": "fake"},
        retrieval={"on_model_failure": "query"},
        store={"home": tmp_path_factory.mktemp("bank")},
    )
    with Bank(settings) as opened:
        yield opened


@pytest.fixture
def serve_app(bank: Bank) -> Iterator[Callable[..., Served]]:
    """Makes an app; sections of settings as keyword arguments."""
    stores: list[KeyStore] = []

    def make(**sections: Mapping[str, object]) -> Served:
        settings = serve_settings(bank, **sections)
        keys = KeyStore(database_url(bank.settings))
        stores.append(keys)
        service, metrics, tenant = InProcess(bank), Counted(), new_tenant()
        info, secret = keys.create(tenant)
        app = make_app(service, keys, settings, metrics)
        return Served(app, service, keys, metrics, tenant, info, secret)

    yield make
    for store in stores:
        store.close()


@pytest.fixture
def served(serve_app: Callable[..., Served]) -> Served:
    """An app with the default settings."""
    return serve_app()


@pytest.fixture
async def client(served: Served) -> AsyncIterator[httpx.AsyncClient]:
    """A client with a key of a tenant that has nothing yet."""
    async with served.client() as opened:
        yield opened


def serve_settings(bank: Bank, **sections: Mapping[str, object]) -> ServeSettings:
    memory = {"encoders": {"text": {"kind": "fake"}, "image": {"kind": "fake"}}}
    return load_serve_settings({"name": "test", "memory": memory, **sections})


@pytest.fixture(scope="session")
def picture() -> Callable[..., bytes]:
    """Makes a picture of one colour."""

    def make(colour: str = "green", kind: str = "PNG", size: tuple[int, int] = (8, 8)) -> bytes:
        file = io.BytesIO()
        Pillow.new("RGB", size, colour).save(file, kind)
        return file.getvalue()

    return make


@pytest.fixture(scope="session")
def tent(picture: Callable[..., bytes]) -> dict[str, Any]:
    """A round with a picture, as a request holds it."""
    return {
        "id": "D1:1",
        "session": "D1",
        "time": "2026-03-03T18:20",
        "user": "Our tent by the lake.",
        "assistant": "A lovely tent!",
        "images": [{"base64": base64.b64encode(picture()).decode(), "caption": "a green tent"}],
    }


@pytest.fixture(scope="session")
def canoe() -> dict[str, Any]:
    """A round of two people without a picture, as a request holds it."""
    turns = [
        {"speaker": "Mara", "text": "The canoe leaks."},
        {"speaker": "Jon", "text": "I will bring tape."},
    ]
    return {"id": "D2:1", "session": "D2", "time": "2026-03-09", "turns": turns}


@pytest.fixture(scope="session")
def voice() -> bytes:
    """A WAV file of silence."""
    import wave

    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8_000)
        sound.writeframes(bytes(1_600))
    return file.getvalue()
