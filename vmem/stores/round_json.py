"""Rounds as the log keeps them (section 3.4: append only): lossless JSON, and content digests."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from vmem.errors import DataError
from vmem.types import Dialogue, Image, Round, Turn


def round_to_json(round_: Round) -> str:
    """Everything that a round holds, as ASCII; `round_from_json` gives an equal round back."""
    return _dumps(asdict(round_))


def round_from_json(text: str) -> Round:
    """The round that `round_to_json` wrote.

    Raises:
        DataError: The text is not one round.
    """
    try:
        values = json.loads(text)
        turns = tuple(_turn(turn) for turn in values.pop("turns"))
        return Round(**values, turns=turns)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(f"{text[:80]!r} is not a round as the log keeps them: {error}") from error


def round_digest(round_: Round) -> str:
    """SHA-256 in hex of what a round says, wherever it stands and wherever its files are.

    Its position does not count; nor does an image's place once the image's digest is known, nor
    a voice message's place once its transcript is known.
    """
    content = asdict(round_)
    del content["position"]
    for turn in content["turns"]:
        if turn["transcript"]:
            turn["audio"] = turn["audio"] is not None
        for image in turn["images"]:
            if image["digest"]:
                image["uri"] = None
    return hashlib.sha256(_dumps(content).encode("ascii")).hexdigest()


def dialogues_digest(dialogues: Iterable[Dialogue]) -> str:
    """SHA-256 in hex over dialogues: what `Catalogue.bank_digest` is of a bank that holds them."""
    return combined_digest(
        (dialogue.id, [round_digest(round_) for round_ in dialogue.rounds])
        for dialogue in dialogues
    )


def combined_digest(digests: Iterable[tuple[str, Iterable[str]]]) -> str:
    """SHA-256 in hex over memory ids, each with the digests of its rounds in order."""
    combined = hashlib.sha256()
    for memory_id, rounds in sorted(digests):
        combined.update(_dumps([memory_id, *rounds]).encode("ascii"))
    return combined.hexdigest()


def _turn(values: dict[str, Any]) -> Turn:
    return Turn(**{**values, "images": tuple(Image(**image) for image in values["images"])})


def _dumps(value: object) -> str:
    # ASCII keeps what UTF-8 cannot: half surrogate pairs that a client cut apart.
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
