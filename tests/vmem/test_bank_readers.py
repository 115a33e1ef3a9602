"""One writer and readers of a bank, as processes of a cluster have it; encoders are fakes."""

import asyncio
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace as copy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as Pillow

from vmem import bank_index
from vmem.bank import Bank
from vmem.config import Settings, replace
from vmem.errors import EncoderMismatchError, StoreError, UnknownMemoryError, UnknownRoundError
from vmem.export import export_memory
from vmem.rounds import exchange
from vmem.stores.searched import MilvusMemory
from vmem.stores.unit_rows import UnitRow
from vmem.types import Dialogue, Image, Query, Retrieval, Round

AtOnce = Callable[[Sequence[Callable[[], object]]], None]


@pytest.fixture(
    params=["milvus_lite_server", pytest.param("milvus_server", marks=pytest.mark.services)]
)
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    """A bank of its own on servers that several processes may share."""
    is_real = request.param == "milvus_server"
    return replace(
        Settings(),
        store={
            "home": tmp_path / "home",
            "bank": f"b{uuid.uuid4().hex[:12]}",
            "milvus_uri": request.getfixturevalue(request.param),
            "database_url": request.getfixturevalue("postgres_url") if is_real else None,
        },
        encoders={"text": {"kind": "fake"}, "image": {"kind": "fake"}},
        llm={"provider": "none"},
    )


@pytest.fixture
def writer(settings: Settings) -> Iterator[Bank]:
    with Bank(settings) as opened:
        yield opened


@pytest.fixture
def reader(settings: Settings) -> Iterator[Bank]:
    with Bank(settings, writes=False) as opened:
        yield opened


def a_round(number: int, uri: str | None = None) -> Round:
    """The only round that says `word<number>`."""
    images = [Image(id=f"IMG_{number}", uri=uri, caption=f"shade {number}")] if uri else []
    return exchange(
        f"r{number}",
        session="D1",
        time="2026-03-02",
        user=f"word{number} said",
        images=images,
    )


def picture(folder: Path, red: int) -> str:
    path = folder / f"{red}.png"
    Pillow.new("RGB", (16, 16), (red, 99, 40)).save(path)
    return str(path)


def find(bank: Bank, text: str, memory: str = "trip") -> Retrieval:
    return asyncio.run(bank.search(memory, Query(text=text)))


def best(bank: Bank, text: str, memory: str = "trip") -> int:
    return find(bank, text, memory).ranked[0].position


