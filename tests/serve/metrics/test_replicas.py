"""What `Writer` and `Retriever` tell of their work, on a real store, as plain classes."""

import asyncio
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as Pillow

from serve.retriever import Retriever
from serve.service import Found, Options
from serve.settings import BackboneSettings
from serve.writer import Writer
from vmem.bank_index import collections
from vmem.config import Settings, replace
from vmem.encoders.fake import FakeTextEncoder
from vmem.errors import ModelTimeoutError, ModelUnavailableError, StoreError
from vmem.llm.fake import FakeChat, echo_role
from vmem.ports import ChatRequest, Vectors
from vmem.rounds import exchange
from vmem.types import Answer, Image, Query, Round

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("each_set_told")]

PICTURE = Query(text="Which picture shows a tent?")
LOG = ("vmem_memories", "vmem_rounds")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def settings(tmp_path: Path, milvus_lite_server: str) -> Settings:
    return replace(
        Settings(),
        store={
            "home": tmp_path,
            "bank": f"b{uuid.uuid4().hex[:12]}",
            "milvus_uri": milvus_lite_server,
        },
        encoders={"text": {"kind": "fake"}, "image": {"kind": "fake"}},
    )


@pytest.fixture
def writer(settings: Settings, recorded: Any) -> Iterator[Writer]:
    made = Writer(settings)
    yield made
    made._bank.close()


@pytest.fixture
async def retriever(
    writer: Writer, settings: Settings, recorded: Any, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Callable[..., Retriever]]:
    """Makes the retriever of a scripted model; memory `trip` has one round."""
    await writer.append("trip", [_round("r0")])
    recorded.told.clear()
    made: list[Retriever] = []

    def make(script: Any = echo_role) -> Retriever:
        monkeypatch.setattr("serve.retriever._chat", lambda *_: FakeChat(script))
        made.append(Retriever(settings, BackboneSettings(), None))
        return made[-1]

    yield make
    for one in made:
        one._bank.close()


def _round(round_id: str, *images: Image) -> Round:
    return exchange(
        round_id,
        session="s",
        time="2026-05-04T09:00",
        user=f"the green tent {round_id}",
        assistant="noted",
        images=images,
    )


def _until_waiting(writer: Writer, appends: int) -> None:
    while len(writer._append_together._waiting) < appends:
        time.sleep(0.001)


def _log(recorded: Any) -> tuple[float, float]:
    memories, rounds = (recorded.of(name)[-1][0] for name in LOG)
    return memories, rounds


def _queue(recorded: Any) -> list[float]:
    return [value for value, _ in recorded.of("vmem_queue_length")]


async def test_what_the_log_holds_is_told_at_the_start_and_after_each_change(
    writer: Writer, settings: Settings, recorded: Any
) -> None:
    assert _log(recorded) == (0, 0)
    await writer.append("trip", [_round("r0"), _round("r1")])
    assert _log(recorded) == (1, 2)
    await writer.create("empty")
    assert _log(recorded) == (2, 2)
    await writer.append("other", [_round("r0")])
    assert _log(recorded) == (3, 3)
    await writer.erase_round("trip", "r0")
    assert _log(recorded) == (3, 2)
    await writer.delete("trip")
    assert _log(recorded) == (2, 1)
    writer._bank.close()
    recorded.told.clear()
    again = Writer(settings)
    assert _log(recorded) == (2, 1)
    again._bank.close()


async def test_appends_that_come_while_one_is_written_are_one_group_and_counted_once(
    writer: Writer, recorded: Any
) -> None:
    recorded.told.clear()
    appends = 20
    with writer._append_together._busy:  # as while another group is written
        tasks = [
            asyncio.create_task(writer.append(f"m{number}", [_round("r0")]))
            for number in range(appends)
        ]
        await asyncio.to_thread(_until_waiting, writer, appends)
    await asyncio.gather(*tasks)
    assert recorded.of("vmem_append_batch_requests") == [(appends, {})]
    assert [recorded.of(name) for name in LOG] == [[(appends, {})], [(appends, {})]]


