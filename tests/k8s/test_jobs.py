"""What the jobs run: commands that exist, with options that they take, and plans that are plans."""

import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from jobs.evaluation.plan import Plan, load_plan
from serve.settings import load_serve_settings
from vmem.cli import app
from vmem.config import load_settings

OVERLAYS = ("dev", "gpu", "gpu-7b")


def _entrypoints(k8s: Path, overlay: str) -> dict[str, list[str]]:
    text = (k8s / "overlays" / overlay / "jobs" / "jobs.yaml").read_text(encoding="utf-8")
    return {
        job["metadata"]["name"]: shlex.split(job["spec"]["entrypoint"])
        for job in yaml.safe_load_all(text)
    }


def _parsed(words: list[str]) -> dict[str, Any]:
    """The options that a command reads from its words; it is not run."""
    command: Any = typer.main.get_command(app)
    while commands := getattr(command, "commands", None):
        command, words = commands[words[0]], words[1:]
    params: dict[str, Any] = command.make_context("job", list(words)).params
    return params


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_entrypoint_is_a_command_of_ours(k8s: Path, overlay: str) -> None:
    found = _entrypoints(k8s, overlay)
    for name, (program, *words) in found.items():
        assert program == "vmem"
        options = _parsed(words)
        if not name.startswith("tables"):
            assert options["address"] == "auto"  # the job's own cluster
    runs = {
        name: words[words.index("--out") + 1] for name, words in found.items() if "eval" in words
    }
    shown = runs.pop("tables")
    assert shown == "/files/tables"
    tables = found["tables"][found["tables"].index("tables") + 1 : found["tables"].index("--out")]
    assert sorted(tables) == sorted(runs.values())


@pytest.mark.parametrize("overlay", ["gpu", "gpu-7b"])
def test_plans_and_settings_are_read_whole(k8s: Path, overlay: str) -> None:
    folder = k8s / "overlays" / overlay / "jobs"
    made = yaml.safe_load((folder / "kustomization.yaml").read_text())["configMapGenerator"]
    files = {Path(name).name: folder / name for each in made for name in each["files"]}
    named = {
        word.removeprefix("/plans/")
        for words in _entrypoints(k8s, overlay).values()
        for word in words
        if word.startswith("/plans/")
    }
    assert named == set(files)
    for name, path in files.items():
        if name == "build.yaml":
            assert load_settings(path).build.image_actors > 0
        else:
            assert isinstance(load_plan(path, {}), Plan)


@pytest.mark.parametrize("overlay", ["gpu", "gpu-7b"])
def test_jobs_and_serving_use_the_same_encoders_and_weights(k8s: Path, overlay: str) -> None:
    folder = k8s / "overlays" / overlay
    config = yaml.safe_load((folder / "serve.yaml").read_text())
    served = load_serve_settings(config["applications"][0]["args"])
    memory = served.memory_settings().encoders
    built = load_settings(folder / "jobs" / "plans" / "build.yaml").encoders
    for name in ("text", "image"):
        ours, theirs = getattr(memory, name), getattr(built, name)
        assert (ours.model, ours.pretrained) == (theirs.model, theirs.pretrained)
    listed = dict(line.split() for line in (folder / "models.txt").read_text().splitlines())
    assert served.backbone.vllm
    wanted = {served.backbone.vllm.model_source, memory.text.model, f"timm/{memory.image.model}"}
    assert set(listed) == wanted
    for path in (folder / "jobs" / "plans").glob("qwen-*.yaml"):
        (backbone,) = load_plan(path, {}).backbones
        assert backbone.serve
        assert backbone.serve.model_source in listed
