"""Memories as folders: rounds as JSON Lines with their pictures beside them."""

from dataclasses import replace
from pathlib import Path

from vmem.bank import Bank
from vmem.datasets.jsonl import read_rounds, write_rounds
from vmem.errors import InputError
from vmem.stores.catalogue import Appended
from vmem.types import Dialogue, Image, Round, Turn

ROUNDS = "rounds.jsonl"


def export_memory(bank: Bank, memory_id: str, folder: Path) -> int:
    """Write a memory's rounds, pictures and voice messages; returns the number of rounds.

    Rounds that were erased are not there, so an import has no gaps.

    Raises:
        UnknownMemoryError: There is no such memory.
        ImageError: A picture is missing from the store.
        InputError: The folder cannot be written, or holds an export already.
    """
    rounds = [round_ for round_ in bank.rounds(memory_id) if round_.turns]  # gaps say nothing
    if (folder / ROUNDS).exists():
        raise InputError(f"{folder} holds an export already: choose another folder")
    try:
        for name in ("images", "audio"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        moved = tuple(_to_folder(bank, round_, folder) for round_ in rounds)
        with (folder / ROUNDS).open("w", encoding="utf-8") as file:
            write_rounds(Dialogue(id=memory_id, rounds=moved), file)
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror}") from error
    return len(rounds)


def import_memory(bank: Bank, memory_id: str, folder: Path) -> Appended:
    """Append an exported folder's rounds to a memory; those it holds already are no change.

    Raises:
        DataError: The folder is no export.
        RoundConflictError: A round id is taken by a round of other content.
    """
    dialogues = read_rounds(folder / ROUNDS, folder)
    return bank.append(memory_id, [r for dialogue in dialogues for r in dialogue.rounds])


def _to_folder(bank: Bank, round_: Round, folder: Path) -> Round:
    return replace(round_, turns=tuple(_turn(bank, turn, folder) for turn in round_.turns))


def _turn(bank: Bank, turn: Turn, folder: Path) -> Turn:
    images = tuple(_image(bank, image, folder) for image in turn.images)
    audio = turn.audio
    if audio:
        audio = f"audio/{Path(audio).name}"
        (folder / audio).write_bytes(bank.media.get(turn.audio or ""))
    return replace(turn, images=images, audio=audio)


def _image(bank: Bank, image: Image, folder: Path) -> Image:
    if image.uri is None:
        return image
    name = f"images/{Path(image.uri).name}"
    (folder / name).write_bytes(bank.media.get(image.uri))
    return replace(image, uri=name, digest=None)
