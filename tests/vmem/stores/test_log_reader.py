"""Erasures, pages and changes of the round log, held by SQLite and by PostgreSQL."""

import hashlib
import sqlite3
from dataclasses import replace

import pytest
import sqlalchemy as sa

from vmem.errors import RoundConflictError, UnknownMemoryError, UnknownRoundError
from vmem.stores.catalogue import Catalogue, dialogues_digest
from vmem.types import Dialogue, Image, Round, Turn

RED, BLUE, VOICE = (hashlib.sha256(name.encode()).hexdigest() for name in ("red", "blue", "voice"))
AUDIO = f"/store/{VOICE[:2]}/{VOICE[2:]}.wav"


def a_round(name: str, *digests: str, text: str = "hello", audio: str | None = None) -> Round:
    images = tuple(Image(id=f"{name}:{d[:2]}", uri=f"/{d}.png", digest=d) for d in digests)
    turn = Turn(source_id=name, speaker="Ann", text=text, images=images, audio=audio)
    return Round(id=name, position=0, session=f"s-{name}", time="2023-05-08", turns=(turn,))


def three_rounds(catalogue: Catalogue) -> tuple[Round, ...]:
    rounds = [a_round("r0", RED), a_round("r1", RED, BLUE, text="a secret"), a_round("r2")]
    added = catalogue.append("demo", "m", rounds).added
    catalogue.mark_indexed("demo", "m", 1)
    return added


def test_an_erased_round_leaves_a_gap_that_says_nothing(catalogue: Catalogue) -> None:
    added = three_rounds(catalogue)
    erased = catalogue.erase_round("demo", "m", "r1")
    assert (erased.version, erased.round) == (2, added[1])
    gap = replace(added[1], turns=())
    assert catalogue.rounds("demo", "m") == (added[0], gap, added[2])
    assert catalogue.rounds_page("demo", "m") == (added[0], added[2])
    info = catalogue.memory("demo", "m")
    assert (info.rounds, info.erased, info.images, info.version, info.indexed_version) == (
        *(3, 1, 1, 2, 1),
    )
    dialogue = Dialogue(id="m", rounds=catalogue.rounds("demo", "m"))
    assert catalogue.bank_digest("demo") == dialogues_digest([dialogue])
    (next_,) = catalogue.append("demo", "m", [a_round("r3")]).added
    assert next_.position == 3, "positions count gaps"


def test_what_is_erased_is_no_longer_a_round(catalogue: Catalogue) -> None:
    three_rounds(catalogue)
    catalogue.erase_round("demo", "m", "r1")
    before = catalogue.memory("demo", "m")
    for ask in (catalogue.erase_round, catalogue.round):
        with pytest.raises(UnknownRoundError, match="memory m has no more the round 'r1'"):
            ask("demo", "m", "r1")
        for unknown in ("r9", "", "x" * 201, "a\x00", "\ud83d"):
            with pytest.raises(UnknownRoundError, match="memory m has no round"):
                ask("demo", "m", unknown)
        with pytest.raises(UnknownMemoryError):
            ask("demo", "nobody", "r1")
    assert catalogue.memory("demo", "m") == before


@pytest.mark.parametrize("text", ["a secret", "something else"])
def test_an_erased_id_stays_taken(catalogue: Catalogue, text: str) -> None:
    three_rounds(catalogue)
    catalogue.erase_round("demo", "m", "r1")
    with pytest.raises(RoundConflictError, match="round r1 of memory m was erased and its id"):
        catalogue.append("demo", "m", [a_round("r9"), a_round("r1", RED, BLUE, text=text)])
    assert [r.id for r in catalogue.rounds("demo", "m")] == ["r0", "r1", "r2"]
    assert catalogue.append("demo", "other", [a_round("r1")]).version == 1


def test_media_are_held_by_the_rounds_that_are_left(catalogue: Catalogue) -> None:
    three_rounds(catalogue)
    catalogue.append("demo", "m", [a_round("v", audio=AUDIO), a_round("w", audio="/tmp/my.wav")])
    assert catalogue.image_digests() == {RED, BLUE, VOICE}
    assert catalogue.image_digests({BLUE, "0" * 64}) == {BLUE}
    for digest in (RED, BLUE, VOICE):
        assert catalogue.has_image("demo", "m", digest)
        assert not catalogue.has_image("demo", "other", digest)
        assert not catalogue.has_image("other", "m", digest)
    catalogue.erase_round("demo", "m", "r1")
    catalogue.erase_round("demo", "m", "v")
    assert [catalogue.has_image("demo", "m", d) for d in (RED, BLUE, VOICE)] == [True, False, False]
    assert catalogue.image_digests() == {RED}
    for odd in ("", "%", "x" * 500, "a\x00", "\ud83d"):
        assert not catalogue.has_image("demo", "m", odd)


