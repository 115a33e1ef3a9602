"""Server-sent events that end what makes them when the reader is gone."""

from collections.abc import AsyncGenerator

import anyio
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from pydantic import BaseModel
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

KEEP_ALIVE_S = 15.0
"""Seconds after which a comment line tells proxies that a silent stream lives."""


class EventStream(StreamingResponse):
    """Events as a response; their source is closed at the end, whichever way it ends.

    The source runs in the request's own task: what it opened there it may also close there.

    Args:
        events: Encoded events.
        keep_alive_s: Seconds between comment lines.
    """

    media_type = "text/event-stream"

    def __init__(
        self, events: AsyncGenerator[bytes, None], keep_alive_s: float = KEEP_ALIVE_S
    ) -> None:
        super().__init__(events, headers={"x-accel-buffering": "no"})
        self._events = events
        self._keep_alive_s = keep_alive_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send the events until they or their reader end."""
        one_at_a_time = anyio.Lock()

        async def send_in_turn(message: Message) -> None:
            async with one_at_a_time:
                await send(message)
                if not message.get("more_body", True):
                    tasks.cancel_scope.cancel()  # while a waiting comment cannot get its turn

        async def keep_alive() -> None:
            while True:
                await anyio.sleep(self._keep_alive_s)
                comment = {"type": "http.response.body", "body": KEEPALIVE_COMMENT}
                await send_in_turn({**comment, "more_body": True})

        async def until_gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            tasks.cancel_scope.cancel()

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(until_gone)
                tasks.start_soon(keep_alive)
                await self.stream_response(send_in_turn)
        finally:
            with anyio.CancelScope(shield=True):
                await self._events.aclose()


def event(data: BaseModel | str, name: str | None = None) -> bytes:
    """One event, encoded.

    Args:
        data: A model as JSON, or a line as it is.
        name: The event's name.
    """
    text = data if isinstance(data, str) else data.model_dump_json()
    return format_sse_event(data_str=text, event=name)
