"""What only Milvus Lite does: one process a folder, one writer at a time, a disk that fills up."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from vmem.errors import StoreBusyError, StoreError
from vmem.stores.milvus import Hit, MilvusStore, UnitRow
from vmem.types import UnitKind

AtOnce = Callable[[list[Callable[[], object]]], None]
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


PRELUDE = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from {Path(__file__).stem} import *
"""
TAKES_TURNS = f"""{PRELUDE}
try:
    MilvusStore(sys.argv[1])
except StoreBusyError as error:
    print(error, flush=True)
sys.stdin.readline()
store = MilvusStore(sys.argv[1])
print(store.count("units"), flush=True)
sys.stdin.readline()
store.close()
"""
FILLS_THE_DISK = f"""{PRELUDE}
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
        print(error)
        break
try:
    store.flush("units")
except StoreError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
store.upsert("units", [unit_row(100)])
print(100)
store.close()
"""


def test_processes_take_turns_and_are_told_so(store: MilvusStore, folder: str) -> None:
    store.upsert("units", [unit_row(0)])
    with subprocess.Popen(
        [sys.executable, "-c", TAKES_TURNS, folder],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        told = other.stdout.readline()
        assert told.startswith(f"{folder} is in use by another process; end it, or share")
        store.close()
        print(file=other.stdin, flush=True)
        assert other.stdout.readline() == "1\n"
        with pytest.raises(StoreBusyError, match="`milvus-lite server`"):
            MilvusStore(folder)
        assert other.communicate("\n") == ("", "")
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


def test_threads_that_write_at_once_lose_nothing(
    store: MilvusStore, folder: str, at_once: AtOnce
) -> None:
    def write(name: str) -> None:
        for start in range(0, 100, 10):
            store.upsert("units", [unit_row(n, name) for n in range(start, start + 10)])
            store.flush("units")

    at_once([partial(write, f"d{n}") for n in range(4)])
    store.close()
    again = MilvusStore(folder)
    assert {f"d{n}": again.count("units", f"d{n}") for n in range(4)} == {
        f"d{n}": 100 for n in range(4)
    }
    again.close()


def test_a_full_disk_is_told_and_loses_no_row_that_was_written(folder: str) -> None:
    filled = subprocess.run(
        [sys.executable, "-c", FILLS_THE_DISK, folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = filled.stdout.splitlines()
    assert [line for line in lines if not line.isdigit()] == [
        f"Milvus at {folder} could not write 1 rows to units: [Errno 27] File too large",
        f"Milvus at {folder} could not flush units: [Errno 27] File too large",
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


def test_a_server_that_comes_back_is_used_again(
    tmp_path: Path, start_milvus_lite: Callable[..., tuple[subprocess.Popen[bytes], str]]
) -> None:
    process, uri = start_milvus_lite(tmp_path)
    store = MilvusStore(uri, timeout_s=30)
    store.create("units", 4)
    store.upsert("units", [unit_row(0)])
    process.kill()
    process.wait()
    with pytest.raises(StoreError, match="could not search units: Fail connecting"):
        store.search("units", unit_row(0).vector, "d", limit=1)
    process, _ = start_milvus_lite(tmp_path, int(uri.rpartition(":")[2]))
    try:
        hits = _once_connected(lambda: store.search("units", unit_row(0).vector, "d", limit=1))
        assert [hit.position for hit in hits] == [0]
        store.close()
    finally:
        process.kill()
        process.wait()


@retry(retry=retry_if_exception_type(StoreError), stop=stop_after_delay(30), wait=wait_fixed(0.2))
def _once_connected(search: Callable[[], list[Hit]]) -> list[Hit]:
    return search()
