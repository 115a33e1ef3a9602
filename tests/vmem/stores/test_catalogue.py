"""One contract for the catalogue and the round log, held by SQLite and by PostgreSQL."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from vmem.config import UnitSettings
from vmem.errors import (
    DataError,
    EncoderMismatchError,
    RoundConflictError,
    StoreBusyError,
    StoreError,
    UnknownMemoryError,
)
from vmem.stores import statements
from vmem.stores.catalogue import Bank, Catalogue, dialogues_digest
from vmem.types import Dialogue, Image, Round, Turn

AtOnce = Callable[[list[Callable[[], object]]], None]


def a_round(name: str = "r0", text: str = "hello", images: int = 0, position: int = 0) -> Round:
    pictures = tuple(
        Image(id=f"{name}:{n}", uri=f"/here/{n}.png", digest=f"{n:x}" * 64) for n in range(images)
    )
    turn = Turn(source_id=name, speaker="Ann", text=text, images=pictures)
    return Round(id=name, position=position, session="s1", time="2023-05-08", turns=(turn,))


def a_dialogue(name: str, count: int) -> Dialogue:
    rounds = tuple(a_round(f"r{n}", f"{name} {n}", images=n % 2, position=n) for n in range(count))
    return Dialogue(id=name, rounds=rounds)


def test_a_bank_is_made_once(bank: Bank, catalogue: Catalogue, url: str) -> None:
    assert catalogue.bank("demo") == bank
    assert catalogue.bank("other") is None
    moved = replace(bank, text_collection="elsewhere", manifest_digest="d")
    assert catalogue.ensure_bank(moved) == bank
    other = replace(bank, name="b", units=UnitSettings(fold_captions=False), kind="built")
    assert catalogue.ensure_bank(other) == other
    assert catalogue.banks() == [other, bank]
    again = Catalogue(url)
    assert again.banks() == [other, bank]
    again.close()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"text_encoder": "minilm-2"}, "text_encoder minilm-1 (not minilm-2)"),
        ({"text_width": 768}, "text_width 384 (not 768)"),
        ({"image_encoder": "siglip"}, "image_encoder none (not siglip)"),
        ({"image_width": 768}, "image_width 0 (not 768)"),
        ({"units": UnitSettings(split_long_spans=True)}, "units fold_captions=True split_long"),
    ],
)
def test_a_bank_of_other_encoders_is_refused(
    bank: Bank, catalogue: Catalogue, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(EncoderMismatchError) as caught:
        catalogue.ensure_bank(replace(bank, **changes))
    assert str(caught.value).startswith(f"bank demo was made with {told}")
    assert catalogue.banks() == [bank]


def test_a_bank_record_changes(bank: Bank, catalogue: Catalogue) -> None:
    catalogue.update_bank("demo", text_collection="new", manifest_digest="m")
    changed = replace(bank, text_collection="new", manifest_digest="m")
    assert catalogue.bank("demo") == changed
    catalogue.update_bank("demo", manifest_digest=None)
    assert catalogue.bank("demo") == replace(changed, manifest_digest=None)
    with pytest.raises(StoreError, match="there is no bank nowhere; known: demo"):
        catalogue.update_bank("nowhere", manifest_digest="m")


def test_a_memory_is_made_once(catalogue: Catalogue) -> None:
    before = datetime.now(UTC)
    info = catalogue.create_memory("demo", "Ann & co".replace("&", "/"))
    assert (info.rounds, info.images, info.version, info.indexed_version) == (0, 0, 0, 0)
    assert before - timedelta(seconds=1) <= info.created_at <= datetime.now(UTC)
    assert catalogue.create_memory("demo", "Ann / co") == info
    assert catalogue.memory("demo", "Ann / co") == info
    assert catalogue.memories("demo") == [info]
    assert catalogue.memories("nowhere") == []
    assert catalogue.rounds("demo", "Ann / co") == ()


@pytest.mark.parametrize("name", ["a", "conv-26", "t1/日本 語:x@y.z", "_", "x" * 200])
def test_ids_that_name_memories(catalogue: Catalogue, name: str) -> None:
    catalogue.append("demo", name, [a_round()])
    assert catalogue.memory("demo", name).rounds == 1


@pytest.mark.parametrize(
    "name",
    ["", " a", "a ", "-a", "../a", "a\n", "a\x00", "a'b", 'a"b', "a%", "a\\", "x" * 201, "\ud83d"],
)
def test_ids_that_name_no_memory(catalogue: Catalogue, name: str) -> None:
    for ask in (
        lambda: catalogue.create_memory("demo", name),
        lambda: catalogue.append("demo", name, [a_round()]),
        lambda: replace_bank(catalogue, [Dialogue(id=name, rounds=())]),
    ):
        with pytest.raises(DataError, match="cannot name a memory"):
            ask()
    with pytest.raises(UnknownMemoryError):
        catalogue.memory("demo", name)
    assert catalogue.memories("demo") == []


def test_an_unknown_memory_is_told_with_some_that_are_known(catalogue: Catalogue) -> None:
    with pytest.raises(UnknownMemoryError, match="has no memory 'x'; it has none yet"):
        catalogue.memory("demo", "x")
    for name in "gfedcba":
        catalogue.create_memory("demo", name)
    for ask in (
        lambda: catalogue.memory("demo", "x"),
        lambda: catalogue.rounds("demo", "x"),
        lambda: catalogue.mark_indexed("demo", "x", 0),
        lambda: catalogue.delete_memory("demo", "x"),
    ):
        with pytest.raises(
            UnknownMemoryError, match=r"no memory 'x'; it has a, b, c, d, e, \.\.\."
        ):
            ask()
    with pytest.raises(StoreError, match="there is no bank nowhere; known: demo"):
        catalogue.append("nowhere", "a", [a_round()])


def test_appends_go_on_from_the_end(catalogue: Catalogue) -> None:
    first = catalogue.append("demo", "m", [a_round("r0"), a_round("r1", images=2, position=77)])
    assert [(r.id, r.position) for r in first.added] == [("r0", 0), ("r1", 1)]
    assert (first.version, first.unchanged) == (1, 0)
    second = catalogue.append("demo", "m", [a_round("r2", images=1)])
    assert [(r.id, r.position) for r in second.added] == [("r2", 2)]
    assert (second.version, second.unchanged) == (2, 0)
    assert catalogue.rounds("demo", "m") == (*first.added, *second.added)
    assert catalogue.rounds("demo", "m", after_version=1) == second.added
    assert catalogue.rounds("demo", "m", up_to_version=1) == first.added
    assert catalogue.rounds("demo", "m", after_version=2) == ()
    info = catalogue.memory("demo", "m")
    assert (info.rounds, info.images, info.version, info.indexed_version) == (3, 3, 2, 0)
    assert catalogue.append("demo", "m", []).version == 2


def test_appending_twice_is_appending_at_once(catalogue: Catalogue) -> None:
    rounds = [a_round(f"r{n}", str(n)) for n in range(5)]
    catalogue.append("demo", "once", rounds)
    for n in range(5):
        catalogue.append("demo", "twice", rounds[n : n + 2])
    assert catalogue.rounds("demo", "once") == catalogue.rounds("demo", "twice")


def test_a_round_that_is_there_is_no_change(
    catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statements, "_PARAMETERS", 2)
    rounds = [a_round(f"r{n}", images=n) for n in range(5)]
    catalogue.append("demo", "m", rounds)
    moved = [replace(round_, position=9) for round_ in rounds]
    again = catalogue.append("demo", "m", moved)
    assert (again.version, again.added, again.unchanged) == (1, (), 5)
    both = catalogue.append("demo", "m", [rounds[3], a_round("new"), a_round("new")])
    assert [(r.id, r.position) for r in both.added] == [("new", 5)]
    assert (both.version, both.unchanged) == (2, 2)
    assert catalogue.memory("demo", "m").rounds == 6


@pytest.mark.parametrize(
    "rounds",
    [
        [a_round("new"), a_round("r0", "other")],
        [a_round("new", "one"), a_round("new", "other")],
    ],
    ids=["in the log", "in the call"],
)
def test_a_round_of_other_content_stops_the_whole_append(
    catalogue: Catalogue, rounds: list[Round]
) -> None:
    catalogue.append("demo", "m", [a_round("r0")])
    before = catalogue.memory("demo", "m")
    with pytest.raises(RoundConflictError, match=f"memory m has a round {rounds[1].id} of other"):
        catalogue.append("demo", "m", rounds)
    assert catalogue.memory("demo", "m") == before
    assert [r.id for r in catalogue.rounds("demo", "m")] == ["r0"]
    with pytest.raises(RoundConflictError):
        catalogue.append("demo", "fresh", [a_round("x", "one"), a_round("x", "other")])
    assert [info.id for info in catalogue.memories("demo")] == ["m"]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"id": ""}, "the round at position 0 has no id"),
        ({"id": "a\x00"}, "has the id"),
        ({"id": "x" * 201}, "has the id"),
        ({"session": "\ud83d"}, "has the session"),
        ({"time": "noon\n"}, "has the time"),
    ],
)
def test_a_round_that_cannot_be_kept_stops_the_whole_append(
    catalogue: Catalogue, changes: dict[str, str], told: str
) -> None:
    with pytest.raises(DataError, match=told):
        catalogue.append("demo", "m", [a_round("good"), replace(a_round(), **changes)])
    assert catalogue.memories("demo") == []


def test_any_text_is_kept(catalogue: Catalogue) -> None:
    round_ = a_round(text="NUL \x00, half a pair \ud83d, 日本🎈, '\"\\ %s :x")
    catalogue.append("demo", "m", [round_])
    assert catalogue.rounds("demo", "m") == (round_,)


def test_what_is_indexed_never_goes_back(catalogue: Catalogue) -> None:
    for n in range(3):
        catalogue.append("demo", "m", [a_round(f"r{n}")])
    for version, noted in ((2, 2), (1, 2), (3, 3)):
        catalogue.mark_indexed("demo", "m", version)
        assert catalogue.memory("demo", "m").indexed_version == noted
    with pytest.raises(StoreError, match="memory m is at version 3, so version 4"):
        catalogue.mark_indexed("demo", "m", 4)


def test_an_erased_memory_leaves_nothing_and_its_versions_are_not_given_again(
    catalogue: Catalogue,
) -> None:
    catalogue.append("demo", "m", [a_round("r0", images=2), a_round("r1")])
    catalogue.append("demo", "m", [a_round("r2")])
    catalogue.append("demo", "other", [a_round("r0", images=1)])
    old = catalogue.memory("demo", "m")
    assert catalogue.image_digests() == {"0" * 64, "1" * 64}
    catalogue.delete_memory("demo", "m")
    assert [info.id for info in catalogue.memories("demo")] == ["other"]
    assert catalogue.image_digests() == {"0" * 64}
    new = catalogue.create_memory("demo", "m")
    assert new.version == new.indexed_version == old.version + 1
    assert new.created_at > old.created_at
    appended = catalogue.append("demo", "m", [a_round("r0", "something else")])
    assert appended.version == old.version + 2
    assert catalogue.rounds("demo", "m") == appended.added
    assert catalogue.memory("demo", "m").images == 0


def replace_bank(catalogue: Catalogue, dialogues: list[Dialogue], **changes: Any) -> None:
    values = {"text_collection": "t2", "image_collection": "i2", "manifest_digest": "m2"}
    catalogue.replace_bank("demo", dialogues, **{**values, **changes})


def test_a_build_replaces_the_whole_bank(bank: Bank, catalogue: Catalogue) -> None:
    catalogue.append("demo", "a", [a_round("r0", "will be gone")])
    catalogue.append("demo", "gone", [a_round("r0")])
    dialogues = [a_dialogue("b", 3), a_dialogue("a", 2), a_dialogue("empty", 0)]
    replace_bank(catalogue, dialogues)
    assert catalogue.bank("demo") == replace(
        bank, text_collection="t2", image_collection="i2", manifest_digest="m2"
    )
    infos = catalogue.memories("demo")
    assert [(info.id, info.rounds, info.images) for info in infos] == [
        ("a", 2, 1),
        ("b", 3, 1),
        ("empty", 0, 0),
    ]
    for info in infos:
        assert info.version == info.indexed_version == info.built_version == 2
    for dialogue in dialogues:
        assert catalogue.rounds("demo", dialogue.id) == dialogue.rounds
    assert catalogue.bank_digest("demo") == dialogues_digest(dialogues)


def test_what_is_appended_after_a_build_can_be_told(catalogue: Catalogue) -> None:
    replace_bank(catalogue, [a_dialogue("a", 2)])
    built = catalogue.memory("demo", "a").built_version
    assert built == 1
    appended = catalogue.append("demo", "a", [a_round("r9")])
    fresh = catalogue.append("demo", "b", [a_round("r0")])
    assert catalogue.rounds("demo", "a", after_version=built) == appended.added
    assert catalogue.memory("demo", "b").built_version == 0
    assert catalogue.rounds("demo", "b", after_version=0) == fresh.added
    replace_bank(catalogue, [a_dialogue("a", 2)])
    again = catalogue.memory("demo", "a")
    assert again.version == again.built_version == appended.version + 1
    assert catalogue.rounds("demo", "a", after_version=again.built_version) == ()


def test_a_build_leaves_a_bank_alone_that_changed_meanwhile(
    bank: Bank, catalogue: Catalogue
) -> None:
    empty = catalogue.bank_digest("demo")
    assert empty == dialogues_digest([])
    catalogue.append("demo", "a", [a_round()])
    with pytest.raises(StoreError, match="bank demo was appended to while it was built"):
        replace_bank(catalogue, [a_dialogue("a", 2)], expected_digest=empty)
    assert catalogue.bank("demo") == bank
    assert catalogue.rounds("demo", "a") == (a_round(),)
    replace_bank(catalogue, [a_dialogue("a", 2)], expected_digest=catalogue.bank_digest("demo"))
    assert catalogue.memory("demo", "a").rounds == 2


@pytest.mark.parametrize(
    ("dialogues", "told"),
    [
        ([a_dialogue("a", 1), a_dialogue("a", 1)], "two dialogues are named a"),
        ([Dialogue(id="a", rounds=(a_round(position=1),))], "says position 1 and stands at 0"),
        (
            [Dialogue(id="a", rounds=(a_round(), a_round(text="x", position=1)))],
            "dialogue a has two rounds r0",
        ),
    ],
)
def test_a_build_of_dialogues_that_clash_changes_nothing(
    catalogue: Catalogue, dialogues: list[Dialogue], told: str
) -> None:
    catalogue.append("demo", "m", [a_round()])
    with pytest.raises(DataError, match=told):
        replace_bank(catalogue, dialogues)
    assert [info.id for info in catalogue.memories("demo")] == ["m"]


def test_the_digest_of_a_bank_is_that_of_its_rounds_in_order(catalogue: Catalogue) -> None:
    for name in ("b", "A", "a/1", "a 1", "é"):  # sorted differently by different databases
        for n in range(12):
            catalogue.append("demo", name, [a_round(f"r{n}", f"{name} {n}")])
    held = [
        Dialogue(id=info.id, rounds=catalogue.rounds("demo", info.id))
        for info in catalogue.memories("demo")
    ]
    assert catalogue.bank_digest("demo") == dialogues_digest(held)
    before = catalogue.bank_digest("demo")
    catalogue.append("demo", "b", [a_round("new")])
    assert catalogue.bank_digest("demo") != before


def test_writers_at_once_take_their_turns(catalogue: Catalogue, url: str, at_once: AtOnce) -> None:
    second = Catalogue(url, busy_timeout_s=30)
    shared = a_round("shared")

    def write(writer: Catalogue, name: str) -> None:
        for n in range(15):
            writer.append("demo", "m", [a_round(f"{name}{n}"), shared])

    writers = [(catalogue, "a"), (catalogue, "b"), (second, "c"), (second, "d")]
    at_once([partial(write, *writer) for writer in writers])
    rounds = catalogue.rounds("demo", "m")
    assert [round_.position for round_ in rounds] == list(range(4 * 15 + 1))
    assert {r.id for r in rounds} == {f"{w}{n}" for w in "abcd" for n in range(15)} | {"shared"}
    assert catalogue.memory("demo", "m").version == 4 * 15
    second.close()


def test_memories_and_tables_made_at_once_are_made_once(
    bank: Bank, url: str, at_once: AtOnce
) -> None:
    def open_and_make() -> None:
        catalogue = Catalogue(url)
        catalogue.ensure_bank(bank)
        catalogue.create_memory("demo", "m")
        catalogue.close()

    at_once([open_and_make] * 6)
    catalogue = Catalogue(url)
    assert [info.id for info in catalogue.memories("demo")] == ["m"]
    catalogue.close()


def test_a_writer_that_holds_on_is_told_of(catalogue: Catalogue, url: str) -> None:
    catalogue.create_memory("demo", "m")
    hasty = Catalogue(url, busy_timeout_s=0.2)
    with catalogue._database.writing("wait") as connection:
        statements.find(connection, "demo", "m", lock=True)
        with pytest.raises(StoreBusyError, match="could not append to memory m: another writer"):
            hasty.append("demo", "m", [a_round()])
        assert hasty.rounds("demo", "m") == ()
    assert hasty.append("demo", "m", [a_round()]).version == 1
    hasty.close()


@pytest.mark.parametrize(
    ("version", "mend"),
    [
        (1, r"with the vmem that made it, write each memory out .*import.* make API keys anew"),
        (99, r"use the newer vmem that made it, or another database"),
    ],
)
def test_tables_of_another_version_are_refused(
    catalogue: Catalogue, url: str, version: int, mend: str
) -> None:
    with catalogue._database.writing("age") as connection:
        connection.execute(sa.text(f"UPDATE schema_version SET version = {version}"))
    told = (
        rf"^the catalogue .* has tables of version {version} and this vmem uses version 2: {mend}"
    )
    with pytest.raises(StoreError, match=told) as raised:
        Catalogue(url)
    assert "\n" not in str(raised.value)


def test_a_database_that_lacks_a_newer_table_gets_it(catalogue: Catalogue, url: str) -> None:
    catalogue.append("demo", "m", [a_round()])
    with catalogue._database.writing("age") as connection:
        connection.execute(sa.text("DROP TABLE loose_media"))
    opened = Catalogue(url)
    assert opened.loose_media("demo") == []
    assert len(opened.rounds("demo", "m")) == 1
    opened.close()
