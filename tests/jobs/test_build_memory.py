"""The build on a real Ray and Milvus Lite; encoders are fakes that say so."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace as with_
from pathlib import Path

import pytest
from PIL import Image as Pillow

from jobs.build_memory import build_bank
from vmem.bank import Bank
from vmem.config import Settings, replace
from vmem.errors import DataError, ImageError, StoreError
from vmem.types import Dialogue, Image, Query, Round, Turn

pytestmark = pytest.mark.usefixtures("local_ray")


def fake_settings(home: Path) -> Settings:
    return replace(
        Settings(),
        store={"home": home, "bank": "demo"},
        encoders={"text": {"kind": "fake"}, "image": {"kind": "fake"}},
        llm={"provider": "none"},
        build={"batch_rows": 8, "text_actors": 2},
    )


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[Bank]:
    with Bank(fake_settings(tmp_path / "home")) as opened:
        yield opened


def a_dialogue(folder: Path, name: str, rounds: int = 12) -> Dialogue:
    images = {}
    for number in (3, 7):
        path = folder / f"{name}-{number}.png"
        Pillow.new("RGB", (24, 24), (number * 30, 40, 90)).save(path)
        images[number] = (Image(id=f"IMG_{number}", uri=str(path), caption=f"colour {number}"),)
    return Dialogue(
        id=name,
        rounds=tuple(
            Round(
                id=f"r{n}",
                position=n,
                session="D1",
                time="2026-03-02",
                turns=(
                    Turn(
                        source_id=f"r{n}",
                        speaker="user",
                        text=f"{name} says word{n}",
                        images=images.get(n, ()),
                    ),
                    Turn(source_id=f"r{n}", speaker="assistant", text=f"noted {n}"),
                ),
            )
            for n in range(rounds)
        ),
    )


def first(bank: Bank, memory: str, text: str) -> int:
    found = asyncio.run(bank.search(memory, Query(text=text)))
    return found.ranked[0].position


def test_a_bank_from_its_first_build_to_its_second(bank: Bank, tmp_path: Path) -> None:
    dialogues = [a_dialogue(tmp_path, "a"), a_dialogue(tmp_path, "b", rounds=5)]
    report = build_bank(bank, dialogues)
    assert (report.dialogues, report.rounds) == (2, 17)
    assert (report.text_units, report.image_units) == (2 * 17 + 3, 3)
    assert (report.encoded, report.kept, report.llm_tokens) == (2 * 17 + 3 + 3, 0, 0)
    assert bank.store.count(bank.record.text_collection) == report.text_units
    assert bank.store.count(bank.record.image_collection) == report.image_units
    assert first(bank, "a", "word9") == 9
    assert [info.id for info in bank.memories()] == ["a", "b"]

    old = bank.store.collections()
    again = build_bank(bank, dialogues)
    assert again.unchanged
    assert (again.encoded, again.kept) == (0, 0)
    assert bank.store.collections() == old

    appended = with_(dialogues[0].rounds[0], id="new", position=12)
    bank.append("a", [appended])
    with pytest.raises(StoreError, match=r"1 appended rounds.*new of memory a"):
        build_bank(bank, dialogues)
    assert bank.memories()[0].rounds == 13

    whole = with_(dialogues[0], rounds=(*dialogues[0].rounds, appended))
    assert build_bank(bank, [whole]).rounds == 13
    assert [info.id for info in bank.memories()] == ["a"]
    assert len(bank.store.collections()) == len(old)
    assert not set(bank.store.collections()) & set(old)
    for kind in ("text", "image"):
        current = bank.store.alias_target(f"demo_{kind}_current")
        assert current == getattr(bank.record, f"{kind}_collection")


@pytest.mark.parametrize("without", ["", "r1"])
def test_a_bank_with_erased_rounds_is_not_built_into(
    bank: Bank, tmp_path: Path, without: str
) -> None:
    dialogue = a_dialogue(tmp_path, "a", rounds=3)
    bank.append("a", dialogue.rounds)
    bank.erase_round("a", "r1")
    rounds = [r for r in dialogue.rounds if r.id != without]
    again = with_(dialogue, rounds=tuple(with_(r, position=n) for n, r in enumerate(rounds)))
    told = r"^1 rounds of memory a were erased from bank demo, the first r1, .*into another bank"
    with pytest.raises(StoreError, match=told):
        build_bank(bank, [again])
    assert [bool(round_.turns) for round_ in bank.rounds("a")] == [True, False, True]


def test_two_rounds_of_one_id_stop_the_build_at_once(bank: Bank, tmp_path: Path) -> None:
    dialogue = a_dialogue(tmp_path, "a", rounds=3)
    twice = with_(dialogue.rounds[2], id="r0")
    with pytest.raises(DataError, match="r0"):
        build_bank(bank, [with_(dialogue, rounds=(*dialogue.rounds[:2], twice))])
    assert bank.memories() == []


def test_a_picture_that_is_none_stops_the_build_before_anything_is_written(
    bank: Bank, tmp_path: Path
) -> None:
    broken = a_dialogue(tmp_path, "b")
    (tmp_path / "b-3.png").write_text("no picture")
    with pytest.raises(ImageError, match=r"b-3\.png"):
        build_bank(bank, [broken])
    assert bank.memories() == []
    assert {bank.store.count(name) for name in bank.store.collections()} == {0}


def test_a_picture_lost_on_the_way_is_an_error_that_names_it(bank: Bank, tmp_path: Path) -> None:
    dialogue = a_dialogue(tmp_path, "a")
    digest, uri = bank.media.put((tmp_path / "a-3.png").read_bytes())
    Path(uri).write_bytes(b"gone wrong")
    turn = dialogue.rounds[3].turns[0]
    image = with_(turn.images[0], uri=uri, digest=digest)
    damaged = with_(dialogue.rounds[3], turns=(with_(turn, images=(image,)),))
    rounds = (*dialogue.rounds[:3], damaged, *dialogue.rounds[4:])
    with pytest.raises(ImageError, match=r"r3/image/1.*the bank stays as it was"):
        build_bank(bank, [with_(dialogue, rounds=rounds)])
    assert bank.memories() == []


BUILD = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from test_build_memory import a_dialogue, fake_settings
from vmem.bank import Bank
from jobs.build_memory import build_bank

def progress(stage, done, total):
    print(stage, done, total, flush=True)

folder = Path(sys.argv[1])
with Bank(fake_settings(folder / "home")) as bank:
    build_bank(bank, [a_dialogue(folder, "a", rounds=int(sys.argv[2]))], progress)
"""


