"""A chat server whose every reply takes as long, and which knows how busy it was.

python -m jobs.benchmark_server LATENCY_S

It prints its port, and serves `/v1/chat/completions` until it is ended; GET `/work` tells what it
did since the last POST there. Its clock is the one of every process on the machine.
"""

import asyncio
import json
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any

import uvicorn

SAID = {"score": 0.5, "label": "CORRECT", "reasoning": "half of it"}
"""What all judges can read, and what serves as an answer."""
REPLY = {
    "object": "chat.completion",
    "choices": [
        {"index": 0, "finish_reason": "stop", "message": {"content": json.dumps(SAID)}},
    ],
    "usage": {"prompt_tokens": 900, "completion_tokens": 16},
}


@dataclass(slots=True, kw_only=True)
class Work:
    """What a server did.

    Attributes:
        calls: Calls answered.
        now: Calls under way.
        most: Most of them at once.
        first: When the first one came, seconds of the machine's clock; 0 where none did.
        came: When the last one came.
        last: When the last reply was sent.
        served: Seconds that calls were under way, summed.
        held: Those of them until the last call came: then there is no work left to wait for.
        cpu: Seconds of processor time.
    """

    calls: int = 0
    now: int = 0
    most: int = 0
    first: float = 0.0
    came: float = 0.0
    last: float = 0.0
    served: float = 0.0
    held: float = 0.0
    cpu: float = 0.0

    @property
    def wall(self) -> float:
        """Seconds from the first call's coming to the last reply."""
        return self.last - self.first

    def busy(self, concurrency: int) -> float:
        """The share of so many places that was taken until the last call came."""
        return self.held / ((self.came - self.first) * concurrency)


class FixedServer:
    """The application.

    Args:
        latency_s: Seconds from a call's coming to its reply.
    """

    def __init__(self, latency_s: float) -> None:
        self._latency_s = latency_s
        self._reply = json.dumps(REPLY).encode()
        self._begin()

    def _begin(self) -> None:
        self._work = Work()
        self._held, self._held_at = 0.0, 0.0
        self._cpu_before = time.process_time()

    async def __call__(
        self,
        scope: dict[str, Any],
        receive: Callable[[], Awaitable[dict[str, Any]]],
        send: Callable[[dict[str, Any]], Awaitable[None]],
    ) -> None:
        """Serve one request of ASGI."""
        came = time.perf_counter()
        while (await receive()).get("more_body"):
            pass
        if scope["path"] == "/work":
            self._work.cpu = time.process_time() - self._cpu_before
            told = json.dumps(asdict(self._work)).encode()
            if scope["method"] == "POST":
                self._begin()
            await _send(send, told)
            return
        work = self._work
        work.first = work.first or came
        work.held, work.came = self._hold(came), came
        work.now += 1
        work.most = max(work.most, work.now)
        await asyncio.sleep(came + self._latency_s - time.perf_counter())
        await _send(send, self._reply)
        work.last = time.perf_counter()
        self._hold(work.last)
        work.now -= 1
        work.calls += 1
        work.served += work.last - came

    def _hold(self, at: float) -> float:
        """Seconds that calls were under way until now, before one comes or goes."""
        self._held += self._work.now * (at - self._held_at)
        self._held_at = at
        return self._held


async def _send(send: Callable[[dict[str, Any]], Awaitable[None]], body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def main() -> None:
    """Serve on a free port of this machine alone."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listening:
        sys.stdout.write(f"{listening.getsockname()[1]}\n")
        sys.stdout.flush()
        config = uvicorn.Config(
            FixedServer(float(sys.argv[1])),
            http="httptools",
            loop="uvloop",
            lifespan="off",
            access_log=False,
            log_level="warning",
            timeout_keep_alive=120,
        )
        uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
