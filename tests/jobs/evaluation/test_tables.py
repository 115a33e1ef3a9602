"""Every table of the paper: ours beside the published number, and what is not ours said so."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from jobs.evaluation.run_folder import RunFolder
from jobs.report.merged_runs import read_statistics
from jobs.report.validity import validity_of
from jobs.significance import summarise_run
from jobs.tables import make_grids, write_tables
from vmem.errors import InputError

SHARED = Path(__file__).parents[3].parent / "shared" / "data"
ROW = dict[str, str]


def finish(run, **more: Any) -> None:
    summarise_run(run.folder, run.manifest(**more), 7, 200)


def judged(run, scores: Sequence[float | None], system: str = "v-mem", **changes: Any) -> None:
    """A cell on Mem-Gallery whose questions have these scores; no score is a failed question."""
    records = [
        run.record(n, **changes)
        if score is not None
        else run.record(n, answer="", error="ModelError: no", scores=None)
        for n, score in enumerate(scores)
    ]
    marked = [(r, s) for r, s in zip(records, scores, strict=True) if s is not None]
    lines = [run.judgement(record, score) for record, score in marked]
    run.add(records, {"strict.gallery": lines}, system=system)


def rows_of(number: int, *runs: RunFolder, data: dict[str, Path] | None = None) -> list[ROW]:
    """A table's entries as its CSV has them."""
    out = runs[0].path / "tables"
    write_tables(runs, out, data)
    return read_csv(out / f"table-{number:02}.csv")


def read_csv(path: Path) -> list[ROW]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def found(rows: Sequence[ROW], figure: str, **keys: str) -> dict[str, ROW]:
    """The entries of the lines whose figure starts so, by column."""
    wanted = [
        row
        for row in rows
        if row["figure"].startswith(figure) and all(row[k] == v for k, v in keys.items())
    ]
    assert wanted, (figure, keys, {row["figure"] for row in rows})
    by_column = {row["column"]: row for row in wanted}
    assert len(by_column) == len(wanted)
    return by_column


def test_ours_stands_beside_the_published_number_with_the_difference(run) -> None:
    judged(run, [0.0, 0.5, 1.0, 1.0])
    finish(run)
    rows = rows_of(1, run.folder)
    place = {"backbone": "gpt-4o-mini", "system": "V-Mem"}
    assert found(rows, "published", **place)["FR"]["value"] == "0.881"
    ours = found(rows, "ours: small, strict (gallery)", **place)
    assert float(ours["FR"]["value"]) == float(ours["overall"]["value"]) == 2.5 / 4
    assert float(ours["overall"]["low"]) < 2.5 / 4 < float(ours["overall"]["high"])
    assert ours["TTL"]["mark"] == "no such question"
    less = found(rows, "difference", **place)
    assert float(less["FR"]["value"]) == pytest.approx(2.5 / 4 - 0.881)
    assert less["TTL"]["value"] == ""


def test_what_was_not_run_is_marked_and_never_left_out(run) -> None:
    finish(run)
    write_tables([run.folder], run.folder.path / "tables")
    for number in (1, 2, 3, 4, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16):
        rows = read_csv(run.folder.path / "tables" / f"table-{number:02}.csv")
        published = [row for row in rows if row["figure"] == "published"]
        ours = [row for row in rows if row["figure"].startswith("ours")]
        assert len(ours) == len(published) > 0, number
        assert {(row["value"], row["mark"]) for row in ours} == {("", "not run")}, number


def test_a_score_over_a_failed_question_shows_no_number(run) -> None:
    judged(run, [1.0, None, 1.0, None])
    finish(run)
    rows = rows_of(1, run.folder)
    ours = found(rows, "ours", backbone="gpt-4o-mini", system="V-Mem")["overall"]
    assert (ours["value"], ours["mark"]) == ("", "invalid (2 failed)")
    assert found(rows, "difference", system="V-Mem")["overall"]["value"] == ""
    text = (run.folder.path / "tables" / "tables.md").read_text(encoding="utf-8")
    lead = text[: text.index("## Table 1")]
    assert "1 of 1 cells are invalid" in lead
    assert "mem-gallery.v-mem.small: invalid (2 failed)" in lead


def test_a_backbone_of_the_paper_stands_beside_its_own_figures(run) -> None:
    judged(run, [1.0, 1.0])
    finish(run, models={"small": "Qwen/Qwen2.5-VL-32B-Instruct"})
    rows = rows_of(1, run.folder)
    assert found(rows, "ours", backbone="gpt-4o-mini", system="V-Mem")["FR"]["mark"] == "not run"
    ours = found(rows, "ours", backbone="Qwen2.5-VL-32B", system="V-Mem")
    assert ours["FR"]["value"] == "1.0"
    rows = rows_of(8, run.folder)
    tokens = {"phase": "answer", "metric": "tokens per question"}
    assert found(rows, "ours: small", **tokens)["V-Mem"]["value"] == str(110.0)