async def test_a_store_that_is_down_fails_a_group_once(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups: list[int] = []

    def down(items: list[Any]) -> list[Any]:
        groups.append(len(items))
        raise StoreError("the disk is full")

    monkeypatch.setattr(writer._bank, "append_many", down)
    with writer._append_together._busy:
        tasks = [asyncio.create_task(writer.append(f"m{n}", [_round("r0")])) for n in range(3)]
        await asyncio.to_thread(_until_waiting, writer, len(tasks))
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == ["the disk is full"] * 3
    assert groups == [3]


async def test_new_units_are_those_that_the_index_now_holds(
    writer: Writer, recorded: Any, tmp_path: Path
) -> None:
    Pillow.new("RGB", (8, 8), "green").save(tmp_path / "tent.png")
    seen = Image(id="i0", uri=str(tmp_path / "tent.png"), caption="a tent")
    rounds = [_round("r0", seen), _round("r1", Image(id="i1", caption="without pixels"))]
    for _ in range(2):  # the second time nothing is new
        await writer.append("trip", rounds)
        bank = writer._bank
        names = [name for name, _ in collections(bank.record).values()]
        held = sum(bank.store.count(name, "trip") for name in names)
        assert recorded.total("vmem_appended_units") == held
        assert held == 2 * (2 + 1) + 1  # texts and caption of each, and the picture that is seen
    assert recorded.total("vmem_appended_rounds") == 2


async def test_an_append_is_acknowledged_where_the_log_cannot_be_counted(
    writer: Writer, recorded: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    def broken(_: str) -> tuple[int, int]:
        raise StoreError("the database is gone")

    monkeypatch.setattr(writer._bank.catalogue, "counts", broken)
    done = await writer.append("trip", [_round("r0")])
    assert len(done.added) == 1
    assert _log(recorded) == (0, 0)
    assert "the log cannot be counted: the database is gone" in caplog.text


async def test_a_writer_tells_the_calls_that_it_has_not_ended(
    writer: Writer, recorded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _queue(recorded) == [0]
    go_on = threading.Event()
    append_many = writer._bank.append_many

    def held_up(items: Any) -> Any:
        go_on.wait()
        return append_many(items)

    monkeypatch.setattr(writer._bank, "append_many", held_up)
    calls = [asyncio.create_task(writer.append("trip", [_round(f"r{n}")])) for n in range(3)]
    await asyncio.sleep(0)  # each comes to its first wait
    assert _queue(recorded) == [0, 1, 2, 3]
    go_on.set()
    await asyncio.gather(*calls)
    assert _queue(recorded) == [0, 1, 2, 3, 2, 1, 0]
    with suppress(Exception):
        await writer.delete("nobody")
    assert _queue(recorded)[-2:] == [1, 0]


async def test_a_retriever_tells_the_calls_that_it_has_not_ended(
    retriever: Callable[..., Retriever], recorded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths: list[float] = []
    encoded: list[float] = []

    def script(request: ChatRequest) -> str:
        lengths.append(_queue(recorded)[-1])
        return echo_role(request)

    encode = FakeTextEncoder.encode

    def looked_at(self: FakeTextEncoder, texts: list[str]) -> Vectors:
        encoded.append(_queue(recorded)[-1])
        return encode(self, texts)

    monkeypatch.setattr(FakeTextEncoder, "encode", looked_at)
    replica = retriever(script)
    assert _queue(recorded) == [0]
    await replica.search("trip", PICTURE, Options())
    assert (lengths, _queue(recorded)) == ([1], [0, 1, 0])
    async with aclosing(replica.answer("trip", PICTURE, Options())) as pieces:
        assert isinstance(await anext(pieces), Found)
        await replica.search("trip", PICTURE, Options())
        assert lengths[1:] == [1, 2]
    assert _queue(recorded)[3:] == [1, 2, 1, 0], "an answer that nobody waits for is over"
    await replica.embed(["a tent"])
    assert (encoded[-1], _queue(recorded)[-1]) == (1, 0)


async def test_a_model_that_fails_is_counted_by_what_it_was_asked_for(
    retriever: Callable[..., Retriever], recorded: Any
) -> None:
    def script(request: ChatRequest) -> str:
        if request.role == "answer":
            raise ModelTimeoutError("it hangs")
        raise ModelUnavailableError("it is down")

    replica = retriever(script)
    found = await replica.search("trip", PICTURE, Options())
    assert found.retrieval.ranked
    failures = "vmem_model_failures"
    anchor = {"role": "hypo_caption", "code": "ModelUnavailableError"}
    assert recorded.of(failures) == [(1, anchor)]
    with pytest.raises(ModelTimeoutError):
        [piece async for piece in replica.answer("trip", PICTURE, Options())]
    answer = {"role": "answer", "code": "ModelTimeoutError"}
    assert recorded.of(failures) == [(1, anchor), (1, anchor), (1, answer)]
    case = {"case": "text->image"}
    assert recorded.of("vmem_degraded_searches") == [(1, case), (1, case)]
    assert recorded.of("vmem_searches") == [(1, case), (1, case)]
    assert _queue(recorded)[-1] == 0


async def test_an_answer_is_told_once_with_its_search(
    retriever: Callable[..., Retriever], recorded: Any
) -> None:
    pieces = [piece async for piece in retriever().answer("trip", PICTURE, Options())]
    assert isinstance(pieces[0], Found)
    assert isinstance(pieces[-1], Answer)
    for name in ("vmem_searches", "vmem_answers", "vmem_first_token_seconds"):
        assert recorded.total(name) > 0
        assert len(recorded.of(name)) == 1
    assert recorded.of("vmem_model_failures") == []
    roles = {labels["role"] for _, labels in recorded.of("vmem_tokens")}
    assert roles == {"hypo_caption", "answer"}


async def test_what_a_replica_holds_is_told_from_the_start(
    retriever: Callable[..., Retriever], recorded: Any
) -> None:
    replica = retriever()
    assert [value for value, _ in recorded.of("vmem_hot_memories")] == [0]
    for _ in range(2):
        await replica.search("trip", PICTURE, Options())
    assert [value for value, _ in recorded.of("vmem_hot_memories")] == [0, 1, 1]
    assert recorded.of("vmem_hot_units")[-1] == (2, {})
    assert recorded.of("vmem_cache_lookups") == [(1, {"outcome": "miss"}), (1, {"outcome": "hit"})]
