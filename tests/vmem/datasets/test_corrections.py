"""Corrected gold answers: laid over, the original kept, and every fault named."""

import json
from pathlib import Path

import pytest

from vmem.datasets.corrections import read_overlay
from vmem.datasets.sample import read_sample
from vmem.errors import DataError

SAMPLE = read_sample()


def line(question_id: str = "sample#0", reference: str = "Ember", **more: object) -> str:
    return json.dumps({"question_id": question_id, "reference": reference, "why": "D3:6"} | more)


def overlay(folder: Path, *lines: str) -> Path:
    path = folder / "corrected.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_references_change_and_the_original_stays(tmp_path: Path) -> None:
    path = overlay(tmp_path, line(), "", line("sample#3", "Friday"))
    gold = read_overlay(path, SAMPLE)
    assert gold.original is SAMPLE
    changed = {
        after.id: (before.reference, after.reference)
        for before, after in zip(SAMPLE.questions, gold.corrected.questions, strict=True)
        if before != after
    }
    assert changed == {
        "sample#0": ("Lamplighter", "Ember"),
        "sample#3": ("Thursday 26 March 2026, half past seven", "Friday"),
    }
    assert gold.corrected.dialogues is SAMPLE.dialogues
    assert list(gold.corrections) == ["sample#0", "sample#3"]
    assert gold.corrections["sample#0"].why == "D3:6"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (("{",), r"corrected\.jsonl line 1 is not JSON"),
        ((line(), "[]"), r"corrected\.jsonl line 2"),
        (('{"question_id": "sample#0", "why": "x"}',), r"line 1: reference is missing"),
        ((line(reference="  "),), r"line 1: reference"),
        ((line(why=""),), r"line 1: why"),
        ((line(reason="x"),), r"line 1: reason is no field of this format"),
        ((line(), line()), r"line 2: sample#0 is corrected twice"),
        (("",), r"corrected\.jsonl holds no correction"),
    ],
)
def test_a_line_that_is_no_correction_is_named(
    tmp_path: Path, lines: tuple[str, ...], said: str
) -> None:
    with pytest.raises(DataError, match=said):
        read_overlay(overlay(tmp_path, *lines), SAMPLE)


def test_unknown_questions_are_counted_and_named(tmp_path: Path) -> None:
    unknown = [f"sample#{number}" for number in range(900, 907)]
    path = overlay(tmp_path, line(), *(line(id_) for id_ in unknown))
    with pytest.raises(DataError, match=r"7 of 8 .* sample does not have: ") as raised:
        read_overlay(path, SAMPLE)
    assert str(raised.value).endswith(f"{', '.join(unknown[:5])}, ...")


def test_a_correction_that_changes_nothing_is_named(tmp_path: Path) -> None:
    path = overlay(tmp_path, line(), line("sample#10", " Yes "))
    with pytest.raises(DataError, match=r"sample#10 has the reference 'Yes' already"):
        read_overlay(path, SAMPLE)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.jsonl does not exist"):
        read_overlay(tmp_path / "none.jsonl", SAMPLE)
