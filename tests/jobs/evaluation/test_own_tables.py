"""Our own tables on hand-made runs: figures of the text, both intervals, categories, scorers."""

from typing import Any

from jobs.report.captions import score_caption
from jobs.report.merged_runs import read_statistics
from jobs.report.own_grids import own_grids
from jobs.report.published import Places, read_figures, read_published
from jobs.report.table_formats import Entry, Grid
from jobs.report.text_figures import FOUND
from jobs.significance import summarise_run
from vmem.systems.rows import read_rows

SEED, DRAWS = 7, 200
PLACES = Places(rows=read_rows())


def grids(run) -> dict[str, Grid]:
    """All own tables of a run by name."""
    summarise_run(run.folder, run.manifest(), SEED, DRAWS)
    return {grid.name: grid for grid in own_grids(read_statistics([run.folder]), PLACES)}


def values_of(grid: Grid, figure: str) -> dict[str, tuple[Entry, ...]]:
    """The lines of a figure of the text by their last key; their own figure without models."""
    return {
        f"{line.keys[-1]}|{line.figure.partition(':')[0]}": line.entries
        for line in grid.lines
        if line.keys[1] == figure
    }


def add(run, system: str, scores: list[float], **changes: Any) -> None:
    """A cell whose questions are half TTL and half VS, the latter asking text for images."""
    records = []
    for number in range(len(scores)):
        of = {"category": "TTL"} if number % 2 else {"category": "VS", "case": "text->image"}
        records.append(run.record(number, **{**of, **changes}))
    lines = [run.judgement(*pair) for pair in zip(records, scores, strict=True)]
    run.add(records, {"strict.gallery": lines}, system=system)


def test_every_figure_of_the_text_is_shown_and_what_was_not_run_says_so(run) -> None:
    grid = grids(run)["figures-of-the-text"]
    figures = read_figures()
    published = [line for line in grid.lines if line.figure == "published"]
    assert len(published) == sum(len(figure.values) for figure in figures.values()) > 30
    assert [line.entries[0].text for line in grid.lines if line.figure == "ours"] == ["not run"] * (
        len(published)
    )
    interval = values_of(grid, "overall-intervals")["mem-gallery|published"][0]
    assert (interval.value, interval.interval) == (0.825, (0.808, 0.841))


def test_where_our_figures_come_from_names_published_figures_and_known_systems() -> None:
    figures = read_figures()
    for figure, values in FOUND.items():
        assert values.keys() <= figures[figure].entries().keys()
        for name, found in values.items():
            system = found.system or PLACES.of_figure(figure, name)
            assert system in PLACES.rows, (figure, name)
            assert not found.base or found.base in PLACES.rows
    claimed = {
        (place.figure, place.column)
        for row in PLACES.rows.values()
        for place in row.stands_for
        if place.figure
    }
    for figure, column in claimed:
        assert column is None or column in FOUND[figure]


def test_steps_and_windows_stand_beside_what_the_text_says(run) -> None:
    add(run, "v-mem", [1.0, 1.0, 0.5, 1.0])
    add(run, "rounds", [0.5, 1.0, 0.5, 0.5])
    add(run, "routing", [0.5, 0.0, 0.5, 0.5])
    add(run, "vanilla", [0.0, 0.5, 0.0, 0.0])
    add(run, "filter-window-2", [0.0, 0.0, 0.5, 0.0])
    grid = grids(run)["figures-of-the-text"]
    routing = values_of(grid, "step-routing-by-category")
    assert [routing[f"ttl_lost|{said}"][0].text for said in ("published", "ours")] == ["37", "1"]
    assert routing["ttl_gained|ours"][0].value == 1  # the fourth
    assert routing["KR|ours"][0].text == "no such question"
    rounds = values_of(grid, "step-rounds-by-category")
    ours = rounds["TTL|ours"][0]
    assert ours.value == (1.0 + 0.5) / 2 - (0.0 + 0.5) / 2
    assert ours.interval is not None and ours.interval[0] <= ours.value <= ours.interval[1]
    assert rounds["TTL|difference"][0].value == ours.value - 0.182
    window = values_of(grid, "filter-window")
    assert window["1|ours"][0].value == (1.0 + 0.5) / 2  # `v-mem` over visual search
    assert window["2|ours"][0].value == (0.0 + 0.5) / 2
    assert window["0|ours"][0].text == "not run"
    # v-mem is the base of its pair with rounds, which is turned for the step.
    assert values_of(grid, "step-anchor-by-category")["VS|ours"][0].value == (0.5 + 0.0) / 2


