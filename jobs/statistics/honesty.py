"""How far a run's judges can be trusted: planted wrong answers, repetitions, two judges."""

from collections.abc import Sequence
from dataclasses import asdict
from itertools import combinations
from typing import Any, cast, get_args

from jobs.evaluation.records import Judgement
from jobs.evaluation.run_folder import RunFolder
from jobs.statistics.cell_scores import CellScores
from jobs.statistics.means import Resampling
from vmem.metrics.agreement import Weights, cohen_kappa, judgement_spread
from vmem.metrics.judge import Verdict
from vmem.metrics.planted import PlantKind, false_accept_rate
from vmem.prompts.judge import JudgeKind

MARK = "~"
"""The id of a planted answer is `QUESTION~vague` or `QUESTION~specific`."""
WEIGHTS: dict[JudgeKind, Weights] = {"gallery": "linear", "locomo": "linear", "binary": "none"}
"""How judges' disagreements count: by the distance of their levels, where there are several."""


def planted_rates(
    run: RunFolder, benchmarks: Sequence[str], judges: Sequence[str]
) -> list[dict[str, Any]]:
    """Each judge's false accepts by kind of planted answer.

    Raises:
        DataError: A line cannot be read.
    """
    found = []
    for benchmark in benchmarks:
        for judge in judges:
            for kind in get_args(JudgeKind):
                file = run.planted(f"{benchmark}.{judge}.{kind}")
                if lines := file.read():
                    names = {"benchmark": benchmark, "judge": judge, "kind": kind}
                    found.append({**names, "finished": file.finished, **_rates(lines)})
    return found


def spreads(cells: Sequence[CellScores]) -> list[dict[str, Any]]:
    """The spread of each judge that judged a cell's answers more than once."""
    found = []
    for cell in cells:
        for judged in cell.judged:
            repetitions = 1 + max(line.repetition for line in judged.lines)
            if judged.gold != "original" or repetitions < 2:
                continue
            by_question: dict[str, dict[int, float]] = {}
            for line in judged.lines:
                if line.score is not None:
                    by_question.setdefault(line.question_id, {})[line.repetition] = line.score
            whole = [scores for scores in by_question.values() if len(scores) == repetitions]
            entry = {**asdict(cell.cell), "judge": judged.judge, "kind": judged.kind}
            entry["left_out"] = len({line.question_id for line in judged.lines}) - len(whole)
            ordered = [[scores[n] for n in range(repetitions)] for scores in whole]
            entry["spread"] = asdict(judgement_spread(ordered)) if ordered else None
            found.append(entry)
    return found


def agreements(cells: Sequence[CellScores], draw: Resampling) -> list[dict[str, Any]]:
    """Cohen's κ of each two judges of one kind, over all answers that both judged."""
    levels: dict[tuple[str, str], dict[str, dict[tuple[str, str], float]]] = {}
    for cell in cells:
        for judged in cell.judged:
            if judged.gold == "original":
                by_judge = levels.setdefault((cell.cell.benchmark, judged.kind), {})
                by_answer = by_judge.setdefault(judged.judge, {})
                by_answer.update({(str(cell.cell), id_): v for id_, v in judged.levels().items()})
    found = []
    for (benchmark, kind), by_judge in levels.items():
        for first, second in combinations(by_judge, 2):
            both = sorted(by_judge[first].keys() & by_judge[second].keys())
            if not both:
                continue
            weights = WEIGHTS[cast("JudgeKind", kind)]
            agreement = cohen_kappa(
                [by_judge[first][answer] for answer in both],
                [by_judge[second][answer] for answer in both],
                draw.rng(f"kappa|{benchmark}|{kind}|{first}|{second}"),
                weights,
                draw.draws,
            )
            names = {"benchmark": benchmark, "kind": kind, "first": first, "second": second}
            found.append({**names, "weights": weights, **asdict(agreement)})
    return found


def _rates(lines: Sequence[Judgement]) -> dict[str, Any]:
    rates: dict[str, Any] = {"unjudged": sum(line.score is None for line in lines)}
    for kind in get_args(PlantKind):
        judged = [
            line
            for line in lines
            if line.score is not None and line.question_id.endswith(f"{MARK}{kind}")
        ]
        # Only the scores of verdicts are read, and a judgement has the same.
        rates[kind] = asdict(false_accept_rate(cast("list[Verdict]", judged))) if judged else None
    return rates