def fetches(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """What the bank asks of its vector store from now on."""
    asked: dict[str, list[Any]] = {"fetch": [], "get": []}
    for name, kept in asked.items():
        real = getattr(bank.store, name)

        def ask(*args: Any, real: Any = real, kept: list[Any] = kept, **options: Any) -> Any:
            kept.append(args)
            return real(*args, **options)

        monkeypatch.setattr(bank.store, name, ask)
    return asked


def test_what_is_acknowledged_is_read_200_times(writer: Bank, reader: Bank, tmp_path: Path) -> None:
    for number in range(200):
        uri = picture(tmp_path, number) if number % 20 == 0 else None
        appended = writer.append("trip", [a_round(number, uri)])
        memory, version = reader.versioned("trip")
        assert (len(memory.rounds), version) == (number + 1, appended.version)
        assert best(reader, f"word{number}") == number
    assert (reader.cache.misses, reader.cache.extensions) == (1, 199)
    extended = find(reader, "word7 and word140").ranked
    reader.reload()
    assert find(reader, "word7 and word140").ranked == extended


def test_a_reader_reads_only_what_came_since(
    writer: Bank, reader: Bank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.append("trip", [a_round(n) for n in range(5)])
    find(reader, "word3")
    asked = fetches(reader, monkeypatch)
    find(reader, "word4")
    assert asked == {"fetch": [], "get": []}
    writer.append("trip", [a_round(5, picture(tmp_path, 5))])
    find(reader, "word5")
    assert asked["fetch"] == []
    read = [sorted(keys) for _, keys in asked["get"]]
    assert read[:2] == [["trip/r5/caption/1", "trip/r5/text/1"], ["trip/r5/image/1"]]
    assert read[2:] in ([], read[:2])  # once more where a server does not show them at once
    assert reader.hot_counts() == (1, 6 + 2)


@pytest.mark.parametrize("lag", ["missing", "older"])
def test_what_the_index_does_not_show_yet_is_waited_for(
    writer: Bank, reader: Bank, monkeypatch: pytest.MonkeyPatch, lag: str
) -> None:
    """A server shows the writes of the last seconds only to who waits for them."""
    waited: list[bool] = []

    def lagging(read: Callable[..., list[UnitRow]]) -> Callable[..., list[UnitRow]]:
        def late(*args: Any, strong: bool) -> list[UnitRow]:
            waited.append(strong)
            rows = read(*args, strong=True)
            if strong:
                return rows
            old = [copy(rows[-1], digest="of another text")] if lag == "older" else []
            return [*rows[:-1], *old]

        return late

    for name in ("fetch", "get"):
        monkeypatch.setattr(reader.store, name, lagging(getattr(reader.store, name)))
    writer.append("trip", [a_round(0), a_round(1)])
    assert best(reader, "word1") == 1
    writer.append("trip", [a_round(2)])
    assert best(reader, "word2") == 2
    assert waited == [False, True] * 2


@pytest.mark.parametrize("settings", ["milvus_lite_server"], indirect=True)  # it never lags
def test_what_the_index_shows_is_not_waited_for(
    writer: Bank, reader: Bank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[bool] = []
    for name in ("fetch", "get"):
        real = getattr(reader.store, name)

        def read(*args: Any, strong: bool, real: Any = real) -> Any:
            waited.append(strong)
            return real(*args, strong=strong)

        monkeypatch.setattr(reader.store, name, read)
    writer.append("trip", [a_round(0, picture(tmp_path, 0)), a_round(1)])
    assert best(reader, "word1") == 1
    writer.append("trip", [a_round(2)])
    assert best(reader, "word2") == 2
    assert waited == [False] * 3  # both collections, then what came since


def test_a_memory_of_many_units_is_read_a_page_at_a_time(
    writer: Bank, reader: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bank_index, "FETCHED_UNITS", 2)
    writer.append("trip", [a_round(number) for number in range(5)])
    asked = fetches(reader, monkeypatch)
    assert best(reader, "word4") == 4
    pages = [positions for _, _, positions in asked["fetch"]]
    assert pages[:3] == [[0, 1], [2, 3], [4]]  # and once more where the server lags


def test_a_reader_does_not_show_what_waits_for_the_index(writer: Bank, reader: Bank) -> None:
    writer.append("trip", [a_round(0)])
    writer.catalogue.append(writer.record.name, "trip", [a_round(1)])
    assert len(reader.memory("trip").rounds) == 1
    writer.append("trip", [a_round(1)])  # again, since nobody had acknowledged it
    assert len(reader.memory("trip").rounds) == 2
    assert best(reader, "word1") == 1


@pytest.mark.parametrize("number", [1, 2], ids=["unchanged", "new"])
def test_an_append_heals_what_a_crash_left(writer: Bank, reader: Bank, number: int) -> None:
    name = writer.record.name
    writer.append("trip", [a_round(0)])
    writer.catalogue.append(name, "trip", [a_round(1)])
    writer.append("trip", [a_round(number)])
    info = writer.catalogue.memory(name, "trip")
    assert info.indexed_version == info.version
    assert best(reader, "word1") == 1
    assert writer.store.count(writer.record.text_collection, "trip") == info.rounds


def test_a_writer_that_starts_heals_every_memory(writer: Bank, reader: Bank) -> None:
    name = writer.record.name
    for memory in ("a", "b", "c"):
        writer.append(memory, [a_round(0)])
    for memory in ("a", "c"):
        writer.catalogue.append(name, memory, [a_round(1)])
    assert writer.heal_all() == {}
    assert [info.indexed_version for info in writer.memories()] == [2, 1, 2]
    assert best(reader, "word1", "c") == 1


def test_a_reader_changes_nothing(writer: Bank, reader: Bank, settings: Settings) -> None:
    with pytest.raises(UnknownMemoryError):
        reader.memory("trip")
    with pytest.raises(StoreError, match=f"there is no bank {settings.store.bank} yet"):
        _ = reader.record
    writer.append("trip", [a_round(0)])
    for change in (
        lambda: reader.append("trip", [a_round(1)]),
        lambda: reader.append_many([("trip", [a_round(1)])]),
        lambda: reader.create("other"),
        lambda: reader.delete("trip"),
        lambda: reader.erase_round("trip", "r0"),
        lambda: reader.heal("trip"),
        reader.heal_all,
    ):
        with pytest.raises(StoreError, match="was opened to read"):
            change()
    texts = writer.record.text_collection
    writer.store.delete(texts, sorted(writer.store.ids(texts)))
    while reader.store.fetch(texts, "trip", strong=False):  # a server shows it a moment later
        time.sleep(0.05)
    with pytest.raises(StoreError, match="lacks units of memory trip"):
        reader.memory("trip")
    assert writer.store.count(texts) == 0, "it does not heal"
    writer.heal("trip")
    assert best(reader, "word0") == 0


def test_a_reader_of_other_encoders_is_refused(writer: Bank, settings: Settings) -> None:
    writer.append("trip", [a_round(0)])
    other = replace(settings, encoders={"image": {"kind": "none"}})
    with (
        Bank(other, writes=False) as bank,
        pytest.raises(EncoderMismatchError, match="image_encoder"),
    ):
        bank.memory("trip")


def test_an_erased_round_is_found_nowhere(
    writer: Bank, reader: Bank, tmp_path: Path, settings: Settings
) -> None:
    own, shared = picture(tmp_path, 1), picture(tmp_path, 2)
    rounds = [a_round(0), a_round(1, own), a_round(2), a_round(3, shared)]
    writer.append("trip", rounds)
    writer.append("other", [a_round(0, shared)])
    banks = (writer, reader)
    for bank in banks:
        assert best(bank, "word1") == 1
    version = writer.erase_round("trip", "r1")
    assert version == writer.catalogue.memory(settings.store.bank, "trip").version == 2
    for bank in banks:
        found = find(bank, "word1 shade 1")
        assert 1 not in {item.position for item in found.ranked}
        assert "word1" not in found.context.text
        assert all(1 not in block.positions for block in found.context.blocks)
        assert bank.versioned("trip")[1] == version
        assert [bool(round_.turns) for round_ in bank.rounds("trip")] == [True, False, True, True]
    record = writer.record
    assert writer.store.ids(record.text_collection, "trip") == {
        *(f"trip/r{n}/text/1" for n in (0, 2, 3)),
        "trip/r3/caption/1",
    }
    assert writer.store.ids(record.image_collection, "trip") == {"trip/r3/image/1"}
    assert writer.media.count() == 1
    writer.erase_round("trip", "r3")
    assert writer.media.count() == 1, "the other memory holds it"
    assert export_memory(reader, "trip", tmp_path / "out") == 2
    assert "word1" not in (tmp_path / "out" / "rounds.jsonl").read_text()
    appended = writer.append("trip", [a_round(4)])
    assert appended.added[0].position == 4
    assert best(reader, "word4") == 4


def test_rounds_on_both_sides_of_a_gap_are_not_neighbours(writer: Bank, reader: Bank) -> None:
    writer.append("trip", [a_round(n) for n in range(7)])
    writer.erase_round("trip", "r3")
    for bank in (writer, reader):
        (block,) = best_one(bank, "word2").context.blocks
        assert block.positions == (1, 2)
        (block,) = best_one(bank, "word4").context.blocks
        assert block.positions == (4, 5)


def best_one(bank: Bank, text: str) -> Retrieval:
    bank.settings = replace(bank.settings, retrieval={"top_k": 1, "window": 1})
    return find(bank, text)


def test_a_gap_has_no_date_to_be_found_by(writer: Bank, settings: Settings) -> None:
    writer.append("trip", [a_round(n) for n in range(3)])
    writer.erase_round("trip", "r1")
    lexical = {"level": "round", "session_date": True}
    by_round = replace(settings, retrieval={"lexical": lexical})
    with Bank(by_round, writes=False) as bank:
        ranked = find(bank, "what happened on 2 March 2026?").ranked
    assert {item.position for item in ranked} == {0, 2}


def test_an_erasure_that_went_wrong_is_finished_when_tried_again(
    writer: Bank, reader: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.append("trip", [a_round(0), a_round(1)])

    def fail(*_: object) -> None:
        raise StoreError("Milvus is away")

    monkeypatch.setattr(writer.store, "delete", fail)
    with pytest.raises(StoreError, match=r"Milvus is away.*gone from the log of trip"):
        writer.erase_round("trip", "r1")
    with pytest.raises(StoreError, match="Milvus is away"):
        writer.erase_round("trip", "r1")
    monkeypatch.undo()
    with pytest.raises(UnknownRoundError):
        writer.erase_round("trip", "r1")
    assert writer.store.ids(writer.record.text_collection, "trip") == {"trip/r0/text/1"}
    assert "word1" not in find(reader, "word1").context.text


def test_a_deleted_memory_is_found_by_nobody(writer: Bank, reader: Bank, tmp_path: Path) -> None:
    writer.append("trip", [a_round(n, picture(tmp_path, n)) for n in range(3)])
    for bank in (writer, reader):
        assert best(bank, "word1") == 1
    writer.delete("trip")
    for bank in (writer, reader):
        with pytest.raises(UnknownMemoryError):
            find(bank, "word1")
        assert bank.hot_counts() == (0, 0)
    assert writer.media.count() == 0
    for collection in (writer.record.text_collection, writer.record.image_collection):
        assert writer.store.count(collection) == 0
    writer.append("trip", [a_round(n) for n in range(10, 13)])
    for bank in (writer, reader):
        assert [round_.id for round_ in bank.memory("trip").rounds] == ["r10", "r11", "r12"]
        assert best(bank, "word11") == 1


def test_a_memory_made_anew_is_not_taken_for_the_old_one(writer: Bank, reader: Bank) -> None:
    writer.append("trip", [a_round(0)])
    assert best(reader, "word0") == 0
    writer.delete("trip")
    writer.create("trip")
    assert reader.memory("trip").rounds == ()
    writer.delete("trip")
    writer.append("trip", [a_round(1)])
    writer.append("trip", [a_round(2)])
    memory = reader.memory("trip")
    assert [round_.id for round_ in memory.rounds] == ["r1", "r2"]


def test_a_deletion_cut_off_half_way_loses_nothing(
    writer: Bank, reader: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.append("trip", [a_round(0), a_round(1)])

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(writer.catalogue, "delete_memory", die)
    with pytest.raises(KeyboardInterrupt):
        writer.delete("trip")
    monkeypatch.undo()
    assert writer.store.count(writer.record.text_collection, "trip") == 0
    writer.heal_all()
    assert best(reader, "word1") == 1


def test_a_reader_follows_a_build_to_other_collections(writer: Bank, reader: Bank) -> None:
    """What a build does at its end: other rounds in other collections, the old ones dropped."""
    writer.append("trip", [a_round(0), a_round(1)])
    assert best(reader, "word1") == 1
    old = writer.record
    dialogue_rounds = writer.rounds("trip")
    for collection, width in ((old.text_collection, 32), (old.image_collection, old.image_width)):
        writer.store.create(f"{collection}_new", width)
    rows = writer.store.fetch(old.text_collection, "trip")
    writer.store.upsert(f"{old.text_collection}_new", [row for row in rows if row.round == 0])
    writer.catalogue.replace_bank(
        old.name,
        [Dialogue(id="trip", rounds=dialogue_rounds[:1])],
        text_collection=f"{old.text_collection}_new",
        image_collection=f"{old.image_collection}_new",
        manifest_digest="m",
    )
    for collection in (old.text_collection, old.image_collection):
        writer.store.drop(collection)
    assert len(reader.memory("trip").rounds) == 1
    writer.append("trip", [a_round(2)])
    assert writer.store.count(f"{old.text_collection}_new") == 2
    assert best(reader, "word2") == 1


def test_a_large_memory_is_followed_too(writer: Bank, settings: Settings) -> None:
    small = replace(settings, store={"exact_limit": 4})
    with Bank(small, writes=False) as reader:
        writer.append("trip", [a_round(n) for n in range(4)])
        assert not isinstance(reader.memory("trip"), MilvusMemory)
        for number in range(4, 8):
            writer.append("trip", [a_round(number)])
            assert isinstance(reader.memory("trip"), MilvusMemory)
            assert best(reader, f"word{number}") == number
        writer.erase_round("trip", "r6")
        assert "word6" not in find(reader, "word6").context.text
        assert best(reader, "word7") == 7


def test_a_memory_without_rounds_can_be_searched(writer: Bank, reader: Bank) -> None:
    info = writer.create("trip")
    assert writer.create("trip") == info
    assert find(reader, "word0").ranked == ()
    writer.append("trip", [a_round(0)])
    assert best(reader, "word0") == 0
    writer.erase_round("trip", "r0")
    assert find(reader, "word0").ranked == ()


def test_memories_are_held_up_to_a_number_of_units(writer: Bank, settings: Settings) -> None:
    for name in ("a", "b", "c"):
        writer.append(name, [a_round(n) for n in range(10)])
    writer.append("large", [a_round(n) for n in range(26)])
    with Bank(replace(settings, store={"hot_units": 25}), writes=False) as reader:
        for name in ("a", "b", "a", "c", "a"):
            assert best(reader, "word3", name) == 3
        assert reader.hot_counts() == (2, 20)
        assert (reader.cache.misses, reader.cache.hits) == (3, 2)
        best(reader, "word3", "b")
        assert reader.cache.misses == 4, "b was not searched for longest, so it had gone"
        assert best(reader, "word25", "large") == 25
        assert reader.hot_counts() == (2, 20), "what is over the limit alone is not held"


def test_a_memory_is_read_once_for_all_that_wait_for_it(
    writer: Bank, reader: Bank, at_once: AtOnce
) -> None:
    for name in ("a", "b"):
        writer.append(name, [a_round(n) for n in range(20)])
    at_once([partial(reader.memory, name) for name in "abab" * 2])
    assert (reader.cache.misses, reader.cache.hits) == (2, 6)


def test_writers_and_readers_of_many_threads(writer: Bank, reader: Bank, at_once: AtOnce) -> None:
    def write(name: str) -> None:
        for number in range(8):
            round_ = exchange(
                f"{name}-{number}", session="D1", time="2026-03-02", user=f"word {name} {number}"
            )
            appended = writer.append("trip", [round_])
            memory, version = reader.versioned("trip")
            assert version >= appended.version
            assert memory.rounds[appended.added[0].position].id == round_.id

    at_once([partial(write, name) for name in "abcd"])
    rounds = writer.rounds("trip")
    assert [round_.position for round_ in rounds] == list(range(32))
    for name in "abcd":
        ids = [round_.id for round_ in rounds if round_.id.startswith(name)]
        assert ids == [f"{name}-{number}" for number in range(8)], "in the order of its writer"
    assert writer.store.count(writer.record.text_collection, "trip") == 32


def test_a_memory_stays_readable_when_its_home_moves(
    writer: Bank, settings: Settings, tmp_path: Path
) -> None:
    writer.append("trip", [a_round(0, picture(tmp_path, 7))])
    (uri,) = [image.uri for image in writer.rounds("trip")[0].images]
    moved = tmp_path / "moved"
    shutil.copytree(settings.store.home, moved)
    shutil.rmtree(settings.store.home / "images")
    with Bank(replace(settings, store={"home": moved})) as bank:
        assert bank.parts.read_image(uri or "") == (tmp_path / "7.png").read_bytes()
        images = bank.record.image_collection
        bank.store.delete(images, sorted(bank.store.ids(images)))
        bank.heal("trip")
        assert bank.store.count(images) == 1
        assert bank.append("trip", [a_round(0, str(tmp_path / "7.png"))]).unchanged == 1
