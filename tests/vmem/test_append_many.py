"""Several appends as one group: encoded and indexed together, each with its own outcome."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow

from vmem.bank import Bank
from vmem.config import Settings, replace
from vmem.errors import (
    DataError,
    ImageError,
    RoundConflictError,
    StoreError,
    UnknownMemoryError,
    VectorError,
    VmemError,
)
from vmem.rounds import exchange
from vmem.stores.catalogue import Appended
from vmem.types import Image, Query, Round


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[Bank]:
    settings = replace(
        Settings(),
        store={"home": tmp_path / "home", "bank": "test"},
        encoders={"text": {"kind": "fake"}, "image": {"kind": "fake"}},
        llm={"provider": "none"},
    )
    with Bank(settings) as opened:
        yield opened


def a_round(name: str, uri: str | None = None, text: str | None = None) -> Round:
    images = [Image(id="IMG", uri=uri, caption=f"shade of {name}")] if uri else []
    user = text if text is not None else f"{name} said"
    return exchange(name, session="D1", time="2026-03-02", user=user, images=images)


def picture(folder: Path, red: int) -> str:
    path = folder / f"{red}.png"
    Pillow.new("RGB", (16, 16), (red, 99, 40)).save(path)
    return str(path)


def counted(target: object, name: str, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The calls of a method from now on."""
    calls: list[tuple[Any, ...]] = []
    real = getattr(target, name)

    def call(*args: Any) -> Any:
        calls.append(args)
        return real(*args)

    monkeypatch.setattr(target, name, call)
    return calls


def best(bank: Bank, memory_id: str, text: str) -> int:
    return asyncio.run(bank.search(memory_id, Query(text=text))).ranked[0].position


def test_a_group_is_encoded_and_written_at_once(
    bank: Bank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = counted(bank.parts.text_encoder, "encode", monkeypatch)
    images = counted(bank.parts.image_encoder, "encode", monkeypatch)
    upserts = counted(bank.store, "upsert", monkeypatch)
    items = [
        ("a", [a_round("r1"), a_round("r2", picture(tmp_path, 1))]),
        ("b", [a_round("r1", picture(tmp_path, 2), "another r1")]),
        ("c", [a_round("r1", text="a third r1")]),
    ]
    outcomes = bank.append_many(items)
    assert [outcome.version for outcome in outcomes if isinstance(outcome, Appended)] == [1, 1, 1]
    assert (len(texts), len(images)) == (1, 1)
    record = bank.record
    assert [name for name, _ in upserts] == [record.text_collection, record.image_collection]
    whole = {
        collection: {row.key: row.vector.tolist() for row in bank.store.fetch(collection, memory)}
        for collection in (record.text_collection, record.image_collection)
        for memory in "abc"
    }
    for memory in "abc":
        bank.delete(memory)
    for memory_id, rounds in items:
        bank.append(memory_id, rounds)
    assert whole == {
        collection: {row.key: row.vector.tolist() for row in bank.store.fetch(collection, memory)}
        for collection in (record.text_collection, record.image_collection)
        for memory in "abc"
    }, "the same rows as one by one"


def test_an_append_that_is_refused_touches_no_other(bank: Bank, tmp_path: Path) -> None:
    bank.append("a", [a_round("r1")])
    outcomes = bank.append_many(
        [
            ("a", [a_round("r2")]),
            ("a", [a_round("r3", picture(tmp_path, 3)), a_round("r1", text="other content")]),
            ("b", [a_round("r1", str(tmp_path / "missing.png"))]),
            ("c", [a_round("r1", text="")]),
            ("../d", [a_round("r1")]),
            ("e", [a_round("r1", picture(tmp_path, 4))]),
            ("a", [a_round("r2"), a_round("r4")]),
        ]
    )
    assert [type(outcome) for outcome in outcomes] == [
        *(Appended, RoundConflictError, ImageError, DataError, DataError, Appended, Appended)
    ]
    first, last = outcomes[0], outcomes[-1]
    assert isinstance(first, Appended)
    assert isinstance(last, Appended)
    assert (first.version, last.version, last.unchanged) == (2, 3, 1)
    assert [round_.id for round_ in bank.rounds("a")] == ["r1", "r2", "r4"]
    assert {info.id: info.indexed_version for info in bank.memories()} == {"a": 3, "e": 1}
    assert bank.media.count() == 1, "the refused picture is gone"
    assert best(bank, "a", "r4") == 2


def test_one_that_cannot_be_encoded_touches_no_other_memory(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = bank.parts.text_encoder.encode

    def encode(texts: list[str]) -> Any:
        vectors = real(texts)
        return np.where([["poison" in text] for text in texts], np.nan, vectors)

    monkeypatch.setattr(bank.parts.text_encoder, "encode", encode)
    outcomes = bank.append_many(
        [
            ("a", [a_round("r1")]),
            ("b", [a_round("r1", text="poison")]),
            ("b", [a_round("r2")]),
            ("c", [a_round("r1")]),
        ]
    )
    assert [type(outcome) for outcome in outcomes] == [Appended, VectorError, VectorError, Appended]
    assert "the 2 rounds are in the log of b" in str(outcomes[1])
    assert {i.id: i.indexed_version for i in bank.memories()} == {"a": 1, "b": 0, "c": 1}
    monkeypatch.undo()
    again = bank.append("b", [a_round("r2")])
    assert (again.unchanged, again.added) == (1, ())
    assert best(bank, "b", "poison") == 0


def test_a_store_that_fails_is_asked_once_and_fails_all(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank.append("a", [a_round("r1")])
    asked: list[str] = []

    def fail(collection: str, _: object) -> None:
        asked.append(collection)
        raise StoreError("Milvus is away")

    monkeypatch.setattr(bank.store, "upsert", fail)
    outcomes = bank.append_many([(name, [a_round("r2")]) for name in "abcd"])
    assert all(isinstance(outcome, VmemError) for outcome in outcomes)
    assert len(asked) == 1
    monkeypatch.undo()
    assert bank.heal_all() == {}
    for name in "abcd":
        assert best(bank, name, "r2") == len(bank.rounds(name)) - 1


def test_a_memory_that_cannot_be_healed_stops_no_other(
    bank: Bank, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in "ab":
        bank.append(name, [a_round("r1")])
        bank.catalogue.append("test", name, [a_round("r2", "/gone.png" if name == "a" else None)])
    failed = bank.heal_all()
    assert {name: type(error) for name, error in failed.items()} == {"a": ImageError}
    assert "the index of memory a cannot be healed" in caplog.text
    assert best(bank, "b", "r2") == 1


def test_what_is_held_is_extended_by_a_group(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    bank.append("a", [a_round("r1")])
    assert best(bank, "a", "r1") == 0
    reads = [counted(bank.store, name, monkeypatch) for name in ("fetch", "get")]
    bank.append_many([("a", [a_round("r2")]), ("b", [a_round("r1")]), ("a", [a_round("r3")])])
    assert best(bank, "a", "r3") == 2
    assert reads == [[], []]
    assert (bank.cache.misses, bank.cache.extensions) == (1, 1)


def test_no_append_is_no_change(bank: Bank) -> None:
    assert bank.append_many([]) == []
    with pytest.raises(UnknownMemoryError):
        bank.rounds("a")
    assert isinstance(bank.append_many([("a", [])])[0], Appended)
