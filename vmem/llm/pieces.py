"""A streamed chat completion, read piece by piece under one deadline."""

import asyncio

from openai import AsyncStream
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletionChunk

from vmem.errors import ModelFormatError
from vmem.types import Usage


class Pieces:
    """The text of one reply as it comes, and what the server says of it.

    Args:
        stream: The server's events.
        deadline: When the reply must be whole, in the event loop's seconds.
        where: The model and its server, as a sentence starts.

    Attributes:
        text: What came so far.
        finish: Why the reply ended, once the server said so.
    """

    def __init__(
        self, stream: AsyncStream[ChatCompletionChunk], deadline: float, where: str
    ) -> None:
        self.text = ""
        self.finish: str | None = None
        self._stream = stream
        self._deadline = deadline
        self._where = where
        self._first: str | None = None
        self._usage: CompletionUsage | None = None
        self._has_started = False

    async def start(self) -> None:
        """Read up to the first text, which `next` then gives.

        Raises:
            ModelFormatError: As `next`.
        """
        try:
            self._first = await self._read()
        except BaseException:  # also where the task is cancelled: nobody else knows the stream
            await self.close()
            raise

    async def next(self) -> str | None:
        """The next piece of text; None at the end.

        Raises:
            TimeoutError: The deadline has passed.
            openai.APIError: The connection broke, or the server says that it failed.
            ModelFormatError: These are no chat completion's events.
        """
        piece, self._first = self._first, None
        if piece is None:
            piece = await self._read()
        self.text += piece or ""
        return piece

    def usage(self, role: str) -> Usage:
        """What the call cost; 0 where the server does not say."""
        if not isinstance(self._usage, CompletionUsage):
            return Usage(role=role)
        return Usage(
            role=role,
            prompt_tokens=self._usage.prompt_tokens or 0,
            completion_tokens=self._usage.completion_tokens or 0,
        )

    async def close(self) -> None:
        """Release the connection; a server that watches it stops writing."""
        await self._stream.close()

    async def _read(self) -> str | None:
        async with asyncio.timeout_at(self._deadline):
            async for chunk in self._stream:
                if piece := self._take(chunk):
                    return piece
        if not self._has_started:
            raise self._no_completion()
        return None

    def _take(self, chunk: object) -> str | None:
        # The client checks nothing: a field may be missing or of any kind.
        if not isinstance(chunk, ChatCompletionChunk):
            raise self._no_completion()
        self._usage = chunk.usage or self._usage
        if not chunk.choices:
            return None
        self._has_started = True
        try:
            choice = chunk.choices[0]
            self.finish = choice.finish_reason or self.finish
            piece = choice.delta.content if choice.delta else None
        except (AttributeError, TypeError, KeyError) as error:
            raise self._no_completion() from error
        if piece is not None and not isinstance(piece, str):
            raise self._no_completion()
        return piece

    def _no_completion(self) -> ModelFormatError:
        return ModelFormatError(
            f"{self._where} answered with no chat completion: llm.base_url must end in /v1"
        )
