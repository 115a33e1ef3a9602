"""Runs made by hand, compared: differences, what is said first, what is refused, exit statuses."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from jobs.compare_runs import compare_runs, open_side, regressions
from jobs.evaluation.run_folder import write_json
from vmem.cli import app
from vmem.errors import InputError
from vmem.types import Benchmark, Dialogue, Query, Question, Round, Turn

NUMBERS = range(40)
JUDGE = "strict.gallery"
SCORE = "judge:strict:gallery"


@pytest.fixture
def made(make_run: Callable[[str], Any]) -> Callable[..., Path]:
    """Makes a run: what the judge says of each question's answer; a text is an error instead."""

    def make(
        name: str,
        scores: Mapping[int, float | str],
        *,
        systems: tuple[str, ...] = ("v-mem",),
        backbone: str = "small",
        judge: str = JUDGE,
        **changed: Any,
    ) -> Path:
        run = make_run(name)
        for system in systems:
            records = [
                run.record(
                    n,
                    category="FR" if n % 4 < 2 else "TR",
                    **({"error": score, "answer": ""} if isinstance(score, str) else {}),
                )
                for n, score in scores.items()
            ]
            lines = [
                run.judgement(record, score)
                for record, score in zip(records, scores.values(), strict=True)
                if not isinstance(score, str)
            ]
            run.add(records, {judge: lines}, system=system, backbone=backbone, expected=len(scores))
        manifest = run.manifest()
        manifest["plan"] |= {"draws": 500, "backbones": [{"name": backbone}]}
        manifest |= {"judges": {}, **changed}
        path: Path = run.folder.path
        write_json(path / "manifest.json", manifest)
        return path

    return make


def alternating(good: float) -> dict[int, float]:
    """In each category and dialogue some answers are right and some not."""
    return {n: good if n % 5 else 0.0 for n in NUMBERS}


def compared(first: Path, second: Path, **options: Any) -> dict[str, Any]:
    return compare_runs(open_side(first), open_side(second), **options)


def of_judge(found: Mapping[str, Any]) -> dict[str, Any]:
    one: dict[str, Any] = next(each for each in found["comparisons"] if each["score"] == SCORE)
    return one


def test_differences_are_the_second_less_the_first(made: Callable[..., Path]) -> None:
    first, second = made("first", alternating(1.0)), made("second", alternating(0.5))
    found = compared(first, second)
    one = of_judge(found)
    right = sum(bool(n % 5) for n in NUMBERS)
    assert one["overall"]["difference"] == pytest.approx(-0.5 * right / len(NUMBERS))
    assert one["overall"]["questions"] == len(NUMBERS) and one["overall"]["dialogues"] == 2
    assert set(one["category"]) == {"FR", "TR"}
    assert all(part["by_question"]["p_holm"] is not None for part in one["category"].values())
    assert one["overall"]["by_question"]["high"] < 0 < 1 / 501 <= one["overall"]["by_question"]["p"]
    assert one["overall"]["by_dialogue"]["p"] > 0.05  # two dialogues can never be sure
    recall = next(each for each in found["comparisons"] if each["score"] == "recall@12")
    assert recall["overall"]["difference"] == 0.0
    worse = regressions(found["comparisons"])
    assert {(each["score"], each["place"]) for each in worse} == {
        (SCORE, "overall"),
        (SCORE, "FR"),
        (SCORE, "TR"),
    }
    assert regressions(found["comparisons"], by="dialogue") == []
    assert regressions(found["comparisons"], tolerance=0.6) == []
    assert regressions(compared(second, first)["comparisons"]) == []


def test_what_only_one_side_has_is_counted(made: Callable[..., Path]) -> None:
    first = made("first", dict.fromkeys(NUMBERS, 1.0))
    second = made("second", {n: "ModelError: no" if n < 3 else 1.0 for n in NUMBERS if n < 38})
    found = compared(first, second)
    one = of_judge(found)
    assert one["asked_in_a_only"] == 2 and one["asked_in_b_only"] == 0
    assert one["scored_in_a_only"] == 2 + 3 and one["scored_in_b_only"] == 0
    assert one["overall"]["questions"] == len(NUMBERS) - 5
    assert found["invalid"]["a"] == {}
    assert found["invalid"]["b"] == {"mem-gallery.v-mem.small": {"failed": 3}}
    said = CliRunner().invoke(app, ["eval", "compare", str(first), str(second)])
    assert said.exit_code == 0
    assert said.stdout.splitlines()[0] == "INVALID: B's mem-gallery.v-mem.small: 3 failed"
    assert f"{SCORE}: 5 questions have a score in A alone (2 were asked there alone)" in said.stdout


def test_two_systems_of_one_run(made: Callable[..., Path]) -> None:
    run = made("run", alternating(1.0), systems=("v-mem", "bm25"))
    sides = open_side(run, system="v-mem"), open_side(run, system="bm25")
    found = compare_runs(*sides)
    assert [one["b"]["system"] for one in found["comparisons"]] == ["bm25"] * 4
    assert found["unpaired"] == {"a": [], "b": []}
    with pytest.raises(InputError, match="has no system 'omni'; it has"):
        compare_runs(open_side(run, system="omni"), sides[1])


