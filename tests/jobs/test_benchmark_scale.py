"""The scale benchmark on a few rounds: what it counts, not how long it takes."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from jobs.benchmark_scale import app, check
from jobs.scale.data import (
    SyntheticImageEncoder,
    SyntheticTextEncoder,
    questions,
    synthetic_rounds,
)
from jobs.scale.stages import HOT, WARM_ROUNDS
from vmem.bank_index import indexed_units
from vmem.config import UnitSettings
from vmem.errors import InputError
from vmem.types import Image, Modality

STORED = [Image(id="a", uri="/a.png", digest="a" * 64)]


def test_turns_are_as_long_as_locomos_and_the_same_every_time() -> None:
    rounds = synthetic_rounds(0, 0, 0, 2_000, STORED, 0.1)
    lengths = [len(turn.text) for round_ in rounds for turn in round_.turns]
    # LoCoMo's 5,882 turns have 124 characters at the mean, with a standard deviation of 69
    assert np.mean(lengths) == pytest.approx(124, rel=0.1)
    assert np.std(lengths) == pytest.approx(69, rel=0.15)
    assert sum(len(round_.images) for round_ in rounds) == pytest.approx(200, rel=0.25)
    assert [round_.position for round_ in rounds] == list(range(2_000))
    assert rounds == synthetic_rounds(0, 0, 0, 2_000, STORED, 0.1)
    assert rounds[0].turns != synthetic_rounds(0, 1, 0, 1, STORED, 0.1)[0].turns
    assert questions(0, 0, 2) == questions(0, 0, 2)


def test_synthetic_vectors_are_of_length_1_and_one_for_each_text() -> None:
    encoder = SyntheticTextEncoder()
    vectors_ND = encoder.encode(["one", "two", "one"])
    assert vectors_ND.shape == (3, 384)
    assert np.linalg.norm(vectors_ND, axis=1) == pytest.approx([1, 1, 1])
    assert (vectors_ND[0] == vectors_ND[2]).all()
    assert abs(float(vectors_ND[0] @ vectors_ND[1])) < 0.5
    assert SyntheticImageEncoder().width == 768


def test_a_run_counts_every_round_and_unit_and_is_written(tmp_path: Path) -> None:
    out, memories, rounds = tmp_path / "out.jsonl", 2, 30
    done = CliRunner().invoke(
        app,
        [
            *(str(memories * rounds), "--memory-rounds", str(rounds)),
            *("--store", "lite", "--keep", str(tmp_path / "data"), "--out", str(out)),
        ],
    )
    assert done.exit_code == 0, done.output
    assert "encoding is not measured" in done.output
    (line,) = out.read_text(encoding="utf-8").splitlines()
    found = json.loads(line)
    made = [
        *(r for n in range(memories) for r in synthetic_rounds(0, n, 0, rounds, STORED, 0.1)),
        *synthetic_rounds(0, 2**21, 0, WARM_ROUNDS, STORED, 0.5),
    ]
    units = indexed_units(made, UnitSettings(), sees=True)
    text = sum(unit.modality is Modality.TEXT for unit in units)
    built, searched = found["built"], found["searched"]
    assert built["rounds"] == memories * rounds + WARM_ROUNDS == len(made)
    assert (built["text_units"], built["image_units"]) == (text, len(units) - text)
    assert searched["held"] == memories + 1
    assert searched["held_units"] == len(units)
    assert (len(searched["cold"]), len(searched["hot"])) == (memories, HOT)
    assert found["log_bytes"] > sum(len(t.text) for r in made for t in r.turns)
    assert found["disk_bytes"]["rows"] > text * 384 * 4


BAD = [
    (([0], 0, "lite", 0.1), "rounds 0: give 1 to 10,000,000"),
    (([10_000_001], 0, "lite", 0.1), "rounds 10,000,001: give 1 to 10,000,000"),
    (([100], 30, "lite", 0.1), "--memory-rounds 30 does not divide 100 rounds"),
    (([100], -1, "lite", 0.1), "--memory-rounds -1 does not divide 100 rounds"),
    (([100], 0, "cluster", 0.1), "--store cluster: give server, lite or none"),
    (([100], 10, "none", 0.1), "--store none holds one memory: give --memory-rounds 0"),
    (([100], 0, "lite", 2.0), "--pictures 2: give 0 to 1 a round"),
]


@pytest.mark.parametrize(("given", "said"), BAD, ids=[said for _, said in BAD])
def test_what_cannot_be_measured_is_one_sentence(
    given: tuple[list[int], int, str, float], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        check(*given)


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    keep = str(tmp_path / "file" / "data")
    done = CliRunner().invoke(app, ["10", "--store", "lite", "--keep", keep])
    assert isinstance(done.exception, InputError)
    assert str(done.exception) == f"--keep {keep} cannot be used: Not a directory"
