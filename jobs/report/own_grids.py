"""All tables of ours that the paper has not, in the order of a report."""

from jobs.report.corrected_gold import corrected_grid
from jobs.report.cost_by_role import roles_grid
from jobs.report.interval_tables import categories_grid, intervals_grid
from jobs.report.merged_runs import MergedRuns
from jobs.report.own_tables import errors_grid, judges_grid, results_grid
from jobs.report.published import Places, read_figures
from jobs.report.table_formats import Grid
from jobs.report.text_figures import figures_grid


def own_grids(merged: MergedRuns, places: Places) -> list[Grid]:
    """The figures of the paper's text, then what our runs measured, and how sure it is."""
    return [
        figures_grid(read_figures(), merged, places),
        *(results_grid(name, merged, places) for name in merged.benchmarks()),
        intervals_grid(merged),
        categories_grid(merged),
        corrected_grid(merged),
        roles_grid(merged),
        errors_grid(merged),
        judges_grid(merged),
    ]
