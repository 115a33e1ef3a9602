"""A scripted OpenAI-compatible server on loopback, and a client for it."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from openai import DefaultAsyncHttpxClient

from vmem.config import ModelSettings
from vmem.llm.openai_chat import OpenAIChat


@dataclass
class Sent:
    """What the server answers with; a body of None is a connection that is cut."""

    status: int = 200
    body: bytes | None = b""
    headers: dict[str, str] = field(default_factory=dict)
    wait: threading.Event | None = None


def completion(text: str | None, prompt_tokens: int = 11, completion_tokens: int = 3) -> Sent:
    choice = {"index": 0, "finish_reason": "stop", "message": {"content": text}}
    values = {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "m7",
        "choices": [choice],
        "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens},
    }
    return Sent(body=json.dumps(values).encode())


class ScriptedServer:
    """Counts the calls; `script` makes an answer of a prompt and how often it was sent before."""

    def __init__(self) -> None:
        self.script: Callable[[str, int], Sent] = lambda prompt, _: completion(f"re {prompt}")
        self.prompts: list[str] = []
        self.released = threading.Event()
        self._lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                prompt = body["messages"][0]["content"]
                with server._lock:
                    earlier = server.prompts.count(prompt)
                    server.prompts.append(prompt)
                sent = server.script(prompt, earlier)
                if sent.wait is not None:
                    sent.wait.wait(60)
                self.close_connection = True
                if sent.body is None:
                    return
                try:
                    self.send_response(sent.status)
                    for name, value in sent.headers.items():
                        self.send_header(name, value)
                    self.send_header("content-type", "application/json")
                    self.send_header("content-length", str(len(sent.body)))
                    self.send_header("connection", "close")
                    self.end_headers()
                    self.wfile.write(sent.body)
                except OSError:  # the client did not wait
                    return

            def log_message(self, *_: Any) -> None:
                pass

        class Http(ThreadingHTTPServer):
            request_queue_size = 128  # else clients that come at once wait to be let in

        self._http = Http(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,))
        self._thread.start()

    def chat(self, **settings: Any) -> OpenAIChat:
        values = {"base_url": self.url, "model": "m7", **settings}
        return OpenAIChat(
            ModelSettings(**values),
            http_client=DefaultAsyncHttpxClient(trust_env=False),
        )

    def stop(self) -> None:
        self.released.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@pytest.fixture
def scripted_server() -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    yield server
    server.stop()


@pytest.fixture
def sent() -> type[Sent]:
    return Sent


@pytest.fixture
def completed() -> Callable[..., Sent]:
    return completion
