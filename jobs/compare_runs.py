"""Two evaluations, or two systems of one, compared question by question (Appendix I)."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from jobs.evaluation.manifest import read_manifest
from jobs.evaluation.records import Cell
from jobs.evaluation.run_folder import RunFolder
from jobs.significance import PlannedRun, planned_run
from jobs.statistics.cell_scores import CellScores, read_cell
from jobs.statistics.comparisons import comparable_scores, compared_scores, faults_of
from jobs.statistics.means import Resampling
from vmem.errors import InputError
from vmem.metrics.significance import RESAMPLES
from vmem.metrics.summary import SEED

ALPHA = 0.05
Judges = Mapping[str, str]
"""By the first run's name of a judge, the other's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two.

    Attributes:
        run: Its folder.
        manifest: What it was made of and with.
        plan: Its systems, backbones and judges.
        system: The only system to compare, or None.
        backbone: The only backbone, or None.
    """

    run: RunFolder
    manifest: Mapping[str, Any]
    plan: PlannedRun
    system: str | None = None
    backbone: str | None = None

    def cell(self, cell: Cell) -> CellScores | None:
        """The lines of a cell, or None where it was not run."""
        described = self.manifest.get("benchmarks", {}).get(cell.benchmark, {})
        judges = [judge.name for judge in self.plan.judges]
        return read_cell(self.run, cell, judges, described.get("questions"))

    def judge(self, name: str) -> str:
        """What a judge is, whatever it is called: its model, and how long its replies may be."""
        planned = next(j for j in self.manifest["plan"]["judges"] if j["name"] == name)
        llm = planned.get("llm", {})
        model = (self.manifest.get("models") or {}).get(name) or llm.get("model")
        length = planned.get("max_tokens")
        return f"{model or llm.get('provider')}" + (f" with {length} tokens" if length else "")


def open_side(path: Path, system: str | None = None, backbone: str | None = None) -> Side:
    """A run of `vmem eval run`.

    Raises:
        InputError: The folder holds none.
    """
    if not path.is_dir():
        raise InputError(f"{path} is no run: it does not exist")
    run = RunFolder(path)
    manifest = read_manifest(run)
    plan = planned_run(run, manifest)
    return Side(run=run, manifest=manifest, plan=plan, system=system, backbone=backbone)


def compare_runs(
    first: Side, second: Side, *, benchmark: str | None = None, anyway: bool = False
) -> dict[str, Any]:
    """Every score of every pair of cells, the second run's less the first's.

    Cells are paired by benchmark, system and backbone; by the only system or backbone of each side
    where those have other names.

    Args:
        first: What the other is held against.
        second: The other.
        benchmark: Only this one.
        anyway: Compare also where data, judges or their prompts differ.

    Returns:
        `differs`: what makes them incomparable, in words. By side, `a` or `b`: `invalid`, what
        makes a cell's scores invalid; `not_run`, cells that have no answers; `unpaired`, cells
        that the other does not plan; `unscored`, scores that only the other has. `comparisons`:
        for each pair and score the questions that one side alone has a score for, and the
        differences overall and by category.

    Raises:
        InputError: They share nothing, a name is unknown, or they differ, and not `anyway`.
        DataError: A line cannot be read.
    """
    benchmarks = _benchmarks(first, second, benchmark)
    pairs = _pairs(first, second, benchmarks)
    judges = _judges(first, second)
    differs = list(_differences(first, second, benchmarks, judges))
    if differs and not anyway:
        raise InputError(
            f"{first.run.path} and {second.run.path} cannot be compared: {'; '.join(differs)}"
            " (--anyway compares them all the same)"
        )
    plan = first.manifest["plan"]
    draw = Resampling(seed=plan.get("seed", SEED), draws=plan.get("draws", RESAMPLES))
    found: dict[str, Any] = {
        "differs": differs,
        "invalid": {"a": {}, "b": {}},
        "not_run": {"a": [], "b": []},
        "unpaired": {
            "a": _unpaired(first, {a for a, _ in pairs}),
            "b": _unpaired(second, {b for _, b in pairs}),
        },
        "unscored": {"a": [], "b": []},
        "comparisons": [],
    }
    for pair in pairs:
        cells = [side.cell(cell) for side, cell in zip((first, second), pair, strict=True)]
        for side, cell, scores in zip("ab", pair, cells, strict=True):
            if scores is None:
                found["not_run"][side].append(str(cell))
        if cells[0] is not None and cells[1] is not None:
            _compare(cells[0], cells[1], judges, draw, found)
    return found


def regressions(
    comparisons: Sequence[Mapping[str, Any]],
    *,
    by: Literal["question", "dialogue"] = "question",
    tolerance: float = 0.0,
) -> list[dict[str, Any]]:
    """Scores that became worse for sure.

    A difference is one where its whole 95% interval lies below `-tolerance` and its p is below
    0.05; in a category that p is the one corrected by Holm.

    Args:
        comparisons: Of `compare_runs`.
        by: Whether single questions were resampled and flipped, or whole dialogues; what is about
            one dialogue alone has no interval over dialogues, and is no regression by those.
        tolerance: How much worse a score may be.
    """
    found = []
    for one in comparisons:
        places = [("overall", one["overall"], "p")]
        places += [(name, part, "p_holm") for name, part in one["category"].items()]
        for place, compared, p in places:
            test = compared and compared[f"by_{by}"]
            if test and test["high"] < -tolerance and test[p] < ALPHA:
                named = {name: one[name] for name in ("benchmark", "score", "a", "b")}
                found.append({**named, "place": place, "difference": compared["difference"]})
    return found


def _benchmarks(first: Side, second: Side, only: str | None) -> list[str]:
    known = [[each.name for each in side.plan.benchmarks] for side in (first, second)]
    shared = [name for name in known[0] if name in known[1] and only in (None, name)]
    if not shared:
        raise InputError(
            f"{first.run.path} and {second.run.path} share no benchmark"
            + (f" named {only!r}" if only else "")
        )
    return shared


def _pairs(first: Side, second: Side, benchmarks: Sequence[str]) -> list[tuple[Cell, Cell]]:
    systems = _named_pairs("system", first, second, lambda side: side.plan.systems)
    backbones = _named_pairs(
        "backbone", first, second, lambda side: [each.name for each in side.plan.backbones]
    )
    return [
        (
            Cell(benchmark=benchmark, system=system[0], backbone=backbone[0]),
            Cell(benchmark=benchmark, system=system[1], backbone=backbone[1]),
        )
        for benchmark in benchmarks
        for backbone in backbones
        for system in systems
    ]


def _named_pairs(
    what: Literal["system", "backbone"],
    first: Side,
    second: Side,
    names_of: Callable[[Side], Sequence[str]],
) -> list[tuple[str, str]]:
    sides = (first, second)
    chosen = [side.system if what == "system" else side.backbone for side in sides]
    known = [list(names_of(side)) for side in sides]
    shared = [name for name in known[0] if name in known[1]]
    if any(chosen):
        pair = [name or next(filter(None, chosen)) for name in chosen]
        for name, names, side in zip(pair, known, sides, strict=True):
            if name not in names:
                raise InputError(f"{side.run.path} has no {what} {name!r}; it has {names}")
        return [(pair[0], pair[1])]
    if not shared and len(known[0]) == len(known[1]) == 1:
        return [(known[0][0], known[1][0])]
    if not shared:
        raise InputError(
            f"the runs share no {what}: name one of each with --{what}-a (of {known[0]}) and"
            f" --{what}-b (of {known[1]})"
        )
    return [(name, name) for name in shared]


def _judges(first: Side, second: Side) -> Judges:
    known = [[judge.name for judge in side.plan.judges] for side in (first, second)]
    shared = {name: name for name in known[0] if name in known[1]}
    if not shared and len(known[0]) == len(known[1]) == 1:
        return {known[0][0]: known[1][0]}
    return shared


def _differences(
    first: Side, second: Side, benchmarks: Sequence[str], judges: Judges
) -> Iterator[str]:
    """What makes scores incomparable, in words."""
    for name in benchmarks:
        digests = [side.manifest.get("data", {}).get(name) for side in (first, second)]
        if digests[0] != digests[1]:
            yield f"{name} is of other data"
    for ours, theirs in judges.items():
        if first.judge(ours) != second.judge(theirs):
            yield f"judge {ours} is {first.judge(ours)} in one, {second.judge(theirs)} in the other"
    if first.plan.judges and second.plan.judges and not judges:
        yield "their judges have other names"
    prompts = [side.manifest.get("prompts", {}).get("judges", {}) for side in (first, second)]
    for name in sorted(prompts[0].keys() & prompts[1].keys()) if judges else ():
        asked = [each[name]["sha256"] for each in prompts]
        if name.rpartition(".")[0] in benchmarks and asked[0] != asked[1]:
            yield f"the judge's prompt {name} is another"


def _unpaired(side: Side, paired: Collection[Cell]) -> list[str]:
    """Cells that the other does not plan, where none was chosen by name."""
    if side.system or side.backbone:
        return []
    benchmarks = {cell.benchmark for cell in paired}
    return [
        str(cell)
        for cell in side.plan.cells()
        if cell not in paired and cell.benchmark in benchmarks
    ]


def _compare(
    first: CellScores,
    second: CellScores,
    judges: Judges,
    draw: Resampling,
    found: Mapping[str, Any],
) -> None:
    """Add what two cells come to."""
    own = comparable_scores(first)
    own_name = {_other_name(name, judges): name for name in own}
    ours, theirs = {name: own[own_name[name]] for name in own_name}, comparable_scores(second)
    lacking = {"a": (first, theirs.keys() - ours), "b": (second, ours.keys() - theirs)}
    for side, (cell, names) in lacking.items():
        found["unscored"][side] += [f"{cell.cell}: {name}" for name in sorted(names)]
    for name in ours:
        if name not in theirs:
            continue
        for side, cell, score in (("a", first, own_name[name]), ("b", second, name)):
            if faults := faults_of(cell, score):
                found["invalid"][side].setdefault(str(cell.cell), {}).update(faults)
        key = f"{first.cell}|{second.cell}|{name}"
        compared = compared_scores(theirs[name], ours[name], first, key, draw)
        found["comparisons"].append(
            {
                "benchmark": first.cell.benchmark,
                "score": name,
                "a": asdict(first.cell),
                "b": asdict(second.cell),
                "asked_in_a_only": len(first.records.keys() - second.records.keys()),
                "asked_in_b_only": len(second.records.keys() - first.records.keys()),
                "scored_in_a_only": len(ours[name].keys() - theirs[name].keys()),
                "scored_in_b_only": len(theirs[name].keys() - ours[name].keys()),
                "overall": compared["overall"],
                "category": compared["category"],
            }
        )


def _other_name(score: str, judges: Judges) -> str:
    """The other run's name of a score: a judge may have another name there."""
    if not score.startswith("judge:"):
        return score
    _, judge, kind = score.split(":")
    return f"judge:{judges.get(judge, judge)}:{kind}"
