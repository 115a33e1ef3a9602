"""A vLLM that a driver serves to itself: started on its node and its GPUs, and ended with it."""

import asyncio
import importlib.util
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx
import yaml
from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from jobs.evaluation.guarded import PATIENCE_S
from serve.models import ENGINE_ARGUMENTS
from vmem.config import ModelSettings
from vmem.errors import ConfigError, ModelUnavailableError

LOOK_S = 0.5
"""Seconds between two looks at whether the server answers, or still lives."""
MODULE = "vllm.entrypoints.openai.api_server"
"""What runs: the command `vllm serve` wants a package named vllm, which the one for CPUs is not."""
SPEED = frozenset(
    {
        "enable_prefix_caching", "enforce_eager", "gpu_memory_utilization", "max_model_len",
        "max_num_batched_tokens", "max_num_seqs", "pipeline_parallel_size", "tensor_parallel_size",
    }
)  # fmt: skip
"""Arguments that change how fast and how long a model may write, not what it writes."""
_ERROR = re.compile(r"\b\w+Error: .+")
_SHOWN = 200

T = TypeVar("T")


class ServePlan(BaseModel):
    """How a job serves a model by vLLM; names are those of `configs/serve/`.

    Attributes:
        model_source: A folder in Hugging Face's layout, or a name on the hub.
        engine_kwargs: vLLM's arguments, such as `max_model_len`, `tensor_parallel_size`, `dtype`.
        gpus: GPUs that Ray reserves for the driver: one for each of vLLM's workers, or none, and
            then vLLM is the one for CPUs.
        tool_call_parser: vLLM's own, such as `hermes` for Qwen2.5, so that agents call tools
            natively; without it they are held to a JSON schema.
        env_vars: Environment of the server.
        start_timeout_s: Seconds until it must answer; large weights take many minutes to load.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    model_source: str = Field(min_length=1)
    engine_kwargs: Mapping[str, Any] = Field(default_factory=dict)
    gpus: int = Field(default=0, ge=0)
    tool_call_parser: str = ""
    env_vars: Mapping[str, str] = Field(default_factory=dict)
    start_timeout_s: float = Field(default=1_800.0, gt=0)

    @field_validator("engine_kwargs")
    @classmethod
    def _known_arguments(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        if unknown := sorted(values.keys() - ENGINE_ARGUMENTS):
            raise ValueError(f"vLLM 0.29.0 has no argument {unknown[0]!r}")
        if "hf_token" in values:
            raise ValueError("hf_token: keys are read from the environment only; set HF_TOKEN")
        return values

    @model_validator(mode="after")
    def _a_gpu_for_each_worker(self) -> Self:
        degrees = [self.engine_kwargs.get(f"{n}_parallel_size", 1) for n in ("tensor", "pipeline")]
        if self.gpus and self.gpus != degrees[0] * degrees[1]:
            raise ValueError(f"gpus is {self.gpus} for {degrees[0]} times {degrees[1]} workers")
        return self

    @property
    def arguments(self) -> dict[str, Any]:
        """Those of vLLM, by their names there."""
        if not self.tool_call_parser:
            return dict(self.engine_kwargs)
        tools = {"tool_call_parser": self.tool_call_parser, "enable_auto_tool_choice": True}
        return {**self.engine_kwargs, **tools}

    @property
    def server(self) -> str:
        """A name of the server that is the same in every run: its port and its speed are not."""
        said = {n: v for n, v in self.arguments.items() if n not in SPEED}
        arguments = f" {json.dumps(said, sort_keys=True)}" if said else ""
        return f"vllm {self.model_source}{arguments}"


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmServer:
    """A server that runs.

    Attributes:
        llm: Settings that reach it.
        process: What ends it when its input closes.
        log: Where it writes.
    """

    llm: ModelSettings
    process: "subprocess.Popen[bytes]"
    log: Path

    async def watched(self, work: Coroutine[Any, Any, T]) -> T:
        """Do what needs the server; the work is cut off where the server ends meanwhile.

        Raises:
            ModelUnavailableError: It ended.
        """
        task = asyncio.create_task(work)
        while not (await asyncio.wait([task], timeout=LOOK_S))[0]:
            if self.process.poll() is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                raise ModelUnavailableError(
                    f"the vLLM server of {self.llm.model} ended (status"
                    f" {self.process.returncode}) while it was needed; see the end of {self.log}"
                )
        return task.result()


@contextmanager
def served(name: str, plan: ServePlan, llm: ModelSettings, folder: Path) -> Iterator[VllmServer]:
    """A vLLM server on loopback and a free port, as long as the with-block or this process lasts.

    Args:
        name: Of its files.
        plan: What it serves.
        llm: `model` is the model's name in requests; the rest holds for its client.
        folder: Where its log and its configuration go.

    Raises:
        ConfigError: vLLM or the model's folder is missing.
        ModelUnavailableError: It ended before it answered, or did not answer in time.
    """
    _check(plan)
    folder.mkdir(parents=True, exist_ok=True)
    key, port, log = secrets.token_urlsafe(), _free_port(), folder / f"{name}.log"
    configuration = folder / f"{name}.yaml"
    own = {"served_model_name": llm.model, "host": "127.0.0.1", "port": port}
    values = {n.replace("_", "-"): v for n, v in {**plan.arguments, **own}.items()}
    configuration.write_text(yaml.safe_dump(values), encoding="utf-8")
    environment = {
        "VLLM_NO_USAGE_STATS": "1",
        **os.environ,
        **plan.env_vars,
        "VLLM_API_KEY": key,  # others on the machine reach loopback too
    }
    guard = [sys.executable, "-m", "jobs.evaluation.guarded"]
    with log.open("ab") as output:
        start = output.tell()
        process = subprocess.Popen(
            [*guard, *command(plan, configuration)],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # Ctrl-C is for whoever started this
        )
    try:
        _await_answer(process, plan, port, log, start)
        yield VllmServer(
            llm=llm.model_copy(
                update={
                    "base_url": f"http://127.0.0.1:{port}/v1",
                    "api_key": SecretStr(key),
                    "context_window": llm.context_window or plan.engine_kwargs.get("max_model_len"),
                }
            ),
            process=process,
            log=log,
        )
    finally:
        _end(process)


def command(plan: ServePlan, configuration: Path) -> list[str]:
    """What starts the server."""
    source = ["--model", plan.model_source, "--config", str(configuration)]
    return [sys.executable, "-m", MODULE, *source]


def _check(plan: ServePlan) -> None:
    if importlib.util.find_spec("vllm") is None:
        raise ConfigError(
            "a model that the job serves needs vLLM 0.29.0: install vmem[gpu], or on a machine"
            " without a GPU run `make setup-vllm`; or name a server in llm.base_url instead"
        )
    if plan.model_source.startswith((".", "/")) and not Path(plan.model_source).is_dir():
        raise ConfigError(
            f"serve.model_source: there is no folder {plan.model_source}; `make models-cpu` writes"
            " two small models into .models"
        )


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _await_answer(
    process: "subprocess.Popen[bytes]", plan: ServePlan, port: int, log: Path, start: int
) -> None:
    deadline = time.monotonic() + plan.start_timeout_s
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise ModelUnavailableError(
                f"the vLLM server of {plan.model_source} ended (status {process.returncode}) before"
                f" it answered: {_first_error(log, start)}; {log} has the rest"
            )
        with suppress(httpx.TransportError):
            # A proxy named in the environment must not stand between this machine and itself.
            url = f"http://127.0.0.1:{port}/health"
            if httpx.get(url, timeout=LOOK_S * 10, trust_env=False).is_success:
                return
        time.sleep(LOOK_S)
    raise ModelUnavailableError(
        f"the vLLM server of {plan.model_source} did not answer within {plan.start_timeout_s:g} s:"
        f" set serve.start_timeout_s, or see the end of {log}"
    )


def _first_error(log: Path, start: int) -> str:
    """The first error that a log tells of from a place on."""
    with log.open("rb") as file:
        file.seek(start)
        found = _ERROR.search(file.read().decode(errors="replace"))
    return found[0][:_SHOWN] if found else "it says no reason"


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.stdin:
        with suppress(BrokenPipeError):
            process.stdin.close()
    try:
        process.wait(PATIENCE_S + 10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
