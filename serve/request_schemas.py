"""What the memory routes take as JSON; `serve/chat_schemas.py` has the OpenAI ones.

No field takes a path or a URI of a store: bytes come as base64, as a file part or, where that is
switched on, from a public address of the web.
"""

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, FailFast, Field, model_validator

from serve.service import Options
from vmem.datasets.parsing import IsoTime

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
"""How a caller may name a memory."""
RoundId = Annotated[str, Field(min_length=1, max_length=200)]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Asked(BaseModel):
    """What a caller sends: a field that means nothing is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ImageIn(Asked):
    """A picture of a request: one of `base64`, `url`, `digest` and `file`.

    Attributes:
        base64: Its bytes (JPEG, PNG, WEBP, GIF or BMP).
        url: A public address to fetch it from; refused unless the service switches that on.
        digest: A picture that the memory holds.
        file: The name of the file part that holds it, in a multipart request.
        caption: What it shows, in words.
    """

    base64: str | None = Field(default=None, min_length=1)
    url: str | None = Field(default=None, min_length=1, max_length=2_000)
    digest: Digest | None = None
    file: str | None = Field(default=None, min_length=1, max_length=200)
    caption: str = Field(default="", max_length=10_000)

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.sources > 1:
            raise ValueError("give a picture one of base64, url, digest and file, not several")
        if not self.sources and not self.caption:
            raise ValueError("give a picture base64, url, digest or file")
        return self

    @property
    def sources(self) -> int:
        """How many places name its bytes."""
        given = (self.base64, self.url, self.digest, self.file)
        return sum(place is not None for place in given)


class QueryImage(ImageIn):
    """The picture of a question, which must have pixels."""

    @model_validator(mode="after")
    def _has_pixels(self) -> Self:
        if not self.sources:
            raise ValueError("give a picture base64, url, digest or file")
        return self


class RoundImage(ImageIn):
    """A picture of a round; `caption` alone will do where its bytes are lost.

    Attributes:
        id: The name shown in contexts; `<round id>:IMG_<n>` by default, counted from 1.
    """

    id: RoundId | None = None


class AudioIn(Asked):
    """A voice message.

    Attributes:
        base64: Its bytes (WAV, FLAC, MP3, AAC, OGG, WebM or M4A).
        file: The name of the file part that holds it, in a multipart request.
        transcript: Its words; without them the service listens, where it can.
    """

    base64: str | None = Field(default=None, min_length=1)
    file: str | None = Field(default=None, min_length=1, max_length=200)
    transcript: str = ""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.base64 is None) == (self.file is None):
            raise ValueError("give a voice message base64 or file")
        return self


class TurnIn(Asked):
    """What one speaker says at once.

    Attributes:
        speaker: `user`, `assistant` or a name.
    """

    speaker: str = Field(min_length=1, max_length=200)
    text: str = ""
    images: tuple[RoundImage, ...] = ()
    audio: AudioIn | None = None

    @property
    def says_something(self) -> bool:
        """Whether there is anything to remember of it."""
        return bool(self.text.strip() or self.images or self.audio)


class RoundIn(Asked):
    """A round to remember: `user` and `assistant` with the user's `images`, or `turns`.

    Attributes:
        id: Unique in its memory. The same round again is no change, another one is a conflict.
        session: The sitting it belongs to; by default the date of `time`.
        time: ISO 8601, local; by default now.
    """

    id: RoundId
    session: str | None = Field(default=None, max_length=200)
    time: IsoTime | None = Field(default=None, max_length=200)
    user: str = ""
    assistant: str = ""
    images: tuple[RoundImage, ...] = ()
    audio: AudioIn | None = None
    turns: tuple[TurnIn, ...] = ()

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if self.turns and (self.user or self.assistant or self.images or self.audio):
            raise ValueError("give a round turns, or user, assistant and images, not both")
        if not any(turn.says_something for turn in self.spoken):
            raise ValueError("the round has no text, no image and no audio")
        return self

    @property
    def spoken(self) -> tuple[TurnIn, ...]:
        """The turns; of the short form those that say something."""
        short = (
            TurnIn(speaker="user", text=self.user, images=self.images, audio=self.audio),
            TurnIn(speaker="assistant", text=self.assistant),
        )
        return self.turns or tuple(turn for turn in short if turn.says_something)


class CreateRequest(Asked):
    """A memory to make."""

    id: str = Field(pattern=NAME)


class AppendRequest(Asked):
    """Rounds to add at the end of a memory, all or none."""

    rounds: Annotated[tuple[RoundIn, ...], FailFast()] = Field(min_length=1)


class SearchRequest(Asked):
    """A question to search with.

    Attributes:
        query: The question.
        image: A picture that it is about.
        options: What this request changes of the settings, within the service's bounds.
        explain: Also say what each step of the search did.
    """

    query: str = Field(min_length=1)
    image: QueryImage | None = None
    options: Options = Options()
    explain: bool = False


class AnswerRequest(SearchRequest):
    """A question to answer.

    Attributes:
        stream: As server-sent events: `found`, `token`s, `done`; or `error` instead of `done`.
    """

    stream: bool = False
