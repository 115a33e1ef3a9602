import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vmem.datasets import read_benchmark
from vmem.datasets.jsonl import dump_round, parse_round, read_rounds, write_rounds
from vmem.errors import DataError
from vmem.types import Dialogue, Image, Round, Turn

WHERE = "chat.jsonl line 3"


def line(**changes: Any) -> str:
    """The short form, with fields changed or (where None) left out."""
    fields = {"id": "r1", "session": "s1", "time": "2025-03-03", "user": "Hi.", **changes}
    return json.dumps({key: value for key, value in fields.items() if value is not None})


def said(**turn: Any) -> str:
    return line(user=None, turns=[{"speaker": "user", **turn}])


def test_the_long_form(tmp_path: Path) -> None:
    for name in ("a.png", "b.png", "note.wav"):
        (tmp_path / name).touch()
    user = {
        "speaker": "user",
        "text": "Look.",
        "images": [{"path": "a.png", "caption": "a tent"}, {"uri": "s3://b/c.png", "id": "mine"}],
    }
    ann = {
        "speaker": "Ann",
        "audio": "note.wav",
        "transcript": "nice",
        "images": [{"path": "b.png"}],
        "source_id": "D1:2",
    }
    text = line(user=None, dialogue="trip", time="2025-03-03T18:20", turns=[user, ann])
    name, round_ = parse_round(text, WHERE, tmp_path)
    assert name == "trip"
    assert round_ == Round(
        id="r1",
        position=0,
        session="s1",
        time="2025-03-03T18:20",
        turns=(
            Turn(
                source_id="r1",
                speaker="user",
                text="Look.",
                images=(
                    Image(id="r1:IMG_1", uri=str(tmp_path / "a.png"), caption="a tent"),
                    Image(id="mine", uri="s3://b/c.png"),
                ),
            ),
            Turn(
                source_id="D1:2",
                speaker="Ann",
                images=(Image(id="r1:IMG_3", uri=str(tmp_path / "b.png")),),
                audio=str(tmp_path / "note.wav"),
                transcript="nice",
            ),
        ),
    )


def test_the_short_form_gives_images_to_the_user(tmp_path: Path) -> None:
    (tmp_path / "a.png").touch()
    text = line(assistant="Hello.", images=[{"path": "a.png"}])
    name, round_ = parse_round(text, WHERE, tmp_path)
    assert name is None
    image = Image(id="r1:IMG_1", uri=str(tmp_path / "a.png"))
    assert round_.turns == (
        Turn(source_id="r1", speaker="user", text="Hi.", images=(image,)),
        Turn(source_id="r1", speaker="assistant", text="Hello."),
    )


