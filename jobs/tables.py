"""Stage 4: every table of the paper, ours beside the published figures, and the report."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from jobs.evaluation.run_folder import RunFolder, write_at_once
from jobs.report.comparison_tables import case_grid, paired_grid
from jobs.report.cost_tables import NUMBERS as COSTS
from jobs.report.cost_tables import cost_grid
from jobs.report.merged_runs import MergedRuns, read_statistics
from jobs.report.own_grids import own_grids
from jobs.report.page import make_page
from jobs.report.published import Places, read_published
from jobs.report.score_tables import NUMBERS as SCORES
from jobs.report.score_tables import score_grid
from jobs.report.settings_tables import counts_grid, settings_grid
from jobs.report.table_formats import Grid, to_csv, to_latex, to_markdown
from jobs.report.validity import validity_of
from vmem.systems.rows import read_rows

ALL = "tables.md"
REPORT = "report.html"
FORMATS = {".md": to_markdown, ".csv": to_csv, ".tex": to_latex}


def write_tables(
    runs: Sequence[RunFolder],
    out: Path,
    data: Mapping[str, Path] | None = None,
    report: Path | None = None,
) -> list[Path]:
    """Write all tables and the report; the same statistics give the same tables, byte for byte.

    Args:
        runs: Folders with `statistics.json`; of two runs with one cell the first holds.
        out: The folder for `table-01.md`, `.csv`, `.tex` and so on, and `tables.md` with them all.
        data: Folders of benchmarks whose questions Table 6 counts; None counts those of the runs.
        report: Where the report goes; None writes none.

    Returns:
        The files: the report where it is asked for, then `tables.md`.

    Raises:
        InputError: A folder has no statistics.
        DataError: A file of answers or a benchmark cannot be read.
        StoreError: A file cannot be written.
    """
    merged = read_statistics(runs)
    grids = make_grids(runs, merged, data or {})
    files = {ALL: f"{validity_of(merged).as_markdown()}\n" + "\n".join(map(to_markdown, grids))}
    for grid in grids:
        files |= {f"{grid.name}{ending}": made(grid) for ending, made in FORMATS.items()}
    for name, text in files.items():
        write_at_once(out / name, text.encode())
    tables = [out / name for name in files]
    if report is None:
        return tables
    write_at_once(report, make_page(runs, merged, grids).encode(errors="replace"))
    return [report, *tables]


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
    return [*grids, *own_grids(merged, places)]
