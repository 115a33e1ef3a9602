"""Erasures and appends cut off at every step: reopened and healed, nothing is left half done."""

import itertools
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as Pillow

from vmem.bank import Bank
from vmem.config import Settings, replace
from vmem.errors import ImageError, UnknownMemoryError
from vmem.images import image_digest
from vmem.rounds import exchange
from vmem.types import Image, Round, Turn

STEPS = {
    "catalogue": (
        *("append", "erase_round", "delete_memory", "mark_indexed", "mark_unindexed"),
        *("note_loose_media", "forget_loose_media"),
    ),
    "store": ("upsert", "delete"),
    "media": ("put", "put_audio", "delete"),
    "media._files": ("pipe_file", "mv", "rm_file"),
}
"""What changes anything, by where it is."""


class Crash(BaseException):
    """The process ends here."""


def crash_at(bank: Bank, step: int, *, done: bool, patch: pytest.MonkeyPatch) -> list[str]:
    """Crash at a step of what follows, before or after it is done; returns the steps' names."""
    seen: list[str] = []

    def cut(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def step_of(*args: Any, **kwargs: Any) -> Any:
            seen.append(name)
            mine = len(seen) - 1 == step
            if mine and not done:
                raise Crash
            outcome = call(*args, **kwargs)
            if mine:
                raise Crash
            return outcome

        return step_of

    for place, names in STEPS.items():
        owner: Any = bank
        for part in place.split("."):
            owner = getattr(owner, part)
        for name in names:
            patch.setattr(owner, name, cut(f"{place}.{name}", getattr(owner, name)))
    return seen


class World:
    """A bank in a folder of its own, whose memory `trip` shares a picture with `other`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.own, self.shared, self.late = (self._picture(n) for n in range(3))
        self.voice = str(folder / "voice.wav")
        with wave.open(self.voice, "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(8_000)
            file.writeframes(b"\0\1" * 800)
        with self.open() as bank:
            bank.append("other", [self.round("o1", self.shared)])
            bank.append("trip", [self.round("r0"), self.said(), self.round("r2")])
        self.before = self.files()
        assert self.before == self.digests(self.own, self.shared, self.voice)

    def open(self) -> Bank:
        settings = replace(
            Settings(),
            store={"home": self.folder / "home"},
            encoders={"text": {"kind": "fake"}, "image": {"kind": "fake"}},
            llm={"provider": "none"},
        )
        return Bank(settings)

    def said(self) -> Round:
        """The round that is erased: two pictures, one of them shared, and a voice message."""
        turn = Turn(
            source_id="r1", speaker="user", text="", audio=self.voice, transcript="secret voice"
        )
        pictures = self.round("r1", self.own, self.shared)
        return Round(**{**_fields(pictures), "turns": (*pictures.turns, turn)})

    def round(self, name: str, *pictures: str) -> Round:
        images = [Image(id=Path(p).stem, uri=p, caption=f"of {name}") for p in pictures]
        return exchange(name, session="s", time="2026-03-02", user=f"word {name}", images=images)

    def files(self) -> list[str]:
        """What the picture store's files are made of, also those of writes that did not end."""
        every = (self.folder / "home" / "images").rglob("*")
        return sorted(image_digest(file.read_bytes()) for file in every if file.is_file())

    def digests(self, *paths: str) -> list[str]:
        return sorted(image_digest(Path(path).read_bytes()) for path in paths)

    def rows(self, bank: Bank) -> set[str]:
        record = bank.record
        both = (record.text_collection, record.image_collection)
        return {key for name in both for key in bank.store.ids(name, "trip")}

    def _picture(self, number: int) -> str:
        path = self.folder / f"picture{number}.png"
        Pillow.new("RGB", (16, 16), (number * 70, 99, 20)).save(path)
        return str(path)


def _fields(round_: Round) -> dict[str, Any]:
    return {name: getattr(round_, name) for name in ("id", "position", "session", "time", "turns")}


def cut_off_everywhere(
    folder: Path, act: Callable[[World, Bank], object], check: Callable[[World, Bank], None]
) -> list[str]:
    """Crash before and after each step of an act, reopen, heal, check; returns the steps."""
    for number in itertools.count():
        world = World(folder / str(number))
        with pytest.MonkeyPatch.context() as patch, world.open() as bank:
            steps = crash_at(bank, number // 2, done=bool(number % 2), patch=patch)
            try:
                act(world, bank)
            except Crash:
                ended = False
            else:
                ended = True
        with world.open() as bank:
            assert bank.heal_all() == {}
            check(world, bank)
            assert bank.catalogue.loose_media(bank.settings.store.bank) == []
            assert all(info.version == info.indexed_version for info in bank.memories())
            assert bank.memory("other").rounds[0].images[0].uri is not None
        if ended:
            assert number == 2 * len(steps), "every step was a place to crash at"
            return steps
    raise AssertionError


def test_an_erased_round_leaves_nothing_wherever_the_erasure_is_cut_off(tmp_path: Path) -> None:
    def check(world: World, bank: Bank) -> None:
        erased = not bank.rounds("trip")[1].turns
        kept = {f"trip/{n}/text/1" for n in ("r0", "r2")}
        if erased:
            assert world.files() == world.digests(world.shared)
            assert world.rows(bank) == kept
        else:
            assert world.files() == world.before
            assert world.rows(bank) > kept

    steps = cut_off_everywhere(tmp_path, lambda _, bank: bank.erase_round("trip", "r1"), check)
    assert steps[0] == "catalogue.erase_round", "what comes after it is finished by a heal"
    assert steps[-1] == "catalogue.mark_indexed"
    assert steps.count("media._files.rm_file") == 2, "the picture of its own and the voice"


def test_a_deleted_memory_leaves_nothing_wherever_the_deletion_is_cut_off(tmp_path: Path) -> None:
    def check(world: World, bank: Bank) -> None:
        try:
            rounds = bank.memory("trip").rounds
        except UnknownMemoryError:
            assert world.files() == world.digests(world.shared)
            assert world.rows(bank) == set()
        else:
            assert [round_.id for round_ in rounds] == ["r0", "r1", "r2"]
            assert world.files() == world.before
            bank.delete("trip")
            assert world.files() == world.digests(world.shared)
            assert world.rows(bank) == set()

    steps = cut_off_everywhere(tmp_path, lambda _, bank: bank.delete("trip"), check)
    assert steps.count("media._files.rm_file") == 2


def test_an_append_cut_off_leaves_a_whole_round_or_nothing(tmp_path: Path) -> None:
    def act(world: World, bank: Bank) -> None:
        bank.append("trip", [world.round("r3", world.late, world.shared)])

    def check(world: World, bank: Bank) -> None:
        if len(bank.rounds("trip")) == 4:
            assert world.files() == sorted(world.before + world.digests(world.late))
            assert {key for key in world.rows(bank) if "/r3/" in key} >= {"trip/r3/text/1"}
        else:
            assert world.files() == world.before
            assert not any("/r3/" in key for key in world.rows(bank))

    steps = cut_off_everywhere(tmp_path, act, check)
    assert {"catalogue.note_loose_media", "media._files.mv", "catalogue.append"} <= set(steps)


def test_an_append_that_is_refused_leaves_no_picture_of_the_round_that_is_at_fault(
    tmp_path: Path,
) -> None:
    world = World(tmp_path / "0")
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"\x89PNG not really")
    with world.open() as bank:
        with pytest.raises(ImageError, match=r"broken\.png"):
            bank.append("trip", [world.round("r3", world.late, str(broken))])
        assert world.files() == world.before
