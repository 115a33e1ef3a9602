"""The shipped plan of a model that the job serves, on a real vLLM and a real Ray."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar, Literal

import httpx2
import pytest
import yaml

from jobs.evaluation.plan import load_plan
from jobs.evaluation.run_folder import RunFolder
from jobs.evaluation.served import served
from vmem.baselines.forms import read_form, strict_schema
from vmem.baselines.m2a_loop import Call, Tools
from vmem.config import CONFIGS
from vmem.llm.openai_chat import OpenAIChat
from vmem.ports import ChatReply, ChatRequest

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1_800)]

QUESTIONS = 2


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """configs/benchmarks/vllm-cpu.yaml, with its model beside it."""
    from serve.models_cpu import write_smollm2

    folder = tmp_path_factory.mktemp("served")
    plan = yaml.safe_load((CONFIGS / "benchmarks" / "vllm-cpu.yaml").read_text(encoding="utf-8"))
    source = str(write_smollm2(folder))
    for model in (*plan["backbones"], *plan["judges"]):
        model["serve"]["model_source"] = source
    path = folder / "plan.yaml"
    path.write_text(yaml.safe_dump(plan), encoding="utf-8")
    return path


def run(plan: Path, out: Path) -> None:
    command = [sys.executable, "-m", "vmem.cli", "eval", "run", "--plan", str(plan)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(
        [*command, "--out", str(out)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2_000:]


def left_running(source: str) -> list[str]:
    """Command lines of processes that serve a model."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:  # it ended meanwhile
            continue
    return [line for line in lines if source in line]


def test_a_whole_run_with_a_model_of_its_own(plan_file: Path, tmp_path: Path) -> None:
    run(plan_file, tmp_path)
    plan, folder = load_plan(plan_file, {}), RunFolder(tmp_path)
    for cell in plan.cells():
        records = folder.answers(cell).read()
        assert len(records) == QUESTIONS
        assert all(r.error is None and r.answer and r.cost["answer"].prompt_tokens for r in records)
        (judge,) = plan.judges
        assert len(folder.judgements(f"{cell}.{judge.name}.gallery").read()) == QUESTIONS
    manifest: dict[str, Any] = json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["models"] == {"smollm2-135m": "smollm2-135m-instruct"}
    assert "port" not in json.dumps(manifest["servers"])
    assert (tmp_path / "tables" / "tables.md").is_file()
    (backbone,) = plan.backbones
    assert backbone.serve is not None
    assert left_running(backbone.serve.model_source) == []
    log = tmp_path / "served" / "smollm2-135m.log"
    before = log.stat().st_size
    run(plan_file, tmp_path)
    assert log.stat().st_size == before  # all is there: no server was started


class Step(Call):
    """Something to do that ends after a few tokens, whatever the model says."""

    takes: ClassVar[Tools] = {"search": ("day",), "forget": ("day",)}

    day: Literal["Monday", "Tuesday"]


@pytest.mark.parametrize(
    ("parser", "asked"),
    [("hermes", ["required"] * 2), ("", ["required", None, None])],
    ids=["natively", "by its schema once the server has refused"],
)
def test_a_tool_is_called(
    plan_file: Path, tmp_path: Path, parser: str, asked: list[str | None]
) -> None:
    request = ChatRequest(
        role="agent",
        prompt="Search what was said on Monday.",
        max_tokens=100,
        temperature=0.0,
        json_schema=strict_schema(Step),
        calls_tool=True,
    )
    sent: list[dict[str, Any]] = []

    async def note(call: httpx2.Request) -> None:
        sent.append(json.loads(call.content))

    async def ask_twice(chat: OpenAIChat) -> list[ChatReply]:
        try:
            return [await chat.complete(request) for _ in range(2)]
        finally:
            await chat.close()

    (backbone,) = load_plan(plan_file, {}).backbones
    assert backbone.serve is not None
    serve = backbone.serve.model_copy(update={"tool_call_parser": parser})
    with served("tools", serve, backbone.llm, tmp_path) as server:
        client = httpx2.AsyncClient(event_hooks={"request": [note]})
        replies = asyncio.run(ask_twice(OpenAIChat(server.llm, http_client=client)))
    assert [body.get("tool_choice") for body in sent] == asked
    assert ["response_format" in body for body in sent] == [choice is None for choice in asked]
    for reply in replies:
        read_form(reply.text, Step)
