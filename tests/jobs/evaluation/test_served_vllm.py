"""The shipped plan of a model that the job serves, on a real vLLM and a real Ray."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.evaluation.plan import load_plan
from jobs.evaluation.run_folder import RunFolder
from vmem.config import CONFIGS

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