def test_nothing_of_an_erased_round_is_left_in_the_file(catalogue: Catalogue, url: str) -> None:
    if not url.startswith("sqlite"):
        pytest.skip("PostgreSQL clears dead rows by itself, in its vacuum")
    secret = "marmalade" * 900  # over several pages of the file
    catalogue.append("demo", "m", [a_round("r0"), a_round("r1", text=secret), a_round("r2")])
    file = sa.make_url(url).database or ""
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with open(file, "rb") as opened:  # noqa: PTH123
        assert b"marmalade" in opened.read()
    catalogue.erase_round("demo", "m", "r1")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    with open(file, "rb") as opened:  # noqa: PTH123
        assert b"marmalade" not in opened.read()


def test_one_round(catalogue: Catalogue) -> None:
    added = three_rounds(catalogue)
    assert catalogue.round("demo", "m", "r2") == added[2]


def test_rounds_by_page(catalogue: Catalogue) -> None:
    catalogue.append("demo", "m", [a_round(f"r{n}") for n in range(10)])
    for name in ("r0", "r4", "r5"):
        catalogue.erase_round("demo", "m", name)
    pages, after = [], -1
    while page := catalogue.rounds_page("demo", "m", after, 3):
        pages.append([round_.position for round_ in page])
        after = page[-1].position
    assert pages == [[1, 2, 3], [6, 7, 8], [9]]
    with pytest.raises(UnknownMemoryError):
        catalogue.rounds_page("demo", "nobody")


def test_memories_by_page_and_by_tenant(catalogue: Catalogue) -> None:
    names = [
        "a/1",
        "a/Z",
        "a/b",
        "a/é",
        "a/日",
        "ab/1",
        "A/1",
        "a_/1",
        "ax/1",
        "b",
        "plain",
        "Z",
        "_",
    ]
    for name in names:
        catalogue.create_memory("demo", name)

    def page(prefix: str, after: str = "", limit: int = 100) -> list[str]:
        return [info.id for info in catalogue.memories_page("demo", prefix, after, limit)]

    assert page("a/") == ["a/1", "a/Z", "a/b", "a/é", "a/日"]
    assert page("a/", limit=2) == ["a/1", "a/Z"]
    assert page("a/", "a/Z", 2) == ["a/b", "a/é"]
    assert page("a/", "a/日") == []
    assert page("a/", "Z") == page("a/"), "an `after` of somebody else's opens nothing"
    assert page("a_/") == ["a_/1"], "no wild card"
    assert page("%") == page("A/1/") == []
    assert page("") == ["Z", "_", "b", "plain"]
    assert page("", "_", 1) == ["b"]
    assert catalogue.memories_page("nowhere", "") == []


def test_changes_go_as_far_as_the_index(catalogue: Catalogue) -> None:
    added = three_rounds(catalogue)
    catalogue.append("demo", "m", [a_round("r3")])
    changes = catalogue.changes("demo", "m")
    assert changes.rounds == added, "r3 waits for the index"
    assert (changes.info.version, changes.info.indexed_version) == (2, 1)
    catalogue.mark_indexed("demo", "m", 2)
    assert [r.id for r in catalogue.changes("demo", "m", 1).rounds] == ["r3"]
    assert catalogue.changes("demo", "m", 2).rounds == ()
    with pytest.raises(UnknownMemoryError):
        catalogue.changes("demo", "nobody")


def test_a_gap_shows_at_once_and_no_position_is_left_out(catalogue: Catalogue) -> None:
    three_rounds(catalogue)
    catalogue.append("demo", "m", [a_round("r3")])
    catalogue.append("demo", "m", [a_round("r4")])
    catalogue.erase_round("demo", "m", "r4")
    catalogue.erase_round("demo", "m", "r0")
    rounds = catalogue.changes("demo", "m").rounds
    assert [(r.position, bool(r.turns)) for r in rounds] == [(0, False), (1, True), (2, True)]
    catalogue.mark_indexed("demo", "m", 5)
    rounds = catalogue.changes("demo", "m", 1).rounds
    assert [(r.id, bool(r.turns)) for r in rounds] == [("r0", False), ("r3", True), ("r4", False)]


def test_an_append_tells_that_the_index_was_behind(catalogue: Catalogue) -> None:
    assert not catalogue.append("demo", "m", [a_round("r0")]).behind
    assert catalogue.append("demo", "m", [a_round("r0")]).behind
    assert catalogue.append("demo", "m", [a_round("r1")]).behind
    catalogue.mark_indexed("demo", "m", 2)
    assert not catalogue.append("demo", "m", [a_round("r1")]).behind
    catalogue.mark_unindexed("demo", "m")
    info = catalogue.memory("demo", "m")
    assert (info.version, info.indexed_version) == (3, 2)
    assert catalogue.append("demo", "m", [a_round("r1")]).behind


def test_memories_and_the_rounds_that_they_hold_are_counted(catalogue: Catalogue) -> None:
    assert catalogue.counts("demo") == (0, 0)
    three_rounds(catalogue)
    catalogue.create_memory("demo", "empty")
    catalogue.append("demo", "other", [a_round("r0")])
    assert catalogue.counts("demo") == (3, 3 + 1)
    catalogue.erase_round("demo", "m", "r1")
    assert catalogue.counts("demo") == (3, 2 + 1), "a gap is no round"
    catalogue.delete_memory("demo", "m")
    assert catalogue.counts("demo") == (2, 1)
    assert catalogue.counts("nobody") == (0, 0)