def test_a_silent_side_of_the_short_form_is_no_turn() -> None:
    _, round_ = parse_round(line(user=" ", assistant="Hello."), WHERE)
    assert [turn.speaker for turn in round_.turns] == ["assistant"]
    _, round_ = parse_round(line(user=None, images=[{"caption": "a tent"}]), WHERE)
    assert [turn.speaker for turn in round_.turns] == ["user"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("Hi.", "chat.jsonl line 3 is not JSON"),
        ("[1]", "chat.jsonl line 3: input should be an object"),
        (line(session=None), "chat.jsonl line 3: session is missing"),
        (line(id=""), "chat.jsonl line 3: id: string should have at least 1 character"),
        (line(id=7), "chat.jsonl line 3: id: input should be a valid string"),
        (line(mood="good"), "chat.jsonl line 3: mood is no field of this format"),
        (said(text="a", digest="b"), "line 3: turns.0.digest is no field of this format"),
        (line(user=""), "chat.jsonl line 3: the round has no text, no image and no audio"),
        (line(user=None, turns=[]), "line 3: the round has no text, no image and no audio"),
        (said(text=" \n"), "line 3: the round has no text, no image and no audio"),
        (line(turns=[{"speaker": "user", "text": "a"}]), "give a round turns, or user"),
        (said(transcript="a"), "turns.0: a transcript needs its audio"),
        (line(images=[{}]), "images.0: an image needs a path, a uri or a caption"),
        (line(images=[{"path": "a", "uri": "b"}]), "images.0: give an image a path or a uri"),
        (line(images=[{"path": "no.png"}]), "line 3: round 'r1': image 'no.png' does not exist"),
        (line(images=[{"path": "../a.png"}]), "'r1': image '../a.png' lies outside its folder"),
        (line(images=[{"uri": "/etc/hostname"}]), "image '/etc/hostname' lies outside its folder"),
        (line(images=[{"uri": "http://x/a.png"}]), "image 'http://x/a.png' is not read over 'ht"),
        (said(audio="/etc/hostname"), "'r1': audio '/etc/hostname' lies outside its folder"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(DataError) as caught:
        parse_round(text, WHERE, tmp_path)
    assert complaint in str(caught.value)
    assert str(caught.value).startswith(WHERE)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("time", ["yesterday", "2025-02-30", "03/03/2025", "20250303", "", "2025"])
def test_a_date_that_cannot_be_read_is_named(time: str) -> None:
    with pytest.raises(DataError) as caught:
        parse_round(line(time=time), WHERE)
    assert str(caught.value).startswith(f"{WHERE}: time: {time!r} is no date like 2023-05-08")


@pytest.mark.parametrize("time", ["2025-03-03", "2025-03-03T18:20", "2025-03-03T18:20:05+01:00"])
def test_times_are_kept_as_given(time: str) -> None:
    assert parse_round(line(time=time), WHERE)[1].time == time


def test_positions_follow_the_file_by_dialogue(tmp_path: Path) -> None:
    path = tmp_path / "chat.jsonl"
    rows = [("a", None), ("a", "trip"), ("b", "trip"), ("b", None)]
    path.write_text("\n\n".join(line(id=id_, dialogue=name) for id_, name in rows) + "\n")
    assert [(d.id, [(r.id, r.position) for r in d.rounds]) for d in read_rounds(path)] == [
        ("chat", [("a", 0), ("b", 1)]),
        ("trip", [("a", 0), ("b", 1)]),
    ]


def test_a_round_id_used_twice_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "chat.jsonl"
    path.write_text(f"{line()}\n{line(dialogue='trip')}\n\n{line(dialogue='chat')}\n")
    with pytest.raises(DataError, match=r"chat.jsonl line 4: round id 'r1' is used twice"):
        read_rounds(path)


def test_paths_start_from_the_file_or_from_the_root_given(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "a.png").touch()
    path = tmp_path / "inner" / "chat.jsonl"
    path.write_text(line(images=[{"path": "a.png"}]))
    with pytest.raises(DataError, match=r"chat.jsonl line 1: round 'r1': image 'a.png' does not"):
        read_rounds(path)
    (dialogue,) = read_rounds(path, root=tmp_path)
    assert dialogue.rounds[0].images[0].uri == str(tmp_path / "a.png")
    (tmp_path / "inner" / "a.png").touch()
    (dialogue,) = read_rounds(path)
    assert dialogue.rounds[0].images[0].uri == str(tmp_path / "inner" / "a.png")
    path.write_text(line(images=[{"path": "../a.png"}]))
    with pytest.raises(DataError, match="lies outside its folder"):
        read_rounds(path)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(b"", "holds no round"), (b"\n \n", "holds no round"), (b"\xff", "is not UTF-8 text")],
)
def test_an_empty_or_binary_file_is_named(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "chat.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"chat.jsonl {complaint}"):
        read_rounds(path)
    with pytest.raises(DataError, match=r"no.jsonl does not exist"):
        read_rounds(tmp_path / "no.jsonl")


words = st.text(max_size=12)
names = st.text(min_size=1, max_size=8)
places = st.sampled_from([None, "photo one.png", "s3://bucket/a.png", "data:,x", "memory://b"])
images = st.builds(Image, id=names, uri=places, caption=words)


@st.composite
def turns(draw: st.DrawFn) -> Turn:
    audio = draw(st.sampled_from([None, "s3://bucket/a.wav"]))
    return Turn(
        source_id=draw(names),
        speaker=draw(names),
        text=draw(words),
        images=tuple(draw(st.lists(images, max_size=3))),
        audio=audio,
        transcript=draw(words) if audio else "",
    )


def speaks(turn: Turn) -> bool:
    return bool(turn.text.strip() or turn.images or turn.audio)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None
)
@given(
    name=names,
    said=st.lists(
        st.lists(turns(), min_size=1, max_size=3).filter(lambda all_: any(map(speaks, all_))),
        min_size=1,
        max_size=4,
    ),
)
def test_what_is_written_is_read_back(tmp_path: Path, name: str, said: list[list[Turn]]) -> None:
    (tmp_path / "photo one.png").touch()
    rounds = tuple(
        _placed(
            Round(id=f"r{n}", position=n, session="s", time="2025-03-03", turns=()), all_, tmp_path
        )
        for n, all_ in enumerate(said)
    )
    dialogue = Dialogue(id=name, rounds=rounds)
    file = io.StringIO()
    write_rounds(dialogue, file)
    (tmp_path / "export.jsonl").write_text(file.getvalue(), encoding="utf-8")
    assert read_rounds(tmp_path / "export.jsonl") == (dialogue,)
    assert parse_round(dump_round(rounds[0]), WHERE, tmp_path) == (None, rounds[0])


def _placed(round_: Round, said: list[Turn], root: Path) -> Round:
    """The round with the turns given, local pictures by their absolute path."""

    def place(image: Image) -> Image:
        local = image.uri == "photo one.png"
        return replace(image, uri=str(root / "photo one.png")) if local else image

    turns = (replace(turn, images=tuple(map(place, turn.images))) for turn in said)
    return replace(round_, turns=tuple(turns))


@pytest.mark.parametrize("name", ["locomo", "photobench"])
def test_a_benchmark_survives_the_round_trip(shared_data: Path, tmp_path: Path, name: str) -> None:
    dialogues = read_benchmark(name, shared_data / name).dialogues
    path = tmp_path / "all.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for dialogue in dialogues:
            write_rounds(dialogue, file)
    assert read_rounds(path, root=shared_data) == dialogues
