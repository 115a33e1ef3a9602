"""Appends cut off by SIGKILL: what was acknowledged is there once, and can be found."""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from PIL import Image as Pillow

from vmem.bank import Bank
from vmem.config import Settings, replace
from vmem.rounds import exchange, to_units
from vmem.types import Image, Modality, Query, Round

MEMORY = "trip"


def fake_settings(home: Path) -> Settings:
    return replace(
        Settings(),
        store={"home": home},
        encoders={"text": {"kind": "fake"}, "image": {"kind": "fake"}},
        llm={"provider": "none"},
    )


def a_round(folder: Path, number: int) -> Round:
    """Round `r<number>`, the only one that says `word<number>`; every third shares a picture."""
    images = []
    if number % 3 == 2:
        path = folder / f"{number}.png"
        if not path.exists():
            Pillow.new("RGB", (16, 16), (number * 7 % 256, 99, number * 31 % 256)).save(path)
        images = [Image(id=f"IMG_{number}", uri=str(path), caption=f"shade {number}")]
    return exchange(
        f"r{number}", session="D1", time="2026-03-02", user=f"word{number} said", images=images
    )


# Appends round after round without end, and says the id of each once it is acknowledged.
WRITER = """
import itertools, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_append_kill import MEMORY, a_round, fake_settings
from vmem.bank import Bank

folder = Path(sys.argv[2])
with Bank(fake_settings(folder / "home")) as bank:
    for number in itertools.count(int(sys.argv[3])):
        round_ = a_round(folder, number)
        bank.append(MEMORY, [round_])
        print(round_.id, flush=True)
"""


def append_until_killed(folder: Path, start: int, acknowledged: int) -> list[str]:
    """The ids of the rounds that a writer acknowledged before it was killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, Path(__file__).parent, folder, str(start)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    ids = [process.stdout.readline().strip() for _ in range(acknowledged)]
    os.killpg(process.pid, signal.SIGKILL)
    ids += process.stdout.read().split()
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()
    return ids


def check(bank: Bank, acknowledged: list[str]) -> tuple[Round, ...]:
    """All that was acknowledged is there once, in order, and searched as the log says."""
    rounds = bank.rounds(MEMORY)
    counted = Counter(round_.id for round_ in rounds)
    assert {counted[id_] for id_ in acknowledged} == {1}
    assert set(counted.values()) == {1}
    assert [round_.position for round_ in rounds] == list(range(len(rounds)))
    assert [round_.id for round_ in rounds] == [f"r{n}" for n in range(len(rounds))]
    for round_ in rounds:
        word = f"word{round_.id.removeprefix('r')}"
        found = asyncio.run(bank.search(MEMORY, Query(text=word)))
        assert found.ranked[0].position == round_.position
    units = [unit for round_ in rounds for unit in to_units(round_, bank.settings.units)]
    pictures = [unit for unit in units if unit.modality is Modality.IMAGE]
    assert bank.store.count(bank.record.image_collection, MEMORY) == len(pictures)
    assert bank.store.count(bank.record.text_collection, MEMORY) == len(units) - len(pictures)
    info = bank.memories()[0]
    assert (info.rounds, info.indexed_version) == (len(rounds), info.version)
    return rounds


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (4, 9),
        pytest.param(1, 1, marks=pytest.mark.slow),
        pytest.param(12, 3, marks=pytest.mark.slow),
        pytest.param(40, 60, marks=pytest.mark.slow),
    ],
)
def test_a_writer_killed_twice_loses_nothing(tmp_path: Path, first: int, second: int) -> None:
    acknowledged = append_until_killed(tmp_path, 0, first)
    assert len(acknowledged) >= first
    # A writer that was killed repeats what it does not know to be there: no change, or new.
    acknowledged += append_until_killed(tmp_path, len(acknowledged), second)
    with Bank(fake_settings(tmp_path / "home")) as bank:
        rounds = check(bank, acknowledged)
        assert len(rounds) - len(acknowledged) <= 1, "at most the one that was under way"
        again = bank.append(MEMORY, [a_round(tmp_path, n) for n in range(len(rounds) + 1)])
        assert (len(again.added), again.unchanged) == (1, len(rounds))
        check(bank, [*acknowledged, f"r{len(rounds)}"])
