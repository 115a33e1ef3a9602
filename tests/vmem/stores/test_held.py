"""Memories held in process: what goes first, and what is told from what."""

import gc
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from vmem.config import LexicalSettings
from vmem.stores.held import HeldMemories
from vmem.stores.hot import HotMemory, UnitTable
from vmem.stores.records import MemoryInfo
from vmem.types import Unit, UnitKind

AtOnce = Callable[[Sequence[Callable[[], object]]], None]
INFO = MemoryInfo(
    bank="b",
    id="m",
    rounds=1,
    images=0,
    version=3,
    indexed_version=2,
    built_version=0,
    created_at=datetime(2026, 3, 2, tzinfo=UTC),
)


def a_memory(units: int) -> HotMemory:
    text = tuple(
        Unit(id=f"r/text/{n}", round_id="r", position=0, kind=UnitKind.TEXT, text="x")
        for n in range(units)
    )
    vectors_UD = np.ones((units, 2), dtype=np.float32)
    none = UnitTable(units=(), vectors_UD=vectors_UD[:0])
    return HotMemory([], UnitTable(units=text, vectors_UD=vectors_UD), none, LexicalSettings())


@pytest.mark.parametrize("limit", [0, 9, 10, 25, 100])
def test_the_least_recently_used_goes_first(limit: int) -> None:
    held = HeldMemories(limit)
    for name in "abc":
        held.load(name, a_memory(10), INFO)
        held.get("a")
    kept = {name for name in "abc" if held.get(name)}
    assert kept == {0: set(), 9: set(), 10: {"c"}, 25: {"a", "c"}, 100: set("abc")}[limit]
    assert held.sizes() == (len(kept), 10 * len(kept))
    assert held.counts.misses == 3


def test_an_extended_memory_takes_the_place_of_the_old_one() -> None:
    held = HeldMemories(25)
    held.load("a", a_memory(10), INFO)
    held.load("b", a_memory(10), INFO)
    held.extend("a", a_memory(15), INFO)
    assert held.sizes() == (2, 25)
    held.extend("a", a_memory(16), INFO)
    assert held.sizes() == (1, 16)
    held.extend("a", a_memory(26), INFO)
    assert held.sizes() == (0, 0), "not even the old one, which is out of date"
    assert held.counts.extensions == 3


def test_an_empty_memory_weighs_something() -> None:
    held = HeldMemories(2)
    for name in "abc":
        held.load(name, a_memory(0), INFO)
    assert held.sizes() == (2, 0)
    held.drop("b")
    held.drop("b")
    assert held.get("b") is None
    held.clear()
    assert held.sizes() == (0, 0)


def test_it_shows_what_the_index_had() -> None:
    kept = HeldMemories(10).load("m", a_memory(1), INFO)
    assert kept.version == INFO.indexed_version
    assert kept.shows(INFO)
    assert kept.shows(replace(INFO, version=9))
    assert not kept.shows(replace(INFO, indexed_version=3))
    assert not kept.shows(replace(INFO, created_at=INFO.created_at + timedelta(microseconds=1)))


def test_turns_are_taken_by_memory_and_forgotten(at_once: AtOnce) -> None:
    held = HeldMemories(10)
    inside: list[str] = []
    both = threading.Barrier(2)

    def take(name: str) -> None:
        with held.turn(name):
            assert name not in inside
            inside.append(name)
            both.wait(timeout=30)  # the other memory's turn is taken at the same time
            inside.remove(name)

    at_once([lambda: take("a"), lambda: take("b")] * 1)
    at_once([lambda: take("a"), lambda: take("a"), lambda: take("b"), lambda: take("b")])
    gc.collect()
    assert len(held._turns) == 0
