"""A scripted language model, for tests and for trying the plumbing without weights."""

import hashlib
import re
from collections.abc import AsyncGenerator, Callable, Sequence

from vmem.errors import ModelError
from vmem.ports import ChatReply, ChatRequest
from vmem.types import Usage

Script = Callable[[ChatRequest], str] | Sequence[str | Exception]


def echo_role(request: ChatRequest) -> str:
    """The call's role and a fingerprint of its prompt: the same for the same request."""
    return f"fake {request.role} {hashlib.sha256(request.prompt.encode()).hexdigest()[:8]}"


class FakeChat:
    """Replies by a script and keeps every request; a token is a blank-separated word.

    Args:
        script: A function of the request, or the replies in turn, an exception being raised.
        name: The model's name.
        sees_images: Whether it claims to take pictures.
    """

    def __init__(
        self, script: Script = echo_role, *, name: str = "fake", sees_images: bool = False
    ) -> None:
        self._script = script
        self._name = name
        self._sees_images = sees_images
        self.requests: list[ChatRequest] = []
        self.closed = False

    @property
    def name(self) -> str:
        """The model's name, as a table prints it."""
        return self._name

    @property
    def sees_images(self) -> bool:
        """Whether requests may carry pictures."""
        return self._sees_images

    async def complete(self, request: ChatRequest) -> ChatReply:
        """The script's next reply.

        Raises:
            ModelError: The script is at its end.
            Exception: Whatever exception the script holds for this call.
        """
        self.requests.append(request)
        reply = self._next_reply(request)
        if isinstance(reply, Exception):
            raise reply
        usage = Usage(
            role=request.role,
            prompt_tokens=self.count_tokens(request.prompt),
            completion_tokens=self.count_tokens(reply),
        )
        return ChatReply(text=reply, usage=usage)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[str | ChatReply, None]:
        """The script's next reply word by word, and last as a whole.

        Raises:
            ModelError, Exception: As `complete`.
        """
        reply = await self.complete(request)
        for piece in re.findall(r"\s*\S+\s*", reply.text):
            yield piece
        yield reply

    async def check(self) -> None:
        """Nothing: a script is always there."""

    def count_tokens(self, text: str) -> int:
        """Number of blank-separated words."""
        return len(text.split())

    async def close(self) -> None:
        """Note that it was closed."""
        self.closed = True

    def _next_reply(self, request: ChatRequest) -> str | Exception:
        if callable(self._script):
            return self._script(request)
        calls = len(self.requests)
        if calls > len(self._script):
            raise ModelError(f"the script has {len(self._script)} replies, and call {calls} came")
        return self._script[calls - 1]
