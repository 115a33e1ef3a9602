"""What the log takes: names that files, filters and databases can hold, rounds in their places."""

import re
from collections.abc import Sequence

from vmem.errors import DataError
from vmem.stores.tables import NAME_LENGTH
from vmem.types import Dialogue, Round

_MEMORY_ID = re.compile(rf"\w(?:[\w .:@/-]{{0,{NAME_LENGTH - 2}}}[\w.:@/-])?")
_UNSTORABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


def is_memory_id(text: str) -> bool:
    """Whether a memory may be named so."""
    return _MEMORY_ID.fullmatch(text) is not None


def check_memory_id(memory_id: str) -> str:
    """The id itself, when it can name a memory.

    Raises:
        DataError: It is empty, too long, or holds characters that a name must not have.
    """
    if not is_memory_id(memory_id):
        raise DataError(
            f"{memory_id[:80]!r} cannot name a memory; take 1 to {NAME_LENGTH} letters, digits and "
            "_ . : @ / - or blanks, with a letter, digit or _ first and no blank last"
        )
    return memory_id


def is_round_id(text: str) -> bool:
    """Whether a round may be named so."""
    return 0 < len(text) <= NAME_LENGTH and not _UNSTORABLE.search(text)


def check_round(round_: Round) -> Round:
    """The round itself, when the log can keep it.

    Raises:
        DataError: It has no id, or its id, session or time is too long or holds control characters.
    """
    for name, value in (("id", round_.id), ("session", round_.session), ("time", round_.time)):
        if _UNSTORABLE.search(value) or len(value) > NAME_LENGTH:
            raise DataError(
                f"round {round_.id[:80]!r} has the {name} {value[:80]!r}; take at most "
                f"{NAME_LENGTH} characters, none of them control characters"
            )
    if not round_.id.strip():
        raise DataError(f"the round at position {round_.position} has no id; give it one")
    return round_


def check_dialogues(dialogues: Sequence[Dialogue]) -> None:
    """Check what a build would put into the log.

    Raises:
        DataError: A dialogue or round cannot be kept, two share an id, a position is wrong.
    """
    seen: set[str] = set()
    for dialogue in dialogues:
        if check_memory_id(dialogue.id) in seen:
            raise DataError(f"two dialogues are named {dialogue.id}; rename one")
        seen.add(dialogue.id)
        ids: set[str] = set()
        for position, round_ in enumerate(dialogue.rounds):
            if round_.position != position:
                raise DataError(
                    f"round {round_.id} of dialogue {dialogue.id} says position "
                    f"{round_.position} and stands at {position}; number rounds from 0"
                )
            if check_round(round_).id in ids:
                raise DataError(f"dialogue {dialogue.id} has two rounds {round_.id}; rename one")
            ids.add(round_.id)
