"""The report: one HTML file that asks nobody for anything, and says first what is not valid.

Every text in it may come from a user or a model, so the template escapes all of them, and a policy
in the page's head lets no script run but the page's own.
"""

import base64
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from jobs.evaluation.manifest import FILE, read_manifest
from jobs.evaluation.run_folder import RunFolder
from jobs.report.judge_plots import Levels, judge_plots
from jobs.report.merged_runs import MergedRuns
from jobs.report.pictures import Thumbnails
from jobs.report.plots import score_plots
from jobs.report.question_files import cells_of, read_questions
from jobs.report.question_view import facts, printable, score_line
from jobs.report.questions import FAILURES, WRONG, SeenQuestion
from jobs.report.table_formats import Grid, to_html
from jobs.report.validity import validity_of
from jobs.report.what_ran import what_ran
from jobs.statistics.means import Resampling

FOLDER = Path(__file__).parent
PER_CELL = 20
"""Questions of a cell on the page."""
MOST_LETTERS = 4_000
"""Letters of one text on the page; the terminal shows all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownQuestion:
    """A question on the page.

    Attributes:
        seen: The question.
        facts: What is known of it, long texts cut.
        score: Its scores, briefly.
        picture: Its picture as a `data:` URI, or None.
        kinds: What filters know it by: `failed`, `wrong`, `disagree`.
    """

    seen: SeenQuestion
    facts: tuple[tuple[str, str], ...]
    score: str
    picture: str | None
    kinds: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownCell:
    """A cell's questions on the page.

    Attributes:
        name: The cell's.
        run: The name of its run.
        questions: Those shown, the worst first.
        shown: How many of them ended how.
        left_out: How many of the others ended how; empty where all are shown.
    """

    name: str
    run: str
    questions: tuple[ShownQuestion, ...]
    shown: str
    left_out: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTable:
    """A table on the page.

    Attributes:
        grid: The table.
        html: The same as HTML.
        open: Whether it is unfolded: it has a figure that is not the paper's.
    """

    grid: Grid
    html: Markup
    open: bool


def make_page(
    runs: Sequence[RunFolder],
    merged: MergedRuns,
    grids: Sequence[Grid],
    per_cell: int = PER_CELL,
) -> str:
    """The whole page; the same runs give the same text.

    Args:
        runs: The runs' folders.
        merged: Their statistics.
        grids: Their tables.
        per_cell: Questions of each cell that are shown.

    Raises:
        DataError: A file of answers or judgements cannot be read.
        InputError: A manifest cannot be read.
    """
    levels, pictures = Levels(), Thumbnails(_manifests(runs))
    cells = list(_cells(runs, merged, per_cell, levels, pictures))
    draw = Resampling(seed=merged.runs[0]["seed"] if merged.runs else 0)
    script = Markup((FOLDER / "report.js").read_text(encoding="utf-8"))
    digest = hashlib.sha256(script.encode()).digest()
    seen = [one.seen for cell in cells for one in cell.questions]
    return _template().render(
        title=", ".join(dict.fromkeys(str(run["name"]) for run in merged.runs)),
        policy=f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none';"
        f" form-action 'none'; script-src 'sha256-{base64.b64encode(digest).decode()}'",
        style=Markup((FOLDER / "report.css").read_text(encoding="utf-8")),
        script=script,
        validity=validity_of(merged),
        ran=[what_ran(run, known) for run, known in zip(runs, merged.runs, strict=True)],
        plots=[*score_plots(merged), *judge_plots(merged), *levels.plots(draw)],
        tables=[ShownTable(grid=grid, html=to_html(grid), open=_has_ours(grid)) for grid in grids],
        cells=cells,
        per_cell=per_cell,
        pictures=pictures,
        choices={
            "benchmark": list(dict.fromkeys(one.cell.benchmark for one in seen)),
            "system": list(dict.fromkeys(one.cell.system for one in seen)),
            "backbone": list(dict.fromkeys(one.cell.backbone for one in seen)),
            "category": sorted({one.record.category for one in seen}),
        },
    )


def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html")


def _manifests(runs: Iterable[RunFolder]) -> list[Mapping[str, Any]]:
    return [read_manifest(run) for run in runs if (run.path / FILE).is_file()]


def _cells(
    runs: Sequence[RunFolder],
    merged: MergedRuns,
    per_cell: int,
    levels: Levels,
    pictures: Thumbnails,
) -> Iterator[ShownCell]:
    """The questions of each cell that the tables show: of two runs with one cell the first's."""
    told: set[str] = set()
    for run, known in zip(runs, merged.runs, strict=True):
        if not merged.cells or not (run.path / "answers").is_dir() or not cells_of(run):
            continue
        for cell, questions in groupby(read_questions(run), key=lambda seen: str(seen.cell)):
            if cell in told:
                continue
            told.add(cell)
            every = list(questions)
            for seen in every:
                levels.add(seen)
            chosen = sorted(every, key=_rank)[:per_cell]
            ids = {seen.record.question_id for seen in chosen}
            others = [seen for seen in every if seen.record.question_id not in ids]
            yield ShownCell(
                name=cell,
                run=str(known["name"]),
                questions=tuple(_shown(seen, pictures) for seen in chosen),
                shown=_counted(chosen),
                left_out=_counted(others),
            )


def _rank(seen: SeenQuestion) -> int:
    """Failed, wrong where others disagree, wrong, right where others disagree, the rest."""
    differs = bool(seen.disagreements)
    if seen.state in FAILURES:
        return 0
    return (1 if differs else 2) if seen.state in WRONG else 3 if differs else 4


def _counted(questions: Sequence[SeenQuestion]) -> str:
    counts = Counter(seen.state.value for seen in questions)
    return ", ".join(f"{count:,} {state}" for state, count in counts.most_common())


def _shown(seen: SeenQuestion, pictures: Thumbnails) -> ShownQuestion:
    record = seen.record
    picture = None
    if record.image is not None:
        picture = pictures.make(seen.cell.benchmark, record.image, record.image_uri)
    kinds = {
        "failed": seen.state in FAILURES,
        "wrong": seen.state in WRONG,
        "disagree": bool(seen.disagreements),
    }
    return ShownQuestion(
        seen=seen,
        facts=tuple((printable(name), _cut(text)) for name, text in facts(seen)),
        score=score_line(seen),
        picture=picture,
        kinds=" ".join(name for name, true in kinds.items() if true),
    )


def _cut(text: str) -> str:
    more = len(text) - MOST_LETTERS
    if more <= 0:
        return text
    return f"{text[:MOST_LETTERS]}…\n[{more:,} more letters: `vmem eval show` has them]"


def _has_ours(grid: Grid) -> bool:
    """Whether a table says anything that the paper does not."""
    return any(
        entry.value is not None or entry.mark not in ("not run", "")
        for line in grid.lines
        if line.figure != "published"
        for entry in line.entries
    )