def test_a_figure_over_failed_questions_has_no_number(run) -> None:
    add(run, "v-mem", [1.0] * 4)
    add(run, "no-merging", [1.0] * 4, answer="", error="ModelError: no")
    grid = grids(run)["figures-of-the-text"]
    merging = values_of(grid, "merging")
    assert merging["TTL_with|ours"][0].value == 1.0
    assert merging["TTL_without|ours"][0].text.startswith("invalid (4 failed")
    assert merging["overall_delta|ours"][0].text.startswith("invalid (4 failed")


def test_both_intervals_stand_beside_each_mean(run) -> None:
    add(run, "v-mem", [0.0, 1.0, 0.0, 1.0])
    lines = {line.figure: line.entries for line in grids(run)["intervals"].lines}
    by_question, by_dialogue = lines["strict (gallery)"]
    assert by_question.value == by_dialogue.value == 0.5
    assert by_question.interval is not None and 0 <= by_question.interval[0] < 0.5
    assert by_dialogue.interval == (0.0, 1.0)  # one dialogue is all wrong, the other all right
    assert {"f1", "bleu", "exact", "recall@12"} < lines.keys()
    assert all(entry.interval for entry in lines["bleu"])


def test_categories_have_holms_p_and_each_says_what_was_resampled(run) -> None:
    add(run, "v-mem", [1.0] * 8)
    add(run, "routing", [0.0, 1.0] * 4)
    grid = grids(run)["differences-by-category"]
    assert grid.columns[:3] == ("difference by question", "p by question", "Holm p by question")
    (searched,) = [line for line in grid.lines if line.keys[-1] == "VS"]
    assert searched.keys[2] == "routing less v-mem"
    difference, p, holm = searched.entries[:3]
    assert (difference.value, difference.interval) == (-1.0, (-1.0, -1.0))
    assert isinstance(p.value, float) and isinstance(holm.value, float)
    assert p.value < holm.value == min(1.0, 2 * p.value)  # of two categories the smaller p
    # All questions of a category are about one dialogue.
    assert [entry.text for entry in searched.entries[3:]] == ["one dialogue"] * 3


def test_tables_name_the_scorer_of_their_overlaps(run) -> None:
    add(run, "v-mem", [1.0, 1.0])
    ours, theirs = "as Mem-Gallery's scorer", "as LoCoMo's scorer"
    assert ours in " ".join(grids(run)["results-mem-gallery"].caption)
    merged, tables = read_statistics([run.folder]), read_published()
    said = {n: " ".join(score_caption(tables[n], merged, PLACES)) for n in (1, 7, 9, 10)}
    assert [ours in text for text in said.values()] == [False, True, True, True]
    assert [theirs in text for text in said.values()] == [False, False, False, True]


def test_costs_are_shown_by_what_calls_were_for(run) -> None:
    add(run, "v-mem", [1.0, 0.0])
    costs = {line.figure: line.entries for line in grids(run)["costs-by-role"].lines}
    assert costs.keys() == {"answer: answer", "judge: strict.gallery"}
    calls, failed, prompt, completion, seconds = (e.value for e in costs["answer: answer"])
    assert (calls, failed, prompt, completion, seconds) == (2, 0, 2 * 100, 2 * 10, 2 * 0.5)


def test_what_is_not_finished_says_so_of_judges_and_of_wrong_answers(run) -> None:
    records = [run.record(0), run.record(1, answer="", error="ModelError: no")]
    run.add(records, {"strict.gallery": [run.judgement(records[0], 0.0)]})
    planted = run.folder.planted("mem-gallery.strict.gallery")
    planted.append(run.judgement(records[0], 0.0, question_id="a~vague"))
    shown = grids(run)
    rates = {line.keys[0]: line.entries[0].text for line in shown["judges"].lines}
    assert rates["false accepts of vague answers"] == "invalid (unfinished)"
    assert {line.figure for line in shown["errors"].lines} == {
        "strict (gallery), invalid (1 failed)"
    }
