"""What only Milvus Lite does: one process a folder, one writer at a time, a disk that fills up."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from vmem.errors import StoreBusyError, StoreError
from vmem.stores.milvus import MilvusStore, UnitRow
from vmem.types import UnitKind

ROOT = Path(__file__).parents[3]


def unit_row(position: int, dialogue_id: str = "d", text: str = "text") -> UnitRow:
    return UnitRow(
        id=f"r{position}/text/0",
        dialogue_id=dialogue_id,
        round=position,
        session="s1",
        time="2023-05-08",
        kind=UnitKind.TEXT,
        source_id="D1:1",
        image_uri="",
        digest="digest",
        text=text,
        vector=np.ones(4, dtype=np.float32),
    )


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "new" / "units.db")


@pytest.fixture
def store(folder: str) -> Iterator[MilvusStore]:
    store = MilvusStore(folder)
    store.create("units", 4)
    yield store
    store.close()


def in_another_process(code: str, *arguments: str) -> list[str]:
    """The lines that code prints in a process of its own, with this module's names."""
    prelude = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
    command = [sys.executable, "-c", f"{prelude}from {Path(__file__).stem} import *\n{code}"]
    done = subprocess.run(
        [*command, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


OPEN = """
try:
    store = MilvusStore(sys.argv[1])
    print(store.count("units"))
    store.close()
except StoreError as error:
    print(type(error).__name__, error)
"""


def test_another_process_is_told_that_the_folder_is_taken(store: MilvusStore, folder: str) -> None:
    store.upsert("units", [unit_row(0)])
    [told] = in_another_process(OPEN, folder)
    assert told.startswith(f"StoreBusyError {folder} is in use by another process")
    store.close()
    assert in_another_process(OPEN, folder) == ["1"]


def test_this_process_is_told_that_another_has_the_folder(folder: str) -> None:
    holder = """
store = MilvusStore(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
"""
    prelude = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
    code = f"{prelude}from {Path(__file__).stem} import *\n{holder}"
    with subprocess.Popen(
        [sys.executable, "-c", code, folder],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        with pytest.raises(StoreBusyError, match="milvus-lite server"):
            MilvusStore(folder)
        process.communicate("")
    MilvusStore(folder).close()


def test_two_stores_of_one_process_share_the_folder(store: MilvusStore, folder: str) -> None:
    second = MilvusStore(folder)
    second.upsert("units", [unit_row(0)])
    second.close()
    second.close()
    assert store.count("units") == 1


def test_rows_outlive_the_process(store: MilvusStore, folder: str) -> None:
    store.upsert("units", [unit_row(position) for position in range(3)])
    store.switch_alias("live", "units")
    store.close()
    again = MilvusStore(folder)
    assert again.alias_target("live") == "units"
    assert [row.round for row in again.fetch("live", "d")] == [0, 1, 2]
    again.close()


def test_threads_that_write_at_once_lose_nothing(store: MilvusStore, folder: str) -> None:
    def write(name: str) -> None:
        for start in range(0, 100, 10):
            store.upsert("units", [unit_row(n, name) for n in range(start, start + 10)])
            store.flush("units")

    _at_once([lambda name=f"d{n}": write(name) for n in range(4)])
    store.close()
    again = MilvusStore(folder)
    assert {f"d{n}": again.count("units", f"d{n}") for n in range(4)} == {
        f"d{n}": 100 for n in range(4)
    }
    again.close()


def test_a_full_disk_is_told_and_loses_no_row_that_was_written(folder: str) -> None:
    fill = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = MilvusStore(sys.argv[1])
store.create("units", 4)
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, resource.RLIM_INFINITY))
for position in range(10):
    try:
        store.upsert("units", [unit_row(position, text="x" * 20_000)])
        print(position)
    except StoreError as error:
        print(type(error).__name__, error)
        break
try:
    store.flush("units")
except StoreError as error:
    print(type(error).__name__, error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
store.upsert("units", [unit_row(100)])
print(100)
store.close()
"""
    lines = in_another_process(fill, folder)
    assert [line for line in lines if not line.isdigit()] == [
        f"StoreError Milvus at {folder} could not write 1 rows to units: [Errno 27] File too large",
        f"StoreError Milvus at {folder} could not flush units: [Errno 27] File too large",
    ]
    written = [int(line) for line in lines if line.isdigit()]
    assert len(written) > 1
    again = MilvusStore(folder)
    assert [row.round for row in again.fetch("units", "d")] == written
    again.close()


def test_a_damaged_folder_is_named(store: MilvusStore, folder: str) -> None:
    store.close()
    for manifest in Path(folder).rglob("manifest.json*"):
        manifest.write_text("{")
    again = MilvusStore(folder)
    with pytest.raises(StoreError, match=f"Milvus at {folder} could not describe units"):
        again.fetch("units", "d")
    again.close()


def test_a_file_in_the_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "units.db").write_text("")
    with pytest.raises(StoreError, match=r"units\.db cannot be opened as a Milvus Lite folder"):
        MilvusStore(str(tmp_path / "units.db"))


def _at_once(tasks: list[Callable[[], None]]) -> None:
    failures: list[BaseException] = []

    def run(task: Callable[[], None]) -> None:
        try:
            task()
        except StoreError as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
