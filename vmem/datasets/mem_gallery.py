"""Mem-Gallery (Bei et al. 2026): dialogues of a user with an assistant about pictures (Table 6).

A folder holds `dialog/<Name>.json` and the pictures in `image/<Name>/`. Where a picture is not
there, nothing stands in for it: the image keeps its id and caption, has no place, and is reported.
"""

import re
from collections import Counter
from itertools import zip_longest
from pathlib import Path

from pydantic import BaseModel, Field, TypeAdapter

from vmem.datasets.parsing import IsoTime, parse_json, read_text
from vmem.errors import DataError, ImageError
from vmem.images import find_file
from vmem.types import Benchmark, Dialogue, Image, Issue, Query, Question, Round, Turn

SUFFIXES = (".jpg", ".png", ".jpeg", ".webp")

_IMAGE_ID = re.compile(r"D\d+:IMG_\d+")
_AFTER_QUESTION = re.compile(r"\?\s*\S")
_TEXT_CATEGORIES = {"CD", "KR"}


class _Round(BaseModel):
    round: str
    user: str
    assistant: str
    image_id: list[str] = []
    input_image: list[str] = []
    image_caption: list[str] = []


class _Session(BaseModel):
    session_id: str
    date: IsoTime
    dialogues: list[_Round]


class _Question(BaseModel):
    point: str
    question: str
    answer: str
    clue: list[str] = []
    question_image: str | None = None
    image_caption: str = ""


class _File(BaseModel):
    sessions: list[_Session] = Field(alias="multi_session_dialogues")
    questions: list[_Question] = Field(alias="human-annotated QAs")


_FILE = TypeAdapter(_File)


def read_mem_gallery(folder: Path, name: str = "mem-gallery") -> Benchmark:
    """All dialogues and questions of a folder in Mem-Gallery's format.

    Args:
        folder: Holds `dialog/*.json` and, where the pictures are there, `image/`.
        name: The benchmark's name in reports.

    Raises:
        DataError: There is no dialogue, a file is no JSON or of another shape, a round id is used
            twice, or a picture's path leaves the folder.
    """
    paths = sorted((folder / "dialog").glob("*.json"))
    if not paths:
        raise DataError(f"{folder} holds no dialog/*.json; put Mem-Gallery's folders there")
    dialogues, questions, issues = [], [], []
    for path in paths:
        reader = _Reader(folder, path)
        dialogues.append(reader.dialogue)
        questions.extend(reader.questions)
        issues.extend(reader.issues)
    return Benchmark(
        name=name,
        dialogues=tuple(dialogues),
        questions=tuple(questions),
        issues=tuple(issues),
    )


class _Reader:
    """One file, and the oddities met in it."""

    def __init__(self, folder: Path, path: Path) -> None:
        self.folder = folder
        self.path = path
        self.issues: list[Issue] = []
        file = parse_json(_FILE, read_text(path), str(path))
        self.dialogue = Dialogue(id=path.stem, rounds=self._rounds(file.sessions))
        self.known = {round_.id for round_ in self.dialogue.rounds}
        self.image_ids = {image.id for round_ in self.dialogue.rounds for image in round_.images}
        self.questions = [
            self._question(f"{path.stem}#{index}", raw) for index, raw in enumerate(file.questions)
        ]

    def _report(self, kind: str, where: str, detail: str) -> None:
        self.issues.append(Issue(kind=kind, where=where, detail=detail))

    def _rounds(self, sessions: list[_Session]) -> tuple[Round, ...]:
        pairs = [(session, raw) for session in sessions for raw in session.dialogues]
        for id_, count in Counter(raw.round for _, raw in pairs).items():
            if count > 1:
                raise DataError(f"{self.path}: round id {id_!r} is used twice")
        return tuple(
            Round(
                id=raw.round,
                position=position,
                session=session.session_id,
                time=session.date,
                turns=(
                    Turn(
                        source_id=raw.round,
                        speaker="user",
                        text=raw.user,
                        images=self._images(raw),
                    ),
                    Turn(source_id=raw.round, speaker="assistant", text=raw.assistant),
                ),
            )
            for position, (session, raw) in enumerate(pairs)
        )

    def _images(self, raw: _Round) -> tuple[Image, ...]:
        if max(len(raw.input_image), len(raw.image_caption)) > len(raw.image_id):
            raise DataError(f"{self.path}: round {raw.round} has more images than image ids")
        where = f"{self.path.stem} {raw.round}"
        return tuple(
            Image(id=id_, uri=self._find(id_, relative, where), caption=caption)
            for id_, relative, caption in zip_longest(
                raw.image_id, raw.input_image, raw.image_caption, fillvalue=""
            )
        )

    def _find(self, id_: str, relative: str, where: str) -> str | None:
        stem = f"image/{self.path.stem}/{id_.replace(':', '_')}"
        wanted = [f"dialog/{relative}"] if relative else []
        for candidate in wanted + [stem + suffix for suffix in SUFFIXES]:
            try:
                place = find_file(candidate, self.folder)
            except ImageError as error:
                raise DataError(f"{where}: {error}") from error
            if place:
                return str(place)
        self._report("missing image file", where, relative or stem)
        return None

    def _question(self, id_: str, raw: _Question) -> Question:
        image = None
        if raw.question_image:
            image_id = Path(raw.question_image).stem
            uri = self._find(image_id, raw.question_image, id_)
            image = Image(id=image_id, uri=uri, caption=raw.image_caption)
        self._report_oddities(id_, raw)
        return Question(
            id=id_,
            dialogue_id=self.path.stem,
            query=Query(text=raw.question, image=image),
            reference=raw.answer,
            category=raw.point,
            evidence=frozenset(raw.clue) & self.known,
        )

    def _report_oddities(self, id_: str, raw: _Question) -> None:
        if not raw.clue:
            self._report("evidence empty", id_, f"{raw.point} question without clue")
        for clue, count in Counter(raw.clue).items():
            if clue not in self.known:
                self._report("evidence not in dialogue", id_, clue)
            elif count > 1:
                self._report("evidence repeated", id_, clue)
        for image_id in _IMAGE_ID.findall(raw.answer):
            if image_id not in self.image_ids:
                self._report("gold image not in dialogue", id_, image_id)
        if raw.point == "TTL" and not raw.question_image:
            self._report("TTL question without image", id_, "asked as it is")
        if raw.point in _TEXT_CATEGORIES and raw.question_image:
            self._report("CD or KR question with image", id_, raw.question_image)
        if _AFTER_QUESTION.search(raw.question):
            self._report("instruction after the question mark", id_, "kept in the query")
