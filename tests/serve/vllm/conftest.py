"""Two small models that come from packages alone, each served by a real vLLM on a real Ray."""

import asyncio
import os
import socket
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from serve.models import VllmSettings
from serve.vllm import VllmChat, llm_deployment
from vmem.config import ModelSettings
from vmem.ports import ChatReply, ChatRequest

WINDOW = 1_024
T = TypeVar("T")
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
}


@dataclass
class Models:
    """Folders in Hugging Face's layout."""

    smollm2: Path
    tiny_vl: Path


@dataclass
class Running:
    """A served model, and the one event loop it is asked from."""

    chat: VllmChat
    handle: Any
    settings: ModelSettings
    runner: asyncio.Runner
    metrics_port: int

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(coroutine)

    def ask(self, prompt: str, **values: Any) -> ChatReply:
        return self.run(self.chat.complete(ChatRequest(role="answer", prompt=prompt, **values)))

    def stream(self, prompt: str, **values: Any) -> list[str | ChatReply]:
        async def read() -> list[str | ChatReply]:
            request = ChatRequest(role="answer", prompt=prompt, **values)
            return [piece async for piece in self.chat.stream(request)]

        return self.run(read())

    def with_settings(self, **changes: Any) -> VllmChat:
        return VllmChat(self.handle, self.settings.model_copy(update=changes))


@pytest.fixture(scope="session")
def cpu_models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """The models of configs/serve/vllm-cpu.yaml."""
    from serve.models_cpu import write_smollm2, write_tiny_vl

    folder = tmp_path_factory.mktemp("models")
    smollm2 = write_smollm2(folder)
    return Models(smollm2=smollm2, tiny_vl=write_tiny_vl(folder, smollm2))


@pytest.fixture(scope="session")
def metrics_port() -> Iterator[int]:
    """A Ray of this run's own; the port of its metrics."""
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    import ray
    from ray import serve as ray_serve

    port, http_port = free_port(), free_port()
    ray.init(
        num_cpus=8,  # logical: the processes share what cores there are
        object_store_memory=200_000_000,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": ENVIRONMENT},
        _node_ip_address="127.0.0.1",
        _metrics_export_port=port,
        _system_config={"metrics_report_interval_ms": 500},  # else each look waits for 10 s
    )
    ray_serve.start(http_options={"host": "127.0.0.1", "port": http_port})
    yield port
    ray_serve.shutdown()
    ray.shutdown()


@pytest.fixture(scope="session")
def smollm2(metrics_port: int, cpu_models: Models) -> Iterator[Running]:
    """SmolLM2, which reads text only."""
    arguments = {"max_model_len": WINDOW, "max_num_seqs": 4}
    yield from served("smollm2", cpu_models.smollm2, metrics_port, arguments)


@pytest.fixture(scope="session")
def tiny_vl(metrics_port: int, cpu_models: Models) -> Iterator[Running]:
    """A model that takes pictures and says nothing of sense."""
    arguments = {"max_model_len": 2 * WINDOW, "limit_mm_per_prompt": {"image": 2, "video": 0}}
    yield from served("tiny-vl", cpu_models.tiny_vl, metrics_port, arguments, sees_images=True)


def served(
    model: str, folder: Path, port: int, arguments: dict[str, Any], **llm: Any
) -> Iterator[Running]:
    from ray import serve as ray_serve

    engine = {"dtype": "bfloat16", "enforce_eager": True, "max_num_seqs": 2, **arguments}
    settings = VllmSettings(model_id=model, model_source=str(folder), engine_kwargs=engine)
    handle = ray_serve.run(llm_deployment(settings), name=model, route_prefix=None)
    asked = ModelSettings(model=model, tokenizer=str(folder), timeout_s=60, **llm)
    with asyncio.Runner() as runner:
        yield Running(VllmChat(handle, asked), handle, asked, runner, port)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
