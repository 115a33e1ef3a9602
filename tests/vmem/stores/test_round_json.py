"""Rounds as JSON and as digests."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmem.errors import DataError
from vmem.stores.round_json import (
    dialogues_digest,
    round_digest,
    round_from_json,
    round_to_json,
)
from vmem.types import Dialogue, Image, Round, Turn

TEXT = st.text(st.characters(), max_size=12)  # half surrogate pairs and NUL are among them
IMAGES = st.builds(
    Image, id=TEXT, uri=st.none() | TEXT, caption=TEXT, digest=st.none() | st.just("ab" * 32)
)
TURNS = st.builds(
    Turn,
    source_id=TEXT,
    speaker=TEXT,
    text=TEXT,
    images=st.lists(IMAGES, max_size=2).map(tuple),
    audio=st.none() | TEXT,
    transcript=TEXT,
)
ROUNDS = st.builds(
    Round,
    id=TEXT,
    position=st.integers(0, 10**6),
    session=TEXT,
    time=TEXT,
    turns=st.lists(TURNS, max_size=3).map(tuple),
)
IMAGE = Image(id="D1:IMG_001", uri="/here/a.png", caption="a dog", digest="ab" * 32)
ROUND = Round(
    id="r1",
    position=3,
    session="s1",
    time="2023-05-08",
    turns=(
        Turn(source_id="D1:1", speaker="Ann", text="look", images=(IMAGE,)),
        Turn(source_id="D1:2", speaker="Bob", audio="/here/a.wav", transcript="nice"),
    ),
)


def with_image(**changes: str | None) -> Round:
    turn = replace(ROUND.turns[0], images=(replace(IMAGE, **changes),))
    return replace(ROUND, turns=(turn, ROUND.turns[1]))


def with_voice(**changes: str | None) -> Round:
    return replace(ROUND, turns=(ROUND.turns[0], replace(ROUND.turns[1], **changes)))


@given(ROUNDS)
def test_json_loses_nothing(round_: Round) -> None:
    text = round_to_json(round_)
    assert round_from_json(text) == round_
    assert text.isascii()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", "{}", '{"turns": [{}]}', '{"turns": [], "colour": 1}']
)
def test_what_is_no_round_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="is not a round as the log keeps them"):
        round_from_json(text)


@given(ROUNDS, ROUNDS)
def test_equal_rounds_alone_have_equal_digests(one: Round, other: Round) -> None:
    assert round_digest(replace(one, position=9)) == round_digest(one)
    without_places = [
        replace(
            round_,
            position=0,
            turns=tuple(
                replace(
                    turn,
                    images=tuple(
                        replace(image, uri=None if image.digest else image.uri)
                        for image in turn.images
                    ),
                    audio=str(turn.audio is not None) if turn.transcript else turn.audio,
                )
                for turn in round_.turns
            ),
        )
        for round_ in (one, other)
    ]
    same = without_places[0] == without_places[1]
    assert (round_digest(one) == round_digest(other)) == same


def test_the_place_of_known_content_does_not_count() -> None:
    assert round_digest(with_image(uri="s3://there/b.png")) == round_digest(ROUND)
    assert round_digest(with_image(uri=None)) == round_digest(ROUND)
    assert round_digest(with_voice(audio="/there/b.wav")) == round_digest(ROUND)


@pytest.mark.parametrize(
    "changed",
    [
        replace(ROUND, id="r2"),
        replace(ROUND, time="2023-05-09"),
        with_image(caption="a cat"),
        with_image(digest="cd" * 32),
        with_image(digest=None),
        with_voice(transcript="no"),
        with_voice(audio=None),
        replace(ROUND, turns=ROUND.turns[::-1]),
    ],
)
def test_content_counts(changed: Round) -> None:
    assert round_digest(changed) != round_digest(ROUND)


def test_the_place_of_unknown_content_counts() -> None:
    here, there = (with_image(digest=None, uri=uri) for uri in ("a.png", "b.png"))
    assert round_digest(here) != round_digest(there)
    here, there = (with_voice(transcript="", audio=uri) for uri in ("a.wav", "b.wav"))
    assert round_digest(here) != round_digest(there)


def test_the_digest_of_dialogues_ignores_their_order_alone() -> None:
    one = Dialogue(id="a", rounds=(ROUND, replace(ROUND, id="r2")))
    other = Dialogue(id="b", rounds=())
    digest = dialogues_digest([one, other])
    assert dialogues_digest([other, one]) == digest
    assert dialogues_digest([replace(one, rounds=one.rounds[::-1]), other]) != digest
    assert dialogues_digest([one]) != digest
    assert dialogues_digest([replace(one, id="c"), other]) != digest
