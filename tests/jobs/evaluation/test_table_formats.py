"""One table in three formats; LaTeX sets what was written, CSV reads back."""

import csv
import io

import pytest

from jobs.report.table_formats import Entry, Grid, Line, escape_latex, to_csv, to_latex, to_markdown

GRID = Grid(
    name="table-01",
    title="Scores & more",
    keys=("backbone", "system"),
    columns=("TTL", "over_all"),
    lines=(
        Line(
            keys=("small", "a|b"),
            figure="ours",
            entries=(Entry(value=1 / 3, interval=(0.25, 0.5)), Entry(mark="not run")),
        ),
        Line(
            keys=("small", "a|b"),
            figure="difference",
            entries=(Entry(), Entry(value='x, "y"')),
        ),
    ),
    caption=("100% ours.",),
)


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (Entry(), "–"),
        (Entry(value=0.8125), "0.812"),
        (Entry(value=12), "12"),
        (Entry(value=2_770_000), "2,770,000"),
        (Entry(value=0.25, signed=True), "+0.250"),
        (Entry(value=-0.0001, signed=True), "+0.000"),
        (Entry(value=2, interval=(1, 3)), "2 [1, 3]"),
        (Entry(value=0.5, mark="2 of 9 lack it"), "0.500 (2 of 9 lack it)"),
        (Entry(mark="invalid (2 failed)"), "invalid (2 failed)"),
        (Entry(value="words"), "words"),
        (Entry(interval=(0.0, 1.0)), "–"),
    ],
)
def test_an_entry_reads_as_its_value_interval_and_mark(entry: Entry, text: str) -> None:
    assert entry.text == text


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("50% of a_b & #1 {$}", r"50\% of a\_b \& \#1 \{\$\}"),
        ("\\ ~ ^", r"\textbackslash{} \textasciitilde{} \textasciicircum{}"),
        ("text->image", r"text-\textgreater{}image"),
        ("κ – 3", r"$\kappa$ -- 3"),
    ],
)
def test_latex_sets_what_is_written(text: str, latex: str) -> None:
    assert escape_latex(text) == latex


def test_latex_has_a_column_for_each_name_and_escapes_all_of_it() -> None:
    lines = to_latex(GRID).splitlines()
    assert r"\begin{tabular}{lllrr}" in lines
    assert r"backbone & system & figure & TTL & over\_all \\" in lines
    assert r"small & a|b & ours & 0.333 [0.250, 0.500] & not run \\" in lines
    assert r"\caption{Scores \& more. 100\% ours.}" in lines
    assert lines[0] == r"\begin{table}"
    assert lines[-1] == r"\end{table}"


def test_csv_reads_back_with_a_row_for_each_entry_and_unrounded_numbers() -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(GRID))))
    assert len(rows) == len(GRID.lines) * len(GRID.columns)
    assert float(rows[0]["value"]) == 1 / 3
    assert (float(rows[0]["low"]), float(rows[0]["high"])) == (0.25, 0.5)
    assert (rows[1]["value"], rows[1]["mark"]) == ("", "not run")
    assert rows[3]["value"] == 'x, "y"'
    assert {row["system"] for row in rows} == {"a|b"}


def test_markdown_has_as_many_cells_in_each_line_and_keys_once() -> None:
    table = [line for line in to_markdown(GRID).splitlines() if line.startswith("|")]
    assert [line.replace("\\|", "").count("|") for line in table] == [6] * (2 + len(GRID.lines))
    assert table[2].startswith("| small | a\\|b | ours |")
    assert table[3].startswith("|  |  | difference |")
