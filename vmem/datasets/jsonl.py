r"""Conversations as lines of JSON: what `vmem import` reads and `vmem export` writes.

One line is one round, in time order::

    {"dialogue": "trip", "id": "D1:1", "session": "D1", "time": "2025-03-03T18:20",
     "turns": [{"speaker": "user", "text": "Our tent.",
                "images": [{"path": "photos/tent.jpg", "caption": "a green tent"}]},
               {"speaker": "assistant", "text": "That looks dry."}]}

or, shorter, for a user and an assistant (the images belong to the user's turn)::

    {"id": "D1:2", "session": "D1", "time": "2025-03-03", "user": "And?", "assistant": "Good.",
     "images": []}

- `dialogue` may be left out: a file's name without its suffix stands for it.
- `id` is unique in its dialogue. `time` is a date, or a date and time, in ISO 8601.
- A turn has a `speaker` (`user`, `assistant` or a name) and any of `text`, `images` and `audio`;
  `transcript` holds the words of its voice message, `source_id` the id that evidence refers to
  (the round's id by default). A round in which all turns are empty is an error.
- An image has a `path` (or a `uri`: a path too, or a URL of s3, gs, memory or data), a `caption`,
  an `id` (`<round id>:IMG_<n>` by default, counted over the round from 1), all of them optional as
  long as one is there. Local paths start from the data folder, and none may leave it.

Any other field is an error. Digests are not written: a store makes them from the bytes.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, Self, TextIO

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator

from vmem.datasets.parsing import IsoTime, parse_json, read_text
from vmem.errors import DataError, ImageError
from vmem.images import locate
from vmem.types import Dialogue, Image, Round, Turn


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Image(_Line):
    path: str | None = Field(default=None, min_length=1)
    uri: str | None = Field(default=None, min_length=1)
    caption: str = ""
    id: str | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.path and self.uri:
            raise ValueError("give an image a path or a uri, not both")
        if not (self.path or self.uri or self.caption or self.id):
            raise ValueError("an image needs a path, a uri or a caption")
        return self


class _Turn(_Line):
    speaker: str = Field(min_length=1)
    text: str = ""
    images: tuple[_Image, ...] = ()
    audio: str | None = Field(default=None, min_length=1)
    transcript: str = ""
    source_id: str | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _has_its_audio(self) -> Self:
        if self.transcript and not self.audio:
            raise ValueError("a transcript needs its audio; without one the words are text")
        return self

    @property
    def says_something(self) -> bool:
        return bool(self.text.strip() or self.images or self.audio)


class _Round(_Line):
    id: str = Field(min_length=1)
    session: str
    time: IsoTime
    dialogue: str | None = Field(default=None, min_length=1)
    turns: tuple[_Turn, ...] = ()
    user: str = ""
    assistant: str = ""
    images: tuple[_Image, ...] = ()

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.turns and (self.user or self.assistant or self.images):
            raise ValueError("give a round turns, or user, assistant and images, not both")
        if not any(turn.says_something for turn in self.spoken):
            raise ValueError("the round has no text, no image and no audio")
        return self

    @property
    def spoken(self) -> tuple[_Turn, ...]:
        """The turns; of the short form those that say something."""
        short = (
            _Turn(speaker="user", text=self.user, images=self.images),
            _Turn(speaker="assistant", text=self.assistant),
        )
        return self.turns or tuple(turn for turn in short if turn.says_something)


_ROUND = TypeAdapter(_Round)


def parse_round(line: str, where: str, root: Path | None = None) -> tuple[str | None, Round]:
    """One line as the dialogue it names, if any, and its round at position 0.

    Args:
        line: The JSON.
        where: File and line, for errors.
        root: The folder that local paths start from and that none may leave; None is the working
            folder, and any path.

    Raises:
        DataError: It is not JSON, not a round of this format, says nothing, has a date that
            cannot be read, or names a file that is missing or outside the folder.
    """
    raw = parse_json(_ROUND, line, where)
    where = f"{where}: round {raw.id!r}"
    numbers = count(1)
    turns = tuple(_to_turn(turn, raw.id, numbers, where, root) for turn in raw.spoken)
    return raw.dialogue, Round(
        id=raw.id, position=0, session=raw.session, time=raw.time, turns=turns
    )


def read_rounds(path: Path, root: Path | None = None) -> tuple[Dialogue, ...]:
    """The dialogues of a file, their rounds in the order of its lines.

    Args:
        path: The file; its name without suffix is the dialogue of lines that name none.
        root: The data folder; the file's own by default.

    Raises:
        DataError: As `parse_round` does, or the file is missing, holds no round, or a round id is
            used twice in a dialogue.
    """
    rounds: dict[str, dict[str, Round]] = {}
    # Not splitlines(), which would also break at separators that a JSON text may hold.
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{path} line {number}"
        name, round_ = parse_round(line, where, path.parent if root is None else root)
        dialogue = rounds.setdefault(name or path.stem, {})
        if round_.id in dialogue:
            raise DataError(f"{where}: round id {round_.id!r} is used twice; give each its own")
        dialogue[round_.id] = replace(round_, position=len(dialogue))
    if not rounds:
        raise DataError(f"{path} holds no round")
    return tuple(Dialogue(id=id_, rounds=tuple(held.values())) for id_, held in rounds.items())


def dump_round(round_: Round, dialogue: str | None = None) -> str:
    """A round as one line of JSON without its line break; `parse_round` gives it back."""
    line: dict[str, Any] = {} if dialogue is None else {"dialogue": dialogue}
    line |= {"id": round_.id, "session": round_.session, "time": round_.time}
    line["turns"] = [_from_turn(turn, round_.id) for turn in round_.turns]
    return json.dumps(line, ensure_ascii=False)


def write_rounds(dialogue: Dialogue, file: TextIO) -> None:
    """Append a dialogue's rounds to an open file, one a line; `read_rounds` gives them back."""
    for round_ in dialogue.rounds:
        file.write(dump_round(round_, dialogue.id) + "\n")


def _to_turn(
    raw: _Turn, round_id: str, numbers: Iterator[int], where: str, root: Path | None
) -> Turn:
    numbered = [(next(numbers), image) for image in raw.images]
    return Turn(
        source_id=raw.source_id or round_id,
        speaker=raw.speaker,
        text=raw.text,
        images=tuple(
            Image(
                id=image.id or f"{round_id}:IMG_{number}",
                uri=_place(image.path or image.uri, "image", where, root),
                caption=image.caption,
            )
            for number, image in numbered
        ),
        audio=_place(raw.audio, "audio", where, root),
        transcript=raw.transcript,
    )


def _from_turn(turn: Turn, round_id: str) -> dict[str, Any]:
    images = [{"uri": image.uri, "caption": image.caption, "id": image.id} for image in turn.images]
    values = {
        "speaker": turn.speaker,
        "text": turn.text,
        "images": [_without_blanks(image) for image in images],
        "audio": turn.audio,
        "transcript": turn.transcript,
        "source_id": turn.source_id if turn.source_id != round_id else None,
    }
    return _without_blanks(values)


def _without_blanks(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value}


def _place(uri: str | None, what: str, where: str, root: Path | None) -> str | None:
    if uri is None:
        return None
    try:
        return locate(uri, root, what=what)
    except ImageError as error:
        raise DataError(f"{where}: {error}") from error
