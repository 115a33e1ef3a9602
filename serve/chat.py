"""A question in OpenAI's form: what is asked of the memory, and how the answer is written."""

import time
from collections.abc import Iterable
from dataclasses import dataclass

from serve.chat_schemas import (
    ChatCompletion,
    ChatCompletionRequest,
    ChatMessage,
    Choice,
    Chunk,
    ChunkChoice,
    Delta,
    Message,
    Remembered,
    TokenUsage,
)
from serve.errors import RequestError
from serve.media import data_url
from serve.request_schemas import QueryImage
from serve.rounds_in import local_now
from serve.service import Found, Options
from serve.shown import Shown
from vmem.rounds import exchange
from vmem.types import Answer, Image, Query, Round, Usage


def question(messages: Iterable[Message]) -> Message:
    """The last message of the user.

    Raises:
        RequestError: There is none, or something comes after it.
    """
    *_, last = messages
    if last.role != "user":
        raise RequestError("The last message must be the user's.")
    return last


def picture(message: Message) -> QueryImage | None:
    """A message's picture.

    Raises:
        RequestError: There are several, or its address is none that is taken.
    """
    if len(message.pictures) > 1:
        raise RequestError("A question has at most one picture.")
    if not message.pictures:
        return None
    url = message.pictures[0].url
    if url[:8].lower().startswith(("http://", "https://")):
        return QueryImage.model_validate({"url": url[:2_000]})
    return QueryImage(base64=data_url(url, "image_url") or "-")


def chat_options(asked: ChatCompletionRequest) -> Options:
    """The options, with OpenAI's own fields where the memory's are not given."""
    tokens = asked.max_completion_tokens or asked.max_tokens
    given = {"max_tokens": tokens, "temperature": asked.temperature}
    return Options(**{**given, **asked.options.model_dump(exclude_none=True)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """Writes one answer in OpenAI's form.

    Attributes:
        request_id: The request's id.
        model: The model's name, as it was asked for.
        shown: Shows what was found.
        unread: Messages before the question.
        created: When, in seconds since 1970.
    """

    request_id: str
    model: str
    shown: Shown
    unread: int
    created: int

    @classmethod
    def of(cls, asked: ChatCompletionRequest, shown: Shown) -> "Writing":
        """Of one request."""
        return cls(
            request_id=shown.request_id,
            model=asked.model,
            shown=shown,
            unread=len(asked.messages) - 1,
            created=int(time.time()),
        )

    @property
    def round_id(self) -> str:
        """The id of the round that question and answer become."""
        return f"chat-{self.request_id}"

    def whole(self, found: Found, answer: Answer, *, remembered: bool) -> ChatCompletion:
        """The whole answer."""
        return ChatCompletion(
            id=f"chatcmpl-{self.request_id}",
            created=self.created,
            model=self.model,
            choices=[Choice(message=ChatMessage(content=answer.text))],
            usage=total(answer.usage),
            vmem=self._memory(found, remembered=remembered),
        )

    def first(self) -> Chunk:
        """The chunk that says who speaks."""
        return self._chunk(Delta(role="assistant", content=""))

    def piece(self, text: str) -> Chunk:
        """A piece of the answer."""
        return self._chunk(Delta(content=text))

    def last(self, found: Found, *, remembered: bool) -> Chunk:
        """The chunk that ends the answer."""
        chunk = self._chunk(Delta(), ended=True)
        chunk.vmem = self._memory(found, remembered=remembered)
        return chunk

    def cost(self, answer: Answer) -> Chunk:
        """The chunk that says what it cost."""
        chunk = self._chunk(Delta())
        chunk.choices = []
        chunk.usage = total(answer.usage)
        return chunk

    def exchange(self, query: Query, answer: Answer, session: str | None) -> Round:
        """Question and answer as a round."""
        now = local_now()
        image = query.image
        images = []
        if image is not None:
            name = f"{self.round_id}:IMG_1"
            images.append(Image(id=name, uri=image.uri, caption=image.caption))
        return exchange(
            self.round_id,
            session=session if session is not None else now[:10],
            time=now,
            user=query.text,
            assistant=answer.text,
            images=images,
        )

    def _chunk(self, delta: Delta, *, ended: bool = False) -> Chunk:
        choice = ChunkChoice(delta=delta)
        if ended:
            choice.finish_reason = "stop"
        return Chunk(
            id=f"chatcmpl-{self.request_id}",
            object="chat.completion.chunk",
            created=self.created,
            model=self.model,
            choices=[choice],
        )

    def _memory(self, found: Found, *, remembered: bool) -> Remembered:
        search = self.shown.search(found, explain=False)
        notes = list(search.notes)
        if self.unread:
            notes.append(f"{self.unread} messages before the question were not read")
        return Remembered(
            memory=self.shown.memory,
            route=search.route,
            citations=search.citations,
            notes=notes,
            round_id=self.round_id if remembered else None,
        )


def total(usage: Iterable[Usage]) -> TokenUsage:
    """What all calls cost together."""
    calls = tuple(usage)
    prompt = sum(call.prompt_tokens for call in calls)
    completion = sum(call.completion_tokens for call in calls)
    return TokenUsage(
        prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion
    )