def test_systems_of_ours_have_rows_of_their_own(run) -> None:
    judged(run, [0.5, 0.5], system="bm25")
    finish(run)
    rows = rows_of(1, run.folder)
    assert found(rows, "ours: small", system="BM25 alone", backbone="–")["FR"]["value"] == "0.5"


def test_both_kinds_of_judge_are_shown_on_locomo_and_only_the_papers_is_subtracted(run) -> None:
    record = run.record(0, category="temporal")
    levels = {"strict.locomo": 0.75, "strict.binary": 1.0}
    lines = {name: [run.judgement(record, level)] for name, level in levels.items()}
    run.add([record], lines, benchmark="locomo")
    finish(run)
    rows = rows_of(2, run.folder)
    assert found(rows, "ours: small, strict (locomo)")["temporal"]["value"] == "0.75"
    assert found(rows, "ours: small, strict (binary)")["temporal"]["value"] == "1.0"
    less = found(rows, "difference", system="V-Mem")
    assert float(less["temporal"]["value"]) == pytest.approx(0.75 - 0.574)


def test_lexical_scores_of_both_tables(run) -> None:
    run.add([run.record(0), run.record(1, answer="no")])
    finish(run)
    rows = rows_of(10, run.folder)
    ours = found(rows, "ours", benchmark="mem-gallery", system="V-Mem")
    assert ours["EM"]["value"] == "0.5"
    place = {"backbone": "gpt-4o-mini", "metric": "EM", "system": "V-Mem"}
    rows = rows_of(9, run.folder)
    assert found(rows, "ours", **place)["FR"]["value"] == "0.5"
    assert float(found(rows, "difference", **place)["FR"]["value"]) == pytest.approx(0.5 - 0.073)


def test_costs_stand_in_the_systems_columns(run) -> None:
    judged(run, [1.0, 1.0])
    judged(run, [1.0, 1.0], system="full-context")
    finish(run)
    rows = rows_of(4, run.folder)
    tokens = {"benchmark": "mem-gallery", "phase": "answer", "metric": "tokens per question"}
    ours = found(rows, "ours", **tokens)
    assert ours["V-Mem"]["value"] == ours["Full context"]["value"] == str(110.0)
    assert ours["Omni"]["mark"] == "not run"
    assert float(found(rows, "difference", **tokens)["V-Mem"]["value"]) == 110 - 10_086
    build = found(rows, "ours", benchmark="mem-gallery", phase="build", metric="tokens")
    assert build["V-Mem"]["value"] == "0"


def test_a_run_without_a_model_fills_evidence_recall_and_no_judge_score(run) -> None:
    for system, recall in (("vanilla", 0.25), ("routing", 0.5), ("v-mem", 0.75)):
        notes = ("hypothetical caption off: no language model is configured",)
        records = [
            run.record(
                n,
                category="VS",
                case="text->image",
                answer="",
                cost={},
                scores={"recall@12": recall},
                notes=notes if system == "v-mem" else (),
            )
            for n in range(4)
        ]
        run.add(records, system=system)
    finish(run)
    rows = rows_of(3, run.folder)
    assert found(rows, "ours", configuration="vanilla")["VS"]["mark"] == "needs a model"
    evidence = "evidence R@12: mem-gallery, small"
    assert found(rows, evidence, configuration="vanilla")["VS"]["value"] == "0.25"
    assert found(rows, evidence, configuration="routing")["overall"]["value"] == "0.5"
    anchor = found(rows, evidence, configuration="generated anchor")["VS"]
    assert (anchor["value"], anchor["mark"]) == ("", "needs a model")


def test_places_whose_pictures_are_not_there_are_marked(run) -> None:
    pictured = {"case": "image+text->text", "image": "D1:IMG_1", "category": "TTL"}
    records = [run.record(0, **pictured), run.record(1), run.record(2), run.record(3)]
    run.add([*records], system="vanilla")
    finish(run)
    evidence = found(rows_of(3, run.folder), "evidence R@12", configuration="vanilla")
    assert evidence["TTL"]["mark"] == "needs pictures"
    assert evidence["overall"]["value"] == "1.0"
    assert evidence["overall"]["mark"] == "1 of 4 without their picture"


def test_toggles_compare_one_case_and_give_the_delta(run) -> None:
    seeks = {"category": "VS", "case": "text->image"}
    judged(run, [1.0, 0.5], **seeks)
    judged(run, [0.5, 0.5], system="no-image-round-filter", **seeks)
    finish(run)
    ours = found(rows_of(11, run.folder), "ours", toggle="image-round filter")
    values = {column: float(row["value"]) for column, row in ours.items()}
    assert values == {"without": 0.5, "with": 0.75, "delta": 0.25}


