"""A model that the job serves: started, reached, watched and ended; a stand-in for vLLM."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.evaluation import served as module
from jobs.evaluation.evaluate import drive
from jobs.evaluation.manifest import make_manifest
from jobs.evaluation.models import server_name
from jobs.evaluation.plan import ModelPlan, Plan
from jobs.evaluation.records import Stage
from jobs.evaluation.run_folder import RunFolder
from jobs.evaluation.served import ServePlan, served
from vmem.config import ModelSettings
from vmem.errors import ConfigError, ModelUnavailableError
from vmem.llm.ledger import read_ledger

WAIT_S = 60
LLM = ModelSettings(provider="openai", model="small")
SERVER = """
import json, os, sys, threading, yaml
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

settings = yaml.safe_load(open(sys.argv[1]))
if settings.get("seed") == 13:
    print("INFO loading\\n(Engine) ValueError: no such weights\\nRuntimeError: see above")
    sys.exit(3)

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send(200, {})

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["Authorization"] != "Bearer " + os.environ["VLLM_API_KEY"]:
            return self.send(401, {})
        if settings.get("seed") == 14:
            os._exit(4)
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant",
            "content": "an answer"}}
        usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
        self.send(200, {"id": "1", "object": "chat.completion", "created": 1, "model": "small",
            "choices": [choice], "usage": usage})

    def send(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

print("pid", os.getpid(), flush=True)
ThreadingHTTPServer((settings["host"], settings["port"]), Handler).serve_forever()
"""


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A small server in place of vLLM, which may be missing."""
    script = tmp_path / "server.py"
    script.write_text(SERVER, encoding="utf-8")
    monkeypatch.setattr(module, "command", lambda _, file: [sys.executable, str(script), str(file)])
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda _: object())


def pid_in(log: Path) -> int:
    """The server's process, which it writes first."""
    until(lambda: "pid" in log.read_text(encoding="utf-8"))
    return int(log.read_text(encoding="utf-8").split()[1])


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").split()[2] != "Z"
    except FileNotFoundError:
        return False


