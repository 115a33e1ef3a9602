"""Stage 4: every table of the paper, ours beside the published figures, in three formats."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jobs.evaluation.run_folder import RunFolder, write_at_once
from jobs.report.comparison_tables import case_grid, paired_grid
from jobs.report.corrected_gold import corrected_grid
from jobs.report.cost_tables import NUMBERS as COSTS
from jobs.report.cost_tables import cost_grid
from jobs.report.merged_runs import MergedRuns, read_statistics
from jobs.report.own_tables import errors_grid, judges_grid, results_grid
from jobs.report.published import Places, read_published
from jobs.report.score_entries import invalid_mark
from jobs.report.score_tables import NUMBERS as SCORES
from jobs.report.score_tables import score_grid
from jobs.report.settings_tables import counts_grid, settings_grid
from jobs.report.table_formats import Grid, to_csv, to_latex, to_markdown
from vmem.systems.rows import read_rows

ALL = "tables.md"
WARNINGS = {
    "anchors_fell_back": "questions searched as they are, because an anchor failed",
    "contexts_truncated": "contexts cut to the model's window",
    "query_images_missing": "attached pictures without a file",
    "without_reference": "questions without a reference",
}
FORMATS = {".md": to_markdown, ".csv": to_csv, ".tex": to_latex}


def write_tables(
    runs: Sequence[RunFolder], out: Path, data: Mapping[str, Path] | None = None
) -> list[Path]:
    """Write all tables; the same statistics give the same bytes.

    Args:
        runs: Folders with `statistics.json`; of two runs with one cell the first holds.
        out: The folder for `table-01.md`, `.csv`, `.tex` and so on, and `tables.md` with them all.
        data: Folders of benchmarks whose questions Table 6 counts; None counts those of the runs.

    Returns:
        The files, `tables.md` first.

    Raises:
        InputError: A folder has no statistics.
        DataError: A file of answers or a benchmark cannot be read.
        StoreError: A file cannot be written.
    """
    merged = read_statistics(runs)
    grids = make_grids(runs, merged, data or {})
    files = {ALL: f"{validity(merged)}\n" + "\n".join(map(to_markdown, grids))}
    for grid in grids:
        files |= {f"{grid.name}{ending}": made(grid) for ending, made in FORMATS.items()}
    for name, text in files.items():
        write_at_once(out / name, text.encode())
    return [out / name for name in files]


def make_grids(
    runs: Sequence[RunFolder], merged: MergedRuns, data: Mapping[str, Path]
) -> list[Grid]:
    """The paper's sixteen tables by number, then our own.

    Raises:
        DataError: A file of answers or a benchmark cannot be read.
    """
    published, places = read_published(), Places(rows=read_rows())
    grids = []
    for number, table in sorted(published.items()):
        if number in SCORES:
            grids.append(score_grid(table, merged, places))
        elif number in COSTS:
            grids.append(cost_grid(table, merged, places))
        elif number == 5:
            grids.append(settings_grid(table))
        elif number == 6:
            grids.append(counts_grid(table, merged, data))
        elif number == 15:
            grids.append(paired_grid(table, merged, places))
        else:
            grids.append(case_grid(table, runs, merged, places))
    results = [results_grid(name, merged, places) for name in merged.benchmarks()]
    return [*grids, *results, corrected_grid(merged), errors_grid(merged), judges_grid(merged)]


def validity(merged: MergedRuns) -> str:
    """What a reader must know first: which scores are invalid, and why."""
    invalid = [
        f"- {'.'.join(name)}: {invalid_mark(cell['invalid'])}"
        for name, cell in merged.cells.items()
        if not cell["valid"]
    ]
    warned = [
        f"- {'.'.join(name)}: {', '.join(said)}"
        for name, cell in merged.cells.items()
        if (said := _warnings(cell["warnings"]))
    ]
    twice = [f"- {name} is in an earlier run too; that one is shown" for name in merged.twice]
    count = len(merged.cells)
    head = f"{len(invalid):,} of {count:,} cells are invalid" if invalid else "All cells are valid"
    lines = ["# Tables", "", f"{head}." if count else "No cell was run.", "", *invalid, *twice]
    if warned:
        lines += ["", "To be known when reading them:", "", *warned]
    return "\n".join(lines).rstrip() + "\n"


def _warnings(warnings: Mapping[str, Any]) -> list[str]:
    return [f"{warnings[name]:,} {said}" for name, said in WARNINGS.items() if warnings[name]]