def test_neighbours_are_averaged_over_the_three_dialogues_of_the_paper(run) -> None:
    names = {
        "AI-Rob": "AI_Robotics_Automation_Future_Tech",
        "Acad": "Academic_Animal_Pet_Research_Life",
        "Fash": "Fashion_Personal_Care_Lifestyle_Shopping",
    }
    records = [run.record(n, dialogue_id=name) for n, name in enumerate(names.values())]
    other = run.record(9, dialogue_id="another")
    scores = (1.0, 0.5, 0.0, 0.0)
    lines = [run.judgement(*pair) for pair in zip([*records, other], scores, strict=True)]
    run.add([*records, other], {"strict.gallery": lines})
    finish(run)
    ours = found(rows_of(13, run.folder), "ours", placement="runs")
    assert [float(ours[name]["value"]) for name in names] == [1.0, 0.5, 0.0]
    assert float(ours["average"]["value"]) == 1.5 / 3


def test_steps_are_compared_as_in_table_15(run) -> None:
    judged(run, [0.0] * 6, system="vanilla")
    judged(run, [0.5] * 6, system="routing")
    finish(run)
    rows = rows_of(15, run.folder)
    step = found(rows, "ours: small, judge:strict:gallery, by question", comparison="routing")
    assert (float(step["delta"]["value"]), float(step["low"]["value"])) == (0.5, 0.5)
    less = found(rows, "difference", comparison="routing")
    assert float(less["delta"]["value"]) == pytest.approx(0.5 - 0.009)


def test_the_papers_cases_are_looked_up_in_the_run(run) -> None:
    id_ = "AI_Robotics_Automation_Future_Tech#55"
    for system, answer in (("no-hypo-caption", "none"), ("v-mem", "D12:IMG_002")):
        record = run.record(0, question_id=id_, answer=answer, reference="D12:IMG_002")
        run.add([record], system=system)
    finish(run)
    ours = found(rows_of(16, run.folder), f"ours: small, {id_}")
    values = {column: row["value"] for column, row in ours.items()}
    assert values == {"reference": "D12:IMG_002", "without": "none", "with": "D12:IMG_002"}


def test_table_5_equals_the_papers(run) -> None:
    finish(run)
    rows = rows_of(5, run.folder)
    differences = [row for row in rows if row["column"] == "difference"]
    assert len(differences) == 14
    assert {row["value"] for row in differences} == {"none"}


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the benchmarks beside the repository")
def test_table_6_equals_the_papers(run) -> None:
    finish(run)
    data = {name: SHARED / name for name in ("mem-gallery", "locomo")}
    rows = rows_of(6, run.folder, data=data)
    differences = [row for row in rows if row["column"] == "difference"]
    assert len(differences) == 14 + 2 * 3
    assert {row["value"] for row in differences} == {"none"}


def test_table_6_shows_what_a_part_of_a_benchmark_lacks(run) -> None:
    judged(run, [1.0, 1.0])
    finish(run)
    rows = rows_of(6, run.folder)
    asked = found(rows, "value", benchmark="mem-gallery", category="FR")
    assert (asked["ours"]["value"], asked["difference"]["value"]) == ("2", str(2 - 219))
    assert found(rows, "value", category="temporal")["ours"]["mark"] == "not counted"


def test_several_runs_make_one_set_and_the_first_holds(run, make_run) -> None:
    judged(run, [1.0, 1.0])
    finish(run)
    other = make_run("other")
    judged(other, [0.0, 0.0])
    judged(other, [0.5, 0.5], system="vanilla")
    finish(other)
    rows = rows_of(3, run.folder, other.folder)
    assert found(rows, "ours", configuration="generated anchor")["overall"]["value"] == "1.0"
    assert found(rows, "ours", configuration="vanilla")["overall"]["value"] == "0.5"
    text = (run.folder.path / "tables" / "tables.md").read_text(encoding="utf-8")
    assert "mem-gallery.v-mem.small of made is in an earlier run too" in text


def test_captions_say_what_made_our_figures(run) -> None:
    judged(run, [1.0, 1.0])
    encoders = {"text": {"kind": "minilm"}, "image": {"kind": "efficientnet"}}
    settings = {"v-mem": {"encoders": encoders, "answer": {"query_caption": "dataset"}}}
    finish(run, settings=settings)
    merged = read_statistics([run.folder])
    grid = make_grids([run.folder], merged, {})[0]
    caption = " ".join(grid.caption)
    for said in (
        "v-mem (paper, efficientnet for image, minilm for text",
        "attached pictures described by the dataset",
        "small (small-model-1)",
        "strict (judge-model-1)",
        "mem-gallery.gallery in our wording (abababab)",
        "mem-gallery (cdcdcdcd, 2 dialogues, 2 questions)",
        "seed 7",
    ):
        assert said in caption


