"""M2A's lower level: the log of messages as they were sent, and the tokens of their pictures."""

from collections.abc import Sequence
from dataclasses import dataclass

from vmem.errors import QueryError
from vmem.types import Image

Ranges = Sequence[Sequence[int]]
"""First and last number of each range of messages."""


class Pictures:
    """The pictures of a conversation by the tokens that stand for them in texts."""

    def __init__(self) -> None:
        self._images: list[Image] = []
        self._number: dict[tuple[str, str | None], int] = {}

    def token(self, image: Image) -> str:
        """A picture's token; the same picture has the same one."""
        key = (image.id, image.uri)
        if key not in self._number:
            self._number[key] = len(self._images)
            self._images.append(image)
        return f"<image{self._number[key]}>"

    def copy(self) -> "Pictures":
        """The same pictures, to which others can be added apart."""
        other = Pictures()
        other._images, other._number = list(self._images), dict(self._number)
        return other

    def named(self, token: str) -> Image | None:
        """The picture of a token; None of a text that is empty or says that there is none.

        Raises:
            QueryError: No picture has that token.
        """
        bare = token.strip().strip("<>").lower()
        if bare in {"", "none", "null", "n/a"}:
            return None
        number = bare.removeprefix("image")
        if number.isdecimal() and int(number) < len(self._images):
            return self._images[int(number)]
        raise QueryError(f"there is no picture {token!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A turn in the log.

    Attributes:
        number: From 1, in the order sent.
        position: Its round's.
        time: ISO 8601.
        speaker: Who sent it.
        text: What it says.
        images: What was shared with it.
    """

    number: int
    position: int
    time: str
    speaker: str
    text: str
    images: tuple[Image, ...] = ()


class MessageLog:
    """Messages as they were sent; they are never changed."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def by_number(self, ranges: Ranges) -> list[Message]:
        """The messages of some ranges, ends included, in the order of the ranges."""
        last = len(self.messages)
        return [
            self.messages[number - 1]
            for first, end in checked_ranges(ranges)
            for number in range(max(first, 1), min(end, last) + 1)
        ]

    def by_day(self, first: str, last: str) -> list[Message]:
        """The messages of some days, both included, each as YYYY-MM-DD."""
        return [each for each in self.messages if first <= each.time[:10] <= last]


def checked_ranges(ranges: Ranges) -> list[tuple[int, int]]:
    """Ranges as pairs; a single number is a range of one.

    Raises:
        QueryError: One is no range.
    """
    pairs = []
    for each in ranges:
        if not 1 <= len(each) <= 2 or each[0] > each[-1]:
            raise QueryError(f"{list(each)} is no range of messages: write [first, last]")
        pairs.append((each[0], each[-1]))
    return pairs
