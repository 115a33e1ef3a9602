"""A plan without a model: systems search, and evidence stands in the places of judge scores."""

import csv
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.evaluation.evaluate import drive, lines_planned
from jobs.evaluation.manifest import close_manifest, open_manifest, read_manifest
from jobs.evaluation.plan import BenchmarkPlan, Plan, load_plan
from jobs.evaluation.records import Stage
from jobs.evaluation.run_folder import RunFolder
from jobs.significance import summarise_run
from jobs.tables import write_tables
from vmem.build import make_parts
from vmem.config import Settings, load_settings
from vmem.errors import ConfigError
from vmem.pipeline import Parts
from vmem.ports import Vectors
from vmem.systems.rows import read_rows

SHARED = Path(__file__).parents[3].parent / "shared" / "data"
GOLDEN: dict[str, Any] = yaml.safe_load(
    (Path(__file__).parents[2] / "golden" / "evidence.yaml").read_text(encoding="utf-8")
)
SCORES = {f"recall@{k}" for k in (1, 3, 5, 12, 30)} | {
    "recall+neighbours",
    "hit@12",
    "full@12",
    "mrr",
}
FAKE = {"encoders": {"text": {"kind": "fake"}, "image": {"kind": "fake"}}}
SILENT = {"name": "no-model", "llm": {"provider": "none"}}
PLAN: dict[str, Any] = {
    "name": "silent",
    "changes": FAKE,
    "benchmarks": [{"name": "sample"}],
    "systems": ["v-mem", "rounds", "no-folding"],
    "backbones": [SILENT],
    "draws": 100,
}


def on_the_sample() -> Plan:
    """The plan as it comes, on the sample and with encoders that need no weights."""
    plan = load_plan("evidence", {})
    sample = BenchmarkPlan(name="sample", changes=plan.benchmarks[0].changes)
    return plan.model_copy(update={"benchmarks": (sample,), "changes": FAKE, "draws": 100})


def run_through(plan: Plan, path: Path) -> dict[str, Any]:
    run = RunFolder(path)
    open_manifest(plan, run)
    model = drive(Stage.ANSWER, plan, plan.backbones[0], path)
    close_manifest(run, {plan.backbones[0].name: model})
    return summarise_run(run, read_manifest(run), plan.seed, plan.draws)


