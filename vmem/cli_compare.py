"""`vmem eval compare`: two evaluations, or two outcomes of `eval retrieval`, by question."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from jobs.retrieval import read_run
from vmem.cli_data import AsJson
from vmem.datasets import EXCLUDED, read_benchmark
from vmem.errors import InputError
from vmem.metrics.summary import ScoredQuestion, Summary, summarise
from vmem.show import console, errors, print_json, print_line, print_overall

By = Literal["question", "dialogue"]
_LACKS = {
    "not_run": "did not run",
    "unscored": "has no scores where the other has some",
    "unpaired": "alone plans",
}


def compare(
    base: Annotated[
        Path, typer.Argument(metavar="A", help="A: a folder of `eval run`, or an outcome file.")
    ],
    other: Annotated[Path, typer.Argument(metavar="B", help="B: another one, or the same folder.")],
    benchmark: Annotated[
        str | None, typer.Option("--benchmark", help="Only this one; outcome files need it.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="The benchmark's folder, for outcome files.")
    ] = None,
    system_a: Annotated[str | None, typer.Option(help="A's system, such as v-mem.")] = None,
    system_b: Annotated[str | None, typer.Option(help="B's system, such as bm25.")] = None,
    backbone_a: Annotated[str | None, typer.Option(help="A's backbone.")] = None,
    backbone_b: Annotated[str | None, typer.Option(help="B's backbone.")] = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Also where data, judges or their prompts differ.")
    ] = False,
    fail_on_regression: Annotated[
        bool,
        typer.Option(
            "--fail-on-regression",
            help="Exit status 1 where B is worse for sure: overall or in a category the whole 95%"
            " interval of a difference lies below minus the tolerance, and its p (by Holm in"
            " categories) below .05; also where failed, empty or skipped questions make a score"
            " of B invalid, and where A was run or judged and B was not.",
        ),
    ] = False,
    tolerance: Annotated[
        float, typer.Option("--tolerance", min=0, help="How much worse B may be, such as 0.01.")
    ] = 0.0,
    by: Annotated[
        By, typer.Option("--by", help="Which interval and p say what a regression is.")
    ] = "question",
    as_json: AsJson = False,
) -> None:
    """Paired differences, B less A, with 95% intervals over questions and over dialogues."""
    if base.is_dir() and other.is_dir():
        # Ray and scipy take seconds to import: only who compares runs waits for them.
        from jobs.compare_runs import compare_runs, open_side, regressions

        sides = open_side(base, system_a, backbone_a), open_side(other, system_b, backbone_b)
        found = compare_runs(*sides, benchmark=benchmark, anyway=anyway)
        found["regressions"] = regressions(found["comparisons"], by=by, tolerance=tolerance)
        failed = any((found["regressions"], found["invalid"]["b"], _lacking(found)))
    else:
        summary = _outcomes(base, other, benchmark, data)
        found = {**summary.as_dict()["overall"], "regressions": _worse(summary, by, tolerance)}
        failed = bool(found["regressions"])
    if as_json:
        print_json(found)
    elif "comparisons" in found:
        _print(found)
    else:
        print_overall(summary, f"{other} less {base}")
    if fail_on_regression and failed:
        errors.print(_verdict(found, by, tolerance), soft_wrap=True)
        raise typer.Exit(1)


def _outcomes(base: Path, other: Path, benchmark: str | None, data: Path | None) -> Summary:
    if not benchmark or not data:
        raise InputError(
            f"{base} and {other} are not both folders of `vmem eval run`: give --benchmark and"
            " --data for outcome files of `vmem eval retrieval`"
        )
    read = read_benchmark(benchmark, data)
    before, after = read_run(base, read), read_run(other, read)
    if before.keys() != after.keys():
        raise InputError(f"{base} and {other} are not runs of the same questions")
    differences = [
        ScoredQuestion(
            dialogue_id=question.dialogue_id,
            category=question.category,
            case=None,
            scores={name: after[question.id][name] - value for name, value in scores.items()},
            error=None,
        )
        for question in read.questions
        if (scores := before.get(question.id))
    ]
    return summarise(differences, EXCLUDED)


def _worse(summary: Summary, by: By, tolerance: float) -> list[dict[str, Any]]:
    return [
        {"score": name, "place": "overall", "difference": questions.mean}
        for name, (questions, dialogues) in summary.overall.scores.items()
        if (questions if by == "question" else dialogues).high < -tolerance
    ]


def _print(found: Mapping[str, Any]) -> None:
    """First what makes scores invalid or incomparable, then the differences."""
    for side, cells in found["invalid"].items():
        for cell, faults in cells.items():
            said = ", ".join(f"{count:,} {name}" for name, count in faults.items())
            _warn(f"INVALID: {side.upper()}'s {cell}: {said}")
    for difference in found["differs"]:
        _warn(f"NOT THE SAME: {difference}")
    for what, said in _LACKS.items():
        for side, names in found[what].items():
            if names:
                print_line(f"{side.upper()} {said}: {', '.join(names)}")
    for (first, second), scores in _by_pair(found["comparisons"]).items():
        _print_pair(f"{second} (B) less {first} (A)", scores)
    if not found["comparisons"]:
        print_line("There is no score that both have.")


def _warn(text: str) -> None:
    console.print(Text(text, style="bold red"), soft_wrap=True)


def _by_pair(
    comparisons: Sequence[Mapping[str, Any]],
) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
    pairs: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for one in comparisons:
        first, second = (".".join(one[side].values()) for side in ("a", "b"))
        pairs.setdefault((first, second), []).append(one)
    return pairs


def _print_pair(title: str, scores: Sequence[Mapping[str, Any]]) -> None:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for column in (
        "score", "", "questions", "B less A", "95% over questions", "p", "95% over dialogues", "p",
    ):  # fmt: skip
        table.add_column(column)
    for one in scores:
        places = {"overall": one["overall"], **one["category"]}
        for number, (place, compared) in enumerate(places.items()):
            if compared:
                tests = [
                    cell
                    for by in ("by_question", "by_dialogue")
                    for cell in _test(compared[by], corrected=place != "overall")
                ]
                table.add_row(
                    one["score"] if number == 0 else "",
                    place,
                    f"{compared['questions']:,}",
                    f"{compared['difference']:+.3f}",
                    *tests,
                )
    console.print(table)
    print_line("p by sign flips, in categories corrected by Holm.")
    for one in scores:
        for side in ("a", "b"):
            alone = one[f"scored_in_{side}_only"]
            if alone:
                asked = one[f"asked_in_{side}_only"]
                print_line(
                    f"{one['score']}: {alone:,} questions have a score in {side.upper()} alone"
                    f" ({asked:,} were asked there alone) and are left out."
                )


def _test(test: Mapping[str, Any] | None, *, corrected: bool) -> tuple[Text, Text]:
    if test is None:
        return Text("one dialogue"), Text("–")
    p = test["p_holm"] if corrected else test["p"]
    return Text(f"[{test['low']:+.3f}, {test['high']:+.3f}]"), Text(f"{p:.4f}")


def _lacking(found: Mapping[str, Any]) -> list[str]:
    """Cells and judges' scores that B lacks; a system that ranks nothing has no recall to lack."""
    judged = [name for name in found.get("unscored", {}).get("b", []) if ": judge:" in name]
    return [*found.get("not_run", {}).get("b", []), *judged]


def _verdict(found: Mapping[str, Any], by: By, tolerance: float) -> Text:
    worse = [
        f"{one['score']} {one['place']} {one['difference']:+.3f}" for one in found["regressions"]
    ]
    said = []
    if worse:
        beyond = f" by more than {tolerance:g}" if tolerance else ""
        said.append(f"B is worse{beyond}, by {by}: {', '.join(worse)}")
    if invalid := found.get("invalid", {}).get("b"):
        said.append(f"scores of B are invalid: {', '.join(invalid)}")
    if lacking := _lacking(found):
        said.append(f"B lacks {', '.join(lacking)}")
    return Text(f"regression: {'; '.join(said)}", style="bold red")