def command_lines() -> dict[int, str]:
    """Of all processes."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it ended meanwhile
            found[int(path.parent.name)] = path.read_bytes().decode(errors="replace")
    return found


def plan(**engine: Any) -> Plan:
    serve = {"model_source": "a-model", "engine_kwargs": engine}
    model = {"name": "b", "llm": LLM, "serve": serve}
    return Plan(
        name="served",
        changes={"encoders": {"text": {"kind": "fake"}, "image": {"kind": "fake"}}},
        benchmarks=({"name": "sample", "questions": 2},),
        systems=("no-memory",),
        backbones=(model,),
        draws=100,
    )


def test_the_server_is_reached_by_its_address_and_ended_with_the_block(tmp_path: Path) -> None:
    serve = ServePlan(model_source="a-model", engine_kwargs={"max_model_len": 2_048, "seed": 1})
    with served("b", serve, LLM, tmp_path) as server:
        pid = pid_in(tmp_path / "b.log")
        assert lives(pid)
        settings = yaml.safe_load((tmp_path / "b.yaml").read_text(encoding="utf-8"))
        assert settings["served-model-name"] == "small"
        assert (settings["host"], settings["max-model-len"]) == ("127.0.0.1", 2_048)
        assert "tool-call-parser" not in settings
        assert server.llm.base_url == f"http://127.0.0.1:{settings['port']}/v1"
        assert server.llm.context_window == 2_048
    assert not lives(pid)
    assert server.process.poll() is not None


def test_tools_are_called_natively_where_a_parser_is_named(tmp_path: Path) -> None:
    serve = ServePlan(model_source="a-model", tool_call_parser="hermes")
    with served("b", serve, LLM, tmp_path):
        settings = yaml.safe_load((tmp_path / "b.yaml").read_text(encoding="utf-8"))
    assert settings["tool-call-parser"] == "hermes"
    assert settings["enable-auto-tool-choice"] is True
    assert '"tool_call_parser": "hermes"' in serve.server  # replies differ


def test_a_failure_ends_it_too(tmp_path: Path) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        served("b", ServePlan(model_source="a-model"), LLM, tmp_path),
    ):
        raise KeyboardInterrupt
    assert not lives(pid_in(tmp_path / "b.log"))


def test_it_ends_where_its_starter_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("{host: 127.0.0.1, port: 0}", encoding="utf-8")
    starter = (
        "import subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-m', 'jobs.evaluation.guarded', *sys.argv[1:]],"
        " stdin=subprocess.PIPE, start_new_session=True)\n"
        "time.sleep(600)"
    )
    log = tmp_path / "log"
    command = module.command(ServePlan(model_source="a-model"), file)
    with log.open("wb") as output:
        process = subprocess.Popen([sys.executable, "-c", starter, *command], stdout=output)
    pid = pid_in(log)
    assert lives(pid)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    until(lambda: not lives(pid))


def test_a_server_that_ends_before_it_answers_is_one_sentence(tmp_path: Path) -> None:
    serve = ServePlan(model_source="a-model", engine_kwargs={"seed": 13})
    with (
        pytest.raises(
            ModelUnavailableError,
            match=r"a-model ended \(status 3\) before .*: ValueError: no such weights; .*b\.log",
        ),
        served("b", serve, LLM, tmp_path),
    ):
        pass


def test_one_that_does_not_answer_in_time_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = str(tmp_path / "idle")
    idle = [sys.executable, "-c", "import time; time.sleep(600)", mark]
    monkeypatch.setattr(module, "command", lambda *_: idle)
    serve = ServePlan(model_source="a-model", start_timeout_s=3)
    with (
        pytest.raises(ModelUnavailableError, match=r"did not answer within 3 s"),
        served("b", serve, LLM, tmp_path),
    ):
        pass
    # On a slow machine it may not even have been started.
    assert not [pid for pid, line in command_lines().items() if mark in line and lives(pid)]


def test_a_stage_asks_what_it_serves_and_needs_no_server_once_it_is_whole(tmp_path: Path) -> None:
    asked = plan(dtype="bfloat16")
    assert drive(Stage.ANSWER, asked, asked.backbones[0], tmp_path) == "small"
    (cell,) = asked.cells()
    records = RunFolder(tmp_path).answers(cell).read()
    assert [record.answer for record in records] == ["an answer"] * 2
    log = tmp_path / "served" / "b.log"
    assert not lives(pid_in(log))
    calls, _ = read_ledger(tmp_path / "ledger.jsonl")
    assert [call.cost_usd for call in calls] == [0.0] * 2  # one's own machine
    before = log.read_bytes()
    assert drive(Stage.ANSWER, asked, asked.backbones[0], tmp_path) == "small"
    assert log.read_bytes() == before


def test_replies_are_kept_whatever_the_port(tmp_path: Path) -> None:
    asked = plan()
    drive(Stage.ANSWER, asked, asked.backbones[0], tmp_path)
    (cell,) = asked.cells()
    RunFolder(tmp_path).answers(cell).path.unlink()
    drive(Stage.ANSWER, asked, asked.backbones[0], tmp_path)
    calls, _ = read_ledger(tmp_path / "ledger.jsonl")
    assert [call.cached for call in calls] == [False, False, True, True]


def test_a_server_that_dies_ends_the_stage_and_leaves_questions_open(tmp_path: Path) -> None:
    asked = plan(seed=14)
    with pytest.raises(
        ModelUnavailableError, match=r"vLLM server of small ended \(status 4\) .*b\.log"
    ):
        drive(Stage.ANSWER, asked, asked.backbones[0], tmp_path)
    (cell,) = asked.cells()
    assert not RunFolder(tmp_path).answers(cell).finished


def test_the_servers_name_tells_models_apart_and_not_their_speed() -> None:
    def name(**engine: Any) -> str:
        return server_name(plan(**engine).backbones[0])

    assert name() == name(max_num_seqs=4, max_model_len=1_024) == "vllm a-model"
    assert name(dtype="bfloat16") != name(dtype="float32")
    made = make_manifest(plan())
    assert made["servers"] == {"b": "vllm a-model"}
    assert made["plan"]["backbones"][0]["serve"]["model_source"] == "a-model"
    assert '"api_key"' not in json.dumps(made)


def test_without_vllm_or_its_weights_one_sentence_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = ServePlan(model_source="./nowhere")
    with (
        pytest.raises(ConfigError, match=r"there is no folder \./nowhere"),
        served("b", missing, LLM, tmp_path),
    ):
        pass
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda _: None)
    with (
        pytest.raises(ConfigError, match=r"needs vLLM 0\.29\.0: install vmem\[gpu\]"),
        served("b", missing, LLM, tmp_path),
    ):
        pass


@pytest.mark.parametrize(
    ("llm", "serve", "said"),
    [
        ({"model": "m"}, {}, "llm.provider openai"),
        ({"provider": "openai", "model": "m", "base_url": "http://x/v1"}, {}, "no llm.base_url"),
        ({"provider": "openai"}, {}, "a name for requests"),
        ({}, {"engine_kwargs": {"max_len": 1}}, "no argument 'max_len'"),
        ({}, {"engine_kwargs": {"hf_token": "x"}}, "environment only"),
        ({}, {"engine_kwargs": {"tensor_parallel_size": 2}, "gpus": 1}, "gpus is 1 for 2 times 1"),
    ],
)
def test_what_a_plan_may_not_say(llm: Any, serve: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ModelPlan(name="b", llm=llm, serve={"model_source": "m", **serve})
