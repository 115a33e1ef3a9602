"""The Dockerfile: its steps, what it copies, and its agreement with locks and probes.

It cannot be built here. hadolint reads it, and its steps for `cpu` run in a fresh environment: the
installs as they stand, a copy of what .dockerignore lets through for COPY; not apt-get, not
useradd.
"""

import fnmatch
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SKIPPED = ("apt-get", "useradd")
"""Steps that change the system itself."""


def _instructions() -> list[tuple[str, str]]:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    joined = re.sub(r"\s*\\\n\s*", " ", lines)
    found = [line.partition(" ") for line in joined.splitlines() if line.strip()]
    return [(word, rest.strip()) for word, _, rest in found]


def _stages() -> dict[str, list[tuple[str, str]]]:
    """Instructions of each stage, those of the stages below it first."""
    stages: dict[str, list[tuple[str, str]]] = {}
    current: list[tuple[str, str]] = []
    for word, rest in _instructions():
        if word == "FROM":
            below, _, name = rest.partition(" AS ")
            current = [*stages.get(below, [])]
            stages[name] = current
        else:
            current.append((word, rest))
    return stages


def _sent() -> Iterator[Path]:
    """Files that .dockerignore lets through."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"  # nothing but what is named
    kept = [rule[1:] for rule in rules if rule.startswith("!")]
    dropped = [rule.removeprefix("**/") for rule in rules[1:] if not rule.startswith("!")]
    for path in ROOT.iterdir():
        if any(fnmatch.fnmatch(path.name, rule) for rule in kept):
            inside = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
            for each in inside:
                parts = each.relative_to(ROOT).parts
                if not any(fnmatch.fnmatch(part, rule) for part in parts for rule in dropped):
                    yield each


@pytest.mark.k8s
def test_hadolint_has_nothing_to_say() -> None:
    tool = shutil.which("hadolint")
    if tool is None:
        pytest.skip("there is no hadolint: make test-k8s brings one")
    done = subprocess.run([tool, ROOT / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_the_image_runs_as_nobody_and_says_whether_it_is_well(target: str) -> None:
    stage = _stages()[target]
    words = [word for word, _ in stage]
    assert dict(stage)["USER"] == "1000:1000"  # a number, or Kubernetes cannot tell it is not root
    assert words.index("USER") > max(i for i, word in enumerate(words) if word == "RUN")
    assert "/livez" in dict(stage)["HEALTHCHECK"]
    installs = " ".join(rest for word, rest in stage if word == "RUN")
    assert "--yes wget" in installs  # KubeRay's probe of a serving pod
    assert "--uid 1000" in installs


@pytest.mark.parametrize(
    ("target", "locks"),
    [
        ("cpu", {"requirements.lock"}),
        ("gpu", {"requirements.lock", "requirements-gpu.lock"}),
    ],
)
def test_packages_come_from_locks_alone(target: str, locks: set[str]) -> None:
    steps = [rest for word, rest in _stages()[target] if word == "RUN" and "pip install" in rest]
    read = set()
    for step in steps:
        if "torch.txt" in step or " -e ." in step:
            continue  # pinned by pyproject.toml; our own code
        assert "--no-deps" in step
        assert "--require-hashes" in step
        read |= set(re.findall(r"-r (\S+)", step))
    assert read == locks
    for name in locks:
        assert (ROOT / name).is_file()


def test_the_gpu_lock_goes_with_the_others() -> None:
    """vLLM as pyproject.toml pins it, and nothing that requirements.lock pins otherwise."""
    pin = re.compile(r"^([a-z0-9._-]+)==(\S+)", re.MULTILINE)
    gpu = dict(pin.findall((ROOT / "requirements-gpu.lock").read_text(encoding="utf-8")))
    base = dict(pin.findall((ROOT / "requirements.lock").read_text(encoding="utf-8")))
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'gpu = ["vllm=={gpu["vllm"]}"]' in project
    assert not gpu.keys() & base.keys()
    assert not {"torch", "torchvision"} & gpu.keys()  # pinned by pyproject.toml


def test_only_code_and_settings_are_sent(tmp_path: Path) -> None:
    names = {path.relative_to(ROOT).parts[0] for path in _sent()}
    copied = {
        rest.split()[0]
        for stage in _stages().values()
        for word, rest in stage
        if word == "COPY" and not rest.startswith(("--", "requirements"))
    }
    assert copied <= names
    assert not names & {".git", ".venv", "tests", "k8s", ".vmem", "runs"}
    assert not [path for path in _sent() if path.suffix in {".pyc", ".db", ".key"}]


@pytest.mark.slow
@pytest.mark.timeout(3_000)
def test_the_steps_of_cpu_run_in_a_fresh_environment(tmp_path: Path) -> None:
    app = tmp_path / "app"
    for path in _sent():
        target = app / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    env = {
        **{key: value for key, value in os.environ.items() if not key.startswith("VMEM_")},
        "PATH": f"{tmp_path / 'env' / 'bin'}:{os.environ['PATH']}",
        "TORCH_INDEX": os.environ.get("TORCH_INDEX", ""),
        "HOME": str(tmp_path),
    }
    run = 0
    for word, rest in _stages()["cpu"]:
        if word != "RUN":
            continue
        steps = [step for step in rest.split(" && ") if not step.startswith(SKIPPED)]
        kept = [step for step in steps if not step.startswith("rm -rf")]
        if kept:
            command = ["bash", "-euo", "pipefail", "-c", " && ".join(kept)]
            done = subprocess.run(
                command, cwd=app, env=env, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr[-2_000:]
            run += 1
    assert run == 3  # the lock, torch, our own code
    check = ["vmem", "cluster", "check", str(ROOT / "k8s/overlays/dev/serve.yaml")]
    done = subprocess.run(check, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
