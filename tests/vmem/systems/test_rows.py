"""Rows of `configs/systems/`: each changes what it says, and has its place in the tables."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from vmem.config import CONFIGS, Settings, load_settings, replace
from vmem.errors import ConfigError
from vmem.systems.rows import StandsFor, lay_over, read_rows, row_named, row_settings
from vmem.types import Case, Signal

PUBLISHED: dict[str, Any] = yaml.safe_load((CONFIGS / "published.yaml").read_text(encoding="utf-8"))
TABLES: dict[int, dict[str, Any]] = {table["number"]: table for table in PUBLISHED["tables"]}
FIGURES: dict[str, dict[Any, Any]] = {
    figure["id"]: {str(key): value for key, value in figure["values"].items()}
    for figure in PUBLISHED["figures"]
}
ROWS = read_rows()
RUNTIME = load_settings("embedded")


def flat(values: Any, path: str = "") -> dict[str, Any]:
    if not isinstance(values, dict):
        return {path: values}
    pairs = (flat(value, f"{path}.{key}".strip(".")) for key, value in values.items())
    return {key: value for pair in pairs for key, value in pair.items()}


def differences(one: str, other: str) -> dict[str, tuple[Any, Any]]:
    before, after = (
        flat(row_settings(ROWS[name], RUNTIME).model_dump(exclude={"name"}))
        for name in (one, other)
    )
    assert before.keys() == after.keys()
    return {key: (before[key], after[key]) for key in before if before[key] != after[key]}


def matches(reference: StandsFor) -> list[tuple[Any, ...]]:
    """The cells of `published.yaml` that a reference names."""
    if reference.figure is not None:
        values = FIGURES[reference.figure]
        columns = values if reference.column is None else [reference.column]
        return [(reference.figure, column) for column in columns if column in values]
    assert reference.table is not None
    table = TABLES[reference.table]
    assert reference.row.keys() <= set(table["keys"])
    return [
        (reference.table, *(row[key] for key in table["keys"]), column)
        for row in table["rows"]
        if all(row[key] == value for key, value in reference.row.items())
        for column in table["columns"]
        if reference.column in (None, column)
    ]


@pytest.mark.parametrize(
    ("lower", "upper", "step"),
    [
        ("vanilla", "routing", {"retrieval.routing": ("uniform", "narrow")}),
        ("routing", "rounds", {"retrieval.level": ("unit", "round")}),
        (
            "rounds",
            "v-mem",
            {"retrieval.hypo_caption": (False, True), "retrieval.keywords": (False, True)},
        ),
    ],
)
def test_a_step_of_the_ladder_changes_what_it_names_and_nothing_else(
    lower: str, upper: str, step: dict[str, Any]
) -> None:
    assert differences(lower, upper) == step


@pytest.mark.parametrize("name", ["vanilla", "routing"])
def test_the_threefold_rows_change_the_budget_and_the_pool_that_fills_it(name: str) -> None:
    assert differences(name, f"{name}-threefold") == {
        "retrieval.unit_budget": (12, 3 * 12),
        "retrieval.pool": (20, 3 * 20),
    }


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        ("no-image-round-filter", "retrieval.filter_window", None),
        ("filter-window-0", "retrieval.filter_window", 0),
        ("filter-window-2", "retrieval.filter_window", 2),
        ("no-hypo-caption", "retrieval.hypo_caption", False),
        ("no-image-keywords", "retrieval.keywords", False),
        (
            "text-lane-for-images",
            "retrieval.signals.image+text->image",
            (Signal.TEXT_DENSE, Signal.TEXT_SPARSE, Signal.VISUAL),
        ),
        ("neighbours-tail", "retrieval.placement", "tail"),
        ("neighbours-none", "retrieval.placement", "none"),
        ("neighbours-interleave", "retrieval.placement", "interleave"),
        ("no-merging", "retrieval.merge_overlaps", False),
        ("no-folding", "units.fold_captions", False),
    ],
)
def test_a_toggle_changes_one_setting_of_v_mem(name: str, setting: str, value: Any) -> None:
    changed = differences("v-mem", name)
    assert changed.keys() == {setting}
    assert changed[setting][1] == value


def test_the_two_image_encoders_differ_in_the_encoder_alone() -> None:
    changed = differences("siglip", "dinov2")
    assert {key.rsplit(".", 1)[0] for key in changed} == {"encoders.image"}
    assert changed["encoders.image.kind"] == ("siglip", "dinov2")


def test_v_mem_has_the_retrieval_of_the_paper_on_the_encoders_and_lengths_of_the_run() -> None:
    paper, row = load_settings("paper"), row_settings(ROWS["v-mem"], RUNTIME)
    assert (row.retrieval, row.units) == (paper.retrieval, paper.units)
    assert (row.encoders, row.llm) == (RUNTIME.encoders, RUNTIME.llm)
    assert row.answer.max_tokens == RUNTIME.answer.max_tokens != paper.answer.max_tokens
    assert row.name == "v-mem"
    assert row_settings(ROWS["v-mem-tuned"], RUNTIME).retrieval == load_settings("tuned").retrieval


def test_a_row_takes_no_retrieval_setting_of_the_run() -> None:
    other = replace(RUNTIME, retrieval={"top_k": 3, "pool": None})
    assert row_settings(ROWS["v-mem"], other) == row_settings(ROWS["v-mem"], RUNTIME)


def test_every_place_that_a_row_stands_for_is_in_the_published_figures() -> None:
    references = [reference for row in ROWS.values() for reference in row.stands_for]
    assert len(references) > 40
    assert [reference for reference in references if not matches(reference)] == []


@pytest.mark.parametrize("table", [1, 2, 3, 4, 7, 8, 9, 10, 11, 12, 13, 14])
def test_every_cell_of_a_systems_table_has_one_row_that_stands_for_it(table: int) -> None:
    taken = Counter(
        cell
        for row in ROWS.values()
        for reference in row.stands_for
        if reference.table == table
        for cell in matches(reference)
    )
    cells = {cell for cell in matches(StandsFor(table=table)) if cell[-1] != "delta"}
    assert {cell for cell in taken if cell[-1] != "delta"} == cells
    assert set(taken.values()) == {1}


def test_only_rows_that_say_so_are_oracle_runs() -> None:
    assert [name for name, row in ROWS.items() if row.oracle] == ["omni-released"]


def test_changes_reach_any_depth_and_leave_the_rest() -> None:
    settings = replace(Settings(), retrieval={"fusion": {"rrf_k": 7}})
    changed = lay_over(settings, {"retrieval": {"fusion": {"method": "convex"}}})
    assert (changed.retrieval.fusion.rrf_k, changed.retrieval.fusion.method) == (7, "convex")
    one_case = {"retrieval": {"signals": {"text->text": ["text_sparse"]}}}
    signals = lay_over(settings, one_case).retrieval.signals
    assert signals[Case.TEXT_TO_TEXT] == (Signal.TEXT_SPARSE,)
    assert signals[Case.TEXT_TO_IMAGE] == settings.retrieval.signals[Case.TEXT_TO_IMAGE]


def write(folder: Path, *lines: str, name: str = "rows.yaml") -> Path:
    (folder / name).write_text("systems:\n" + "\n".join(lines), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("  - {name: a, title: A, colour: red}", r"rows\.yaml: .*systems\.0\.colour"),
        ("  - {name: a, title: A, kind: magic}", r"rows\.yaml: setting systems\.0\.kind"),
        ("  - {name: a, title: A, changes: {llm: {}}}", r"rows\.yaml: setting systems\.0\.changes"),
        ("  - {name: a, title: A, stands_for: [{row: {}}]}", r"name a table or a figure"),
        ("  - {name: a b, title: A}", r"rows\.yaml: setting systems\.0\.name"),
        ("  - {name: a, title: A}\n  - {name: a, title: B}", r"'a' is there already"),
    ],
)
def test_a_row_that_is_no_row_is_refused(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_rows(write(tmp_path, line))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ("{retrieval: {colour: 1}}", r"system 'a': there is no setting retrieval\.colour"),
        ("{retrieval: {top_k: 0}}", r"system 'a': setting retrieval\.top_k"),
        ("{retrieval: {fusion: {rrf_k: x}}}", r"system 'a': setting retrieval\.fusion\.rrf_k"),
    ],
)
def test_a_change_that_fits_no_setting_is_refused(tmp_path: Path, changes: str, said: str) -> None:
    row = read_rows(write(tmp_path, f"  - {{name: a, title: A, changes: {changes}}}"))["a"]
    with pytest.raises(ConfigError, match=said):
        row_settings(row, RUNTIME)


def test_a_section_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match="no section colours"):
        lay_over(Settings(), {"colours": {}})


def test_an_unknown_name_is_refused_with_those_known() -> None:
    with pytest.raises(ConfigError, match=r"no system is named 'v-men'; known: .*v-mem"):
        row_named("v-men")
    assert row_named("bm25") == ROWS["bm25"]
