"""A language model that is given up once no call can succeed."""

from collections.abc import AsyncGenerator

from vmem.errors import ModelUnavailableError, ModelUnusableError
from vmem.ports import ChatModel, ChatReply, ChatRequest


class GivenUpChat:
    """Another model, until so many calls in a row found its server away; then it is asked no more.

    Nor is it once a call says that none can succeed.

    Each of those was tried as often as the model tries: what would follow are as many failures as
    there are questions left. A call that gets through starts the count anew, and so does one that
    fails otherwise, since somebody answered it.

    Args:
        chat: The model that is asked.
        patience: The calls in a row.
    """

    def __init__(self, chat: ChatModel, patience: int) -> None:
        self._chat = chat
        self._patience = patience
        self._away = 0
        self._why = ""

    @property
    def name(self) -> str:
        """The model's own name."""
        return self._chat.name

    @property
    def sees_images(self) -> bool:
        """Whether requests may carry pictures."""
        return self._chat.sees_images

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Answer one request.

        Raises:
            ModelUnusableError: The server stayed away for too long, or no call can succeed.
            ModelError, ImageError: As the model's own `complete`.
        """
        if self._why:
            raise ModelUnusableError(self._why)
        try:
            reply = await self._chat.complete(request)
        except ModelUnavailableError as error:
            self._away += 1
            if self._away >= self._patience:
                self._why = f"{error}; {self._away} calls in a row ended so, and no more are made"
                raise ModelUnusableError(self._why) from error
            raise
        except ModelUnusableError as error:
            self._why = str(error)
            raise
        except Exception:
            self._away = 0
            raise
        self._away = 0
        return reply

    async def stream(self, request: ChatRequest) -> AsyncGenerator[str | ChatReply, None]:
        """Answer as `complete` does, in one piece.

        Yields:
            The reply's text, and last the reply with its cost.

        Raises:
            ModelUnusableError, ModelError, ImageError: As `complete`.
        """
        reply = await self.complete(request)
        yield reply.text
        yield reply

    async def check(self) -> None:
        """Find out whether the model answers.

        Raises:
            ModelError: It does not.
        """
        await self._chat.check()

    def count_tokens(self, text: str) -> int:
        """Length of a text in the model's tokens."""
        return self._chat.count_tokens(text)

    async def close(self) -> None:
        """Close the model."""
        await self._chat.close()