def entries(path: Path, number: int) -> list[dict[str, str]]:
    with (path / f"table-{number:02}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_plan_that_comes_along_runs_to_its_tables(tmp_path: Path) -> None:
    plan = on_the_sample()
    statistics = run_through(plan, tmp_path)
    run = RunFolder(tmp_path)
    assert lines_planned(Stage.JUDGE, plan, run) == 0
    assert [cell["system"] for cell in statistics["cells"]] == list(plan.systems)
    for cell in statistics["cells"]:
        assert (cell["valid"], cell["failed"], cell["unanswered"]) == (True, 0, 0)
        assert (cell["answered_by_model"], cell["judged"], cell["lexical"]) == (False, [], None)
        assert cell["evidence"]["scores"].keys() == SCORES
        for score in cell["evidence"]["scores"].values():
            low, high = score["overall"]["by_question"]
            assert 0 <= low <= score["overall"]["mean"] <= high <= 1
    for cell in plan.cells():
        records = run.answers(cell).read()
        assert all(record.ranked_rounds and record.context_words for record in records)
        assert not any(record.answer or record.context or record.cost for record in records)
    write_tables([run], tmp_path / "tables")
    for number in (3, 11, 12, 13):
        rows = entries(tmp_path / "tables", number)
        evidence = [row for row in rows if row["figure"].startswith("evidence in context: sample")]
        published = [row for row in rows if row["figure"] == "published"]
        assert len(evidence) == len(published)
        assert all(row["value"] or row["mark"] for row in evidence)
    marks = {
        row["column"]: row["mark"]
        for row in entries(tmp_path / "tables", 14)
        if row["figure"] == "ours"
    }
    assert marks["siglip"].startswith("not run: its weights come from a hub")


def test_every_row_of_the_tables_is_run_or_left_out_with_a_reason() -> None:
    plan = load_plan("evidence", {})
    placed = {
        name
        for name, row in read_rows().items()
        for place in row.stands_for
        if place.table in (3, 11, 12, 13, 14) or place.figure
    }
    assert placed <= {*plan.systems, *plan.left_out}
    assert all(plan.left_out.values())


class Counted:
    """A text encoder that notes its calls."""

    def __init__(self, parts: Parts, calls: list[tuple[str, ...]]) -> None:
        self._encoder = parts.text_encoder
        self._calls = calls
        self.name, self.width = self._encoder.name, self._encoder.width
        self.max_tokens = self._encoder.max_tokens

    def encode(self, texts: Sequence[str]) -> Vectors:
        self._calls.append(tuple(texts))
        return self._encoder.encode(texts)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return self._encoder.count_tokens(texts)


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    calls: list[tuple[str, ...]] = []

    def make(settings: Settings) -> Parts:
        parts = make_parts(settings)
        return replace(parts, text_encoder=Counted(parts, calls))

    monkeypatch.setattr("jobs.answer.make_parts", make)
    return calls


def test_what_systems_share_is_encoded_once(encoded: list[tuple[str, ...]], tmp_path: Path) -> None:
    plan = Plan(**{**PLAN, "backbones": [{**SILENT, "concurrency": 1}]})
    drive(Stage.ANSWER, plan, plan.backbones[0], tmp_path)
    assert len(set(encoded)) == len(encoded)
    dialogues = [call for call in encoded if len(call) > 1]
    assert len(dialogues) == 2  # with captions folded in, and without


def test_a_run_that_was_cut_off_ends_with_the_same_files(tmp_path: Path) -> None:
    plan = Plan(**PLAN)
    drive(Stage.ANSWER, plan, plan.backbones[0], tmp_path)
    whole = {path: path.read_bytes() for path in (tmp_path / "answers").iterdir()}
    for path in list(whole)[1:]:
        lines = path.read_bytes().splitlines(keepends=True)
        path.with_name(f"{path.stem}.partial.jsonl").write_bytes(b"".join(lines[:9]) + lines[9][:5])
        path.unlink()
    drive(Stage.ANSWER, plan, plan.backbones[0], tmp_path)
    assert {path: path.read_bytes() for path in (tmp_path / "answers").iterdir()} == whole


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"judges": [{"name": "j", "llm": {"provider": "fake"}}]}, "have nothing to judge"),
        (
            {
                "backbones": [{"name": "b", "llm": {"provider": "fake"}}],
                "judges": [{"name": "j", "llm": {"provider": "none"}}],
            },
            "judge 'j' is no model",
        ),
        ({"left_out": {"rounds": "it is dull"}}, "'rounds' is both run and left out"),
        ({"left_out": {"magic": "there is none"}}, "no system is named 'magic'"),
        ({"systems": ["v-mem", "no-memory"]}, "'no-memory' needs a language model"),
        (
            {"benchmarks": [{"name": "sample", "changes": {"retrieval": {"colour": 1}}}]},
            r"there is no setting retrieval\.colour",
        ),
        (
            {"benchmarks": [{"name": "sample", "changes": {"colours": {}}}]},
            "there is no section colours",
        ),
    ],
)
def test_a_plan_that_cannot_be_is_refused_with_one_sentence(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text(json.dumps({**PLAN, **changes}), encoding="utf-8")
    with pytest.raises(ConfigError, match=said) as raised:
        load_plan(file, {})
    assert str(raised.value).startswith(f"{file}: ") and "\n" not in str(raised.value)


def test_a_benchmark_changes_what_its_systems_run_on_but_not_what_a_row_is_about() -> None:
    plan = load_plan("evidence", {})
    rows, runtime = read_rows(), load_settings("embedded")
    locomo, gallery = plan.benchmarks[:2]
    for name, place, enabled in (
        ("v-mem", locomo, True),
        ("no-aggregation", locomo, False),
        ("v-mem", gallery, False),
        ("v-mem", None, False),
    ):
        settings = plan.settings_of(rows[name], runtime, place)
        assert settings.retrieval.aggregation.enabled is enabled, (name, place)
    capped = plan.model_copy(update={"changes": {"retrieval": {"aggregation": {"top_k": 7}}}})
    aggregation = capped.settings_of(rows["v-mem"], runtime, locomo).retrieval.aggregation
    assert (aggregation.enabled, aggregation.top_k) == (True, 7)


def test_a_difference_of_two_columns_has_the_interval_of_the_paired_comparison(
    run: Any, tmp_path: Path
) -> None:
    seeks: dict[str, Any] = {"category": "VS", "case": "text->image", "answer": "", "cost": {}}
    recalls = {"v-mem": (1.0, 1.0, 0.5, 1.0), "no-image-round-filter": (0.5, 1.0, 0.5, 0.0)}
    for system, values in recalls.items():
        scores = [{"recall@12": value, "recall+neighbours": 1.0} for value in values]
        records = [run.record(n, scores=each, **seeks) for n, each in enumerate(scores)]
        run.add(records, system=system)
    summarise_run(run.folder, run.manifest(), 7, 1000)
    write_tables([run.folder], tmp_path)
    (delta,) = [
        row
        for row in entries(tmp_path, 11)
        if row["toggle"] == "image-round filter"
        and row["figure"].startswith("evidence R@12")
        and row["column"] == "delta"
    ]
    assert float(delta["value"]) == (0.5 + 0 + 0 + 1.0) / 4
    assert 0 <= float(delta["low"]) < (0.5 + 1.0) / 4 < float(delta["high"]) <= 1.0


@pytest.mark.slow
def test_the_papers_setting_agrees_with_the_reference(tmp_path: Path) -> None:
    if not (SHARED / "locomo").is_dir():
        pytest.skip("shared/data is missing")
    names = ("locomo", "mem-gallery")
    plan = load_plan("evidence", {name: SHARED / name for name in names})
    plan = plan.model_copy(
        update={
            "benchmarks": tuple(one for one in plan.benchmarks if one.name in names),
            "systems": ("v-mem", "no-aggregation"),
            "draws": 100,
        }
    )
    statistics = run_through(plan, tmp_path)
    cells = {(cell["benchmark"], cell["system"]): cell for cell in statistics["cells"]}
    asked = {"locomo": 1540, "mem-gallery": 1711}
    assert {name: cells[name, "v-mem"]["questions"] for name in names} == asked
    for row in GOLDEN["rows"]:
        cell = cells[row["benchmark"], row["system"]]
        scores = cell["evidence"]["scores"]
        assert (cell["valid"], cell["evidence"]["with_evidence"]) == (True, row["questions"])
        groups = {"overall": row["overall"], **row.get("case", {})}
        for group, expected in groups.items():
            for name, value in expected.items():
                means = scores[name]["overall" if group == "overall" else "case"]
                mean = (means if group == "overall" else means[group])["mean"]
                assert mean == pytest.approx(value, abs=GOLDEN["tolerance"]), (row, group, name)