def test_all_files_are_the_same_bytes_twice(run) -> None:
    judged(run, [1.0, 0.5, 0.0])
    judged(run, [0.0, 0.5, 0.0], system="vanilla")
    finish(run)
    first = {p.name: p.read_bytes() for p in write_tables([run.folder], run.folder.path / "a")}
    finish(run)
    second = {p.name: p.read_bytes() for p in write_tables([run.folder], run.folder.path / "b")}
    assert first == second
    assert {
        f"table-{n:02}{e}" for n in range(1, 17) for e in (".md", ".csv", ".tex")
    } < first.keys()


def test_results_lead_with_validity_and_have_every_cell(run) -> None:
    judged(run, [1.0, None])
    run.add([run.record(n, ranked_rounds=()) for n in range(2)], system="no-memory")
    finish(run)
    write_tables([run.folder], run.folder.path / "tables")
    rows = read_csv(run.folder.path / "tables" / "results-mem-gallery.csv")
    assert found(rows, "ours", system="V-Mem")["valid"]["mark"] == "invalid (1 failed)"
    none = found(rows, "ours", system="No memory")
    assert none["valid"]["value"] == "yes"
    assert (none["recall@12"]["mark"], none["f1"]["value"]) == ("ranks nothing", "1.0")


def test_a_folder_without_statistics_is_refused(run) -> None:
    with pytest.raises(InputError, match="run the statistics stage"):
        write_tables([run.folder], run.folder.path / "tables")


def test_how_judges_hold_is_shown_with_what_they_could_not_judge(run) -> None:
    record = run.record(0)
    lines = [run.judgement(record, 1.0, repetition=n) for n in range(2)]
    run.add([record], {"strict.gallery": lines})
    planted = run.folder.planted("mem-gallery.strict.gallery")
    scores = {"a~vague": 0.0, "b~vague": 1.0, "a~specific": None}
    for id_, score in scores.items():
        planted.append(run.judgement(record, score, question_id=id_))
    planted.finish([(id_, 0) for id_ in scores])
    finish(run)
    write_tables([run.folder], run.folder.path / "tables")
    rows = read_csv(run.folder.path / "tables" / "judges.csv")
    vague = found(rows, "gallery", what="false accepts of vague answers")
    assert (vague["value"]["value"], vague["answers"]["value"]) == ("0.5", "2")
    specific = found(rows, "gallery", what="false accepts of specific answers")
    assert specific["value"]["mark"] == "none judged"
    assert specific["also"]["mark"] == "1 of both kinds could not be judged"
    spread = found(rows, "gallery", what="spread over repetitions, v-mem")
    assert spread["value"]["value"] == "0.0"


@pytest.mark.parametrize(("accepted", "named"), [(10, True), (6, False)])
def test_a_judge_that_accepts_wrong_answers_is_named_before_any_score(run, accepted, named) -> None:
    """Named where more than half is sure: 6 of 10 could be a judge that accepts 3 of 10."""
    record = run.record(0)
    run.add([record], {"strict.gallery": [run.judgement(record, 1.0)]})
    planted = run.folder.planted("mem-gallery.strict.gallery")
    ids = [f"q{n}~vague" for n in range(10)]
    for n, id_ in enumerate(ids):
        planted.append(run.judgement(record, float(n < accepted), question_id=id_))
    planted.finish([(id_, 0) for id_ in ids])
    finish(run)
    said = validity_of(read_statistics([run.folder])).as_markdown()
    sentence = "judge strict (gallery, mem-gallery) accepted 10 of 10 vague answers that are wrong"
    assert (sentence in said) is named


def test_where_wrong_answers_come_from_is_shown_by_category(run) -> None:
    judged(run, [0.0, 1.0], context_rounds=("r7",))
    finish(run)
    write_tables([run.folder], run.folder.path / "tables")
    rows = read_csv(run.folder.path / "tables" / "errors.csv")
    counts = found(rows, "strict (gallery)", category="FR")
    values = [counts[name]["value"] for name in ("wrong", "none", "all")]
    assert values == ["1", "1", "0"]


def test_a_model_that_cannot_see_leaves_a_value_and_its_mark(run) -> None:
    blind = ("image keywords off: small cannot see images",)
    run.add([run.record(0, category="VS", notes=blind), run.record(1, category="VS")])
    finish(run)
    evidence = found(rows_of(3, run.folder), "evidence R@12", configuration="generated anchor")[
        "VS"
    ]
    mark = "1 of 2 without the model that they call for"
    assert (evidence["value"], evidence["mark"]) == ("1.0", mark)