@pytest.mark.parametrize(
    "die_after",
    [
        pytest.param("media 2 2", marks=pytest.mark.slow),
        pytest.param("text units 0", marks=pytest.mark.slow),
        "text units 24",
        pytest.param("image units 0", marks=pytest.mark.slow),
    ],
)
def test_a_build_killed_at_any_moment_ends_whole_when_run_again(
    tmp_path: Path, die_after: str
) -> None:
    rounds = 40
    process = subprocess.Popen(
        [sys.executable, "-c", BUILD, str(tmp_path), str(rounds), str(Path(__file__).parent)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(die_after):
            break
    else:
        pytest.fail(f"the build ended before {die_after!r}")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    time.sleep(0.5)  # the kernel drops the store's lock with the last process of the group
    dialogue = a_dialogue(tmp_path, "a", rounds=rounds)
    with Bank(fake_settings(tmp_path / "home")) as bank:
        assert bank.memories() == []
        report = build_bank(bank, [dialogue])
        assert report.encoded + report.kept == report.text_units + report.image_units
        if die_after == "text units 24":
            assert report.kept >= 24
        keys = bank.store.ids(bank.record.text_collection)
        assert len(keys) == report.text_units == 2 * rounds + 2
        assert bank.store.count(bank.record.image_collection) == 2
        assert first(bank, "a", "word31") == 31
        assert len(bank.store.collections()) == 2