def test_backbones_and_judges_of_other_names_are_paired_where_there_is_one_each(
    made: Callable[..., Path],
) -> None:
    first = made("first", alternating(1.0))
    models = {"models": {"large": "x", "mild": "judge-model-1"}}
    second = made("second", alternating(0.5), backbone="large", judge="mild.gallery", **models)
    found = compared(first, second)
    assert found["differs"] == []
    assert {one["b"]["backbone"] for one in found["comparisons"]} == {"large"}
    assert any(one["score"] == "judge:mild:gallery" for one in found["comparisons"])


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"data": {"mem-gallery": "ef" * 32}}, "mem-gallery is of other data"),
        (
            {"models": {"small": "small-model-1", "strict": "another"}},
            "judge strict is judge-model-1 in one, another in the other",
        ),
        (
            {"prompts": {"judges": {"mem-gallery.gallery": {"source": "x", "sha256": "00"}}}},
            "the judge's prompt mem-gallery.gallery is another",
        ),
    ],
)
def test_what_is_not_the_same_is_refused_or_said(
    made: Callable[..., Path], changed: dict[str, Any], said: str
) -> None:
    first, second = made("first", alternating(1.0)), made("second", alternating(1.0), **changed)
    with pytest.raises(InputError, match=said):
        compared(first, second)
    assert compared(first, second, anyway=True)["differs"] == [said]
    command = ["eval", "compare", str(first), str(second), "--anyway"]
    assert f"NOT THE SAME: {said}" in CliRunner().invoke(app, command).stdout


def test_exit_statuses(made: Callable[..., Path]) -> None:
    good, bad = made("good", alternating(1.0)), made("bad", alternating(0.5))
    failed = made("failed", {**alternating(1.0), 3: "ModelTimeoutError: no reply"})
    unjudged = made("unjudged", alternating(1.0))
    for file in (unjudged / "judgements").iterdir():
        file.unlink()

    def status(first: Path, second: Path, *options: str) -> tuple[int, str]:
        command = ["eval", "compare", str(first), str(second), *options]
        done = CliRunner().invoke(app, command)
        return done.exit_code, " ".join(done.stderr.split())

    assert status(good, bad) == (0, "")
    code, said = status(good, bad, "--fail-on-regression")
    assert code == 1 and f"B is worse, by question: {SCORE} overall -0.400" in said
    assert status(good, bad, "--fail-on-regression", "--tolerance", "0.5")[0] == 0
    assert status(good, bad, "--fail-on-regression", "--by", "dialogue")[0] == 0
    assert status(bad, good, "--fail-on-regression")[0] == 0
    assert status(good, good, "--fail-on-regression")[0] == 0
    code, said = status(good, failed, "--fail-on-regression")
    assert code == 1 and "scores of B are invalid: mem-gallery.v-mem.small" in said
    assert status(failed, good, "--fail-on-regression")[0] == 0
    code, said = status(good, unjudged, "--fail-on-regression")
    assert code == 1 and f"B lacks mem-gallery.v-mem.small: {SCORE}" in said


def test_json(made: Callable[..., Path]) -> None:
    first, second = made("first", alternating(1.0)), made("second", alternating(0.5))
    done = CliRunner().invoke(app, ["eval", "compare", str(first), str(second), "--json"])
    found = json.loads(done.stdout)
    assert of_judge(found)["overall"]["questions"] == len(NUMBERS)
    assert len(found["regressions"]) == 3


def test_what_is_no_run(made: Callable[..., Path], tmp_path: Path) -> None:
    run = made("run", alternating(1.0))
    with pytest.raises(InputError, match=r"manifest\.json cannot be read"):
        open_side(tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        open_side(tmp_path / "none")
    done = CliRunner().invoke(app, ["eval", "compare", str(run), str(tmp_path / "outcome.jsonl")])
    assert isinstance(done.exception, InputError)
    assert "give --benchmark and --data for outcome files" in str(done.exception)


def test_outcome_files_have_a_status_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = [
        Round(id=f"r{n}", position=n, session="D", time="2026-03-02", turns=(turn,))
        for n, turn in enumerate(Turn(source_id=f"r{n}", speaker="user") for n in range(2))
    ]
    questions = [
        Question(
            id=f"q{n}",
            dialogue_id=f"d{n % 2}",
            query=Query(text="?"),
            reference="",
            category="FR",
            evidence=frozenset({"r1"}),
        )
        for n in range(20)
    ]
    dialogues = tuple(Dialogue(id=f"d{n}", rounds=tuple(rounds)) for n in range(2))
    read = Benchmark(name="t", dialogues=dialogues, questions=tuple(questions), issues=())
    monkeypatch.setattr("vmem.cli_compare.read_benchmark", lambda *_: read)

    def outcomes(name: str, ranked: list[str]) -> str:
        shown = [[each] for each in ranked]
        record = {"case": "text->text", "context_words": 1, "error": None}
        record |= {"ranked_rounds": shown, "context_rounds": shown}
        lines = [json.dumps({"question_id": question.id, **record}) for question in questions]
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
        return str(tmp_path / name)

    first, second = outcomes("first", ["r1", "r0"]), outcomes("second", ["r0", "r1"])
    command = ["eval", "compare", "--benchmark", "t", "--data", str(tmp_path), "--json"]
    done = CliRunner().invoke(app, [*command, first, second, "--fail-on-regression"])
    assert done.exit_code == 1 and "B is worse, by question" in " ".join(done.stderr.split())
    worse = {one["score"]: one["difference"] for one in json.loads(done.stdout)["regressions"]}
    assert worse["recall@1"] == -1.0 and worse["mrr"] == -1 / 2 and "recall@12" not in worse
    assert CliRunner().invoke(app, [*command, second, first, "--fail-on-regression"]).exit_code == 0
