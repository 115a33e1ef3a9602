"""Corrected gold answers from plan to table: what is judged anew, what is said, what is refused."""

import csv
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs.evaluation.corrected_gold import read_corrections
from jobs.evaluation.evaluate import drive, lines_planned
from jobs.evaluation.manifest import open_manifest
from jobs.evaluation.plan import BenchmarkPlan, Plan, load_plan, read_planned
from jobs.evaluation.records import Stage
from jobs.evaluation.run_folder import RunFolder
from jobs.significance import summarise_run
from jobs.tables import write_tables
from vmem.datasets.sample import read_sample
from vmem.errors import DataError, InputError
from vmem.llm.fake import FakeChat
from vmem.ports import ChatRequest

QUESTIONS = 4
RIGHT = "Ember, as D3:6 says"


def corrections(folder: Path, **references: str) -> Path:
    """A file of corrections, by question number: `q0="..."` corrects the sample's first."""
    path = folder / "gold.jsonl"
    lines = [
        {"question_id": f"sample#{number[1:]}", "reference": reference, "why": "looked up"}
        for number, reference in references.items()
    ]
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return path


def plan_with(path: Path | None) -> Plan:
    benchmark = {"name": "sample", "questions": QUESTIONS, "corrections": path}
    return Plan(
        name="corrected",
        changes={"encoders": {"text": {"kind": "fake"}, "image": {"kind": "fake"}}},
        benchmarks=(BenchmarkPlan(**benchmark),),
        systems=("no-memory",),
        backbones=({"name": "b", "llm": {"provider": "fake"}},),
        judges=({"name": "j", "llm": {"provider": "fake"}, "repetitions": 2},),
        draws=100,
    )


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The prompts that the judge gets; it accepts what it finds `RIGHT` in."""
    prompts: list[str] = []

    def reply(request: ChatRequest) -> str:
        if request.role != "judge":
            return "some answer"
        prompts.append(request.prompt)
        return json.dumps({"score": float(RIGHT in request.prompt), "reasoning": "so"})

    monkeypatch.setattr("jobs.evaluation.models.make_chat", lambda _: FakeChat(reply))
    return prompts


@pytest.fixture
def run_to_tables() -> Callable[[Plan, Path], dict[str, Any]]:
    """All four stages; gives back the statistics."""

    def stages(plan: Plan, path: Path) -> dict[str, Any]:
        run = RunFolder(path)
        manifest = open_manifest(plan, run)
        drive(Stage.ANSWER, plan, plan.backbones[0], path)
        drive(Stage.JUDGE, plan, plan.judges[0], path)
        found = summarise_run(run, manifest, plan.seed, plan.draws)
        write_tables([run], path / "tables")
        return found

    return stages


def test_only_what_differs_is_judged_anew_and_nothing_twice(
    judged: list[str], run_to_tables: Any, tmp_path: Path
) -> None:
    # The last correction is of a question that this plan does not ask.
    path = corrections(tmp_path, q0=RIGHT, q2=RIGHT, q9="another")
    plan, out = plan_with(path), tmp_path / "run"
    run_to_tables(plan, out)
    (cell,) = plan.cells()
    again = RunFolder(out).corrected(f"{cell}.j.gallery")
    assert again.path.name == "sample.no-memory.b.j.gallery.corrected.jsonl"
    assert [(line.question_id, line.repetition, line.score) for line in again.read()] == [
        (question, repetition, 1.0)
        for question in ("sample#0", "sample#2")
        for repetition in range(2)
    ]
    assert len(judged) == (QUESTIONS + 2) * 2 == lines_planned(Stage.JUDGE, plan, RunFolder(out))
    assert sum(RIGHT in prompt for prompt in judged) == 2 * 2
    judged.clear()
    drive(Stage.JUDGE, plan, plan.judges[0], out)
    assert judged == []


def test_both_scores_stand_side_by_side(
    judged: list[str], run_to_tables: Any, tmp_path: Path
) -> None:
    path, out = corrections(tmp_path, q0=RIGHT, q9="another"), tmp_path / "run"
    statistics = run_to_tables(plan_with(path), out)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    described = {"count": 1, "in_file": 2, "sha256": digest}
    manifest = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["corrections"] == {"sample": {**described, "references": {"sample#0": RIGHT}}}
    assert statistics["run"]["corrections"] == {"sample": described}
    (cell,) = statistics["cells"]
    assert (cell["valid"], cell["corrected"]) == (True, 1)
    calls = {name: cost["calls"] for name, cost in cell["cost"]["judge"].items()}
    assert calls == {"j.gallery": QUESTIONS * 2, "j.gallery.corrected": 1 * 2}
    with (out / "tables" / "corrected-gold.csv").open(encoding="utf-8", newline="") as file:
        shown = {(row["figure"], row["column"]): row["value"] for row in csv.DictReader(file)}
    assert float(shown["j (gallery)", "original gold"]) == 0.0
    assert float(shown["j (gallery)", "corrected gold"]) == 1 / QUESTIONS
    assert float(shown["j (gallery)", "difference"]) == 1 / QUESTIONS
    assert shown["j (gallery)", "questions corrected"] == "1"
    assert {figure for figure, _ in shown} == {"j (gallery)", "f1", "bleu", "exact"}
    text = (out / "tables" / "corrected-gold.md").read_text(encoding="utf-8")
    said = f"1 of the questions asked are corrected, of 2 corrections in the file ({digest[:8]})"
    assert said in text


def test_corrected_judgements_that_are_not_there_leave_no_score(
    judged: list[str], run_to_tables: Any, tmp_path: Path
) -> None:
    plan, out = plan_with(corrections(tmp_path, q0=RIGHT)), tmp_path / "run"
    run_to_tables(plan, out)
    (cell,) = plan.cells()
    run = RunFolder(out)
    run.corrected(f"{cell}.j.gallery").path.unlink()
    manifest = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    (found,) = summarise_run(run, manifest, plan.seed, plan.draws)["cells"]
    assert {one["gold"]: one["invalid"] for one in found["judged"]} == {
        "original": {},
        "corrected": {"unfinished": 1, "unjudged": 1},
    }


def test_without_corrections_nothing_is_judged_twice(
    judged: list[str], run_to_tables: Any, tmp_path: Path
) -> None:
    statistics = run_to_tables(plan_with(None), tmp_path)
    assert not list(tmp_path.rglob("*.corrected*"))
    assert len(judged) == QUESTIONS * 2
    (cell,) = statistics["cells"]
    assert [one["gold"] for one in cell["judged"]] == ["original"]
    assert "corrected" not in cell["lexical"]


@pytest.mark.usefixtures("judged")
def test_other_corrections_are_another_run(tmp_path: Path) -> None:
    plan = plan_with(corrections(tmp_path, q0=RIGHT))
    open_manifest(plan, RunFolder(tmp_path / "run"))
    drive(Stage.ANSWER, plan, plan.backbones[0], tmp_path / "run")
    corrections(tmp_path, q0="something else")
    with pytest.raises(InputError, match=r"another corrections\.sample\.references\.sample#0"):
        open_manifest(plan, RunFolder(tmp_path / "run"))


@pytest.mark.parametrize(
    ("references", "said"),
    [
        ({"q99": "x"}, r"gold\.jsonl: 1 of 1 corrections .* sample does not have: sample#99"),
        ({"q10": "Yes"}, r"gold\.jsonl: sample#10 has the reference 'Yes' already"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_before_anything_runs(
    tmp_path: Path, references: dict[str, str], said: str
) -> None:
    plan = plan_with(corrections(tmp_path, **references))
    with pytest.raises(DataError, match=said):
        open_manifest(plan, RunFolder(tmp_path / "run"))


def test_a_part_of_a_benchmark_takes_the_corrections_of_its_questions(tmp_path: Path) -> None:
    whole = read_sample()
    path = corrections(tmp_path, **{f"q{n}": "other" for n in range(len(whole.questions))})
    plan = BenchmarkPlan(name="sample", questions=3, corrections=path)
    found = read_corrections(plan)
    assert found is not None
    assert list(found.references) == [question.id for question in read_planned(plan).questions]
    assert (len(found.references), found.in_file) == (3, len(whole.questions))


def test_a_plan_file_names_corrections(tmp_path: Path) -> None:
    path = corrections(tmp_path, q0=RIGHT)
    file = tmp_path / "plan.yaml"
    file.write_text(
        f"benchmarks: [{{name: sample, corrections: {path}}}]\nsystems: [v-mem]\n"
        "backbones: [{name: b, llm: {provider: fake}}]\n",
        encoding="utf-8",
    )
    assert load_plan(file, {}).benchmarks[0].corrections == path
