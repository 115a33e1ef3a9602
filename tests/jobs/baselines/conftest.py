"""A server that plays every part that the systems ask a model for, and a small LoCoMo of our own.

It answers by a script and not by a model: what it says depends on the request alone, and its form
on the JSON schema that the request names. It counts what it gave.
"""

import hashlib
import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from vmem.datasets.sample import read_sample

ROUNDS = 24
"""Of the sample, that make the small LoCoMo: 48 messages, so two of Omni's windows."""
MONTH = "May, 2023"


def told(prompt: str, tag: str) -> str:
    """What stands between two tags of a prompt, the last such pair."""
    return prompt.rpartition(f"<{tag}>")[2].partition(f"</{tag}>")[0].strip()


def word(body: Mapping[str, Any]) -> str:
    """Some word, by the request alone."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:8]


def asked(body: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The prompt of a request, and the properties of the JSON that it wants.

    Of a call, `tool` alone, with the names of all tools.
    """
    content = body["messages"][0]["content"]
    prompt = content if isinstance(content, str) else content[-1]["text"]
    form = body.get("response_format", {}).get("json_schema", {}).get("schema", {})
    if calls := form.get("anyOf"):
        tools = [name for call in calls for name in call["properties"]["tool"]["enum"]]
        return prompt, {"tool": {"enum": tools}}
    return prompt, form.get("properties", {})


def played(body: Mapping[str, Any]) -> str:
    """A good reply."""
    prompt, wanted = asked(body)
    if "statements" in wanted:
        lines = [line for line in told(prompt, "messages").split("\n") if line.startswith("[")]
        return json.dumps({"statements": [f"It is known that {line}" for line in lines[::2]]})
    if "entities" in wanted:
        return json.dumps({"entities": [{"name": "Bram", "type": "PERSON", "confidence": 0.9}]})
    if "decision" in wanted:
        shown = re.findall(r"^\[(\d+)\]", told(prompt, "earlier_notes"), re.MULTILINE)
        return json.dumps({"decision": "strengthen", "links": shown[:1], "tags": ["linked"]})
    if "context" in wanted:
        return json.dumps({"keywords": [word(body)], "context": "A note.", "tags": ["noted"]})
    if "tool" in wanted:
        return json.dumps(call_of(prompt, wanted["tool"]["enum"]))
    if "score" in wanted:
        return json.dumps({"score": 1, "reasoning": "It says the same."})
    if "label" in wanted:
        return json.dumps({"label": "CORRECT", "reasoning": "It says the same."})
    if "keywords" in wanted:
        return json.dumps({"keywords": ["rocket", "tin"], "caption": "A tin rocket."})
    texts = {name: f"{name} {word(body)}" for name in wanted}
    return json.dumps(texts) if wanted else f"word {word(body)}"


def newest_message(prompt: str) -> str:
    """The message that M2A's first agent is shown last; empty once it did something about it."""
    lines = told(prompt, "messages").split("\n")
    if lines[-1].startswith("(The pictures above"):
        lines.pop()
    return lines[-1] if lines[-1].startswith("#") else ""


def call_of(prompt: str, tools: list[str]) -> dict[str, Any]:
    """What an agent of M2A's does: one thing, and then it has done."""
    if "update_memory" in tools:
        new = newest_message(prompt)
        return {"tool": "update_memory", "text": new[:200]} if new else {"tool": "done"}
    if "query_memory" in tools:
        answer = {"tool": "answer", "text": "word from the memory"}
        return answer if "The memory says" in prompt else {"tool": "query_memory", "text": "it"}
    if "add" in tools:
        add = {"tool": "add", "text": told(prompt, "suggested"), "messages": [[1, 1]]}
        return {"tool": "done"} if "is added." in prompt else add
    answer = {"tool": "answer", "text": "so it is"}
    return answer if "You called" in prompt else {"tool": "search", "text": "what was said"}


class ScriptedServer:
    """Speaks chat completions on loopback.

    Attributes:
        script: Makes the text of a reply of a request's body.
        replies: Replies given, by model.
        tokens: What they claim to have taken, prompts and replies together.
    """

    def __init__(self) -> None:
        self.script: Callable[[Mapping[str, Any]], str] = played
        self.replies: Counter[str] = Counter()
        self.tokens = 0
        self._lock = threading.Lock()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                sent = owner._reply(body)
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(sent)))
                self.end_headers()
                self.wfile.write(sent)

            def log_message(self, *_: object) -> None:
                pass

        class Http(ThreadingHTTPServer):
            daemon_threads = True

        self._http = Http(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"
        self._thread = threading.Thread(target=self._http.serve_forever)
        self._thread.start()

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def _reply(self, body: Mapping[str, Any]) -> bytes:
        text = self.script(body)
        prompt, _ = asked(body)
        usage = {"prompt_tokens": len(prompt) // 4 + 1, "completion_tokens": len(text) // 4 + 1}
        with self._lock:
            self.replies[body["model"]] += 1
            self.tokens += sum(usage.values())
        choice = {"index": 0, "finish_reason": "stop", "message": {"content": text}}
        values = {"id": "c1", "object": "chat.completion", "created": 1, "model": body["model"]}
        return json.dumps({**values, "choices": [choice], "usage": usage}).encode()


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    made = ScriptedServer()
    yield made
    made.stop()


@pytest.fixture(scope="session")
def play() -> Callable[[Mapping[str, Any]], str]:
    """The server's own script, for those that change a part of it."""
    return played


@pytest.fixture(scope="session")
def wanted_by() -> Callable[[Mapping[str, Any]], tuple[str, dict[str, Any]]]:
    """A request's prompt, and the properties of the JSON that it wants."""
    return asked


@pytest.fixture(scope="session")
def newest() -> Callable[[str], str]:
    """The message that a prompt of M2A's first agent is about."""
    return newest_message


@pytest.fixture(scope="session")
def small_locomo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample's first rounds as two people's talk, in LoCoMo's format, with two questions."""
    read = read_sample()
    conversation: dict[str, Any] = {"speaker_a": "Ida", "speaker_b": "Otto"}
    names = {"user": "Ida", "assistant": "Otto"}
    turns = [turn for round_ in read.dialogues[0].rounds[:ROUNDS] for turn in round_.turns]
    half = len(turns) // 2
    for session, part in ((1, turns[:half]), (2, turns[half:])):
        conversation[f"session_{session}_date_time"] = f"1:56 pm on {session} {MONTH}"
        conversation[f"session_{session}"] = [
            {"speaker": names[turn.speaker], "dia_id": f"D{session}:{number}", "text": turn.text}
            for number, turn in enumerate(part, 1)
        ]
    questions = [
        {"question": "When did they talk first?", "answer": "1 May 2023", "category": 2},
        {"question": "Who talks?", "answer": "Ida and Otto", "category": 4},
    ]
    sample = {
        "sample_id": "conv-1",
        "conversation": conversation,
        "qa": [{**question, "evidence": ["D1:1"]} for question in questions],
    }
    folder = tmp_path_factory.mktemp("locomo")
    (folder / "locomo10.json").write_text(json.dumps([sample]))
    return folder
