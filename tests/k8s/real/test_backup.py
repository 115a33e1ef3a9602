"""A memory that Milvus holds: written out, wiped, read back, and found again as before."""

import asyncio
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from vmem.bank import Bank
from vmem.config import Settings, replace
from vmem.datasets.jsonl import read_rounds
from vmem.export import export_memory, import_memory
from vmem.stores.milvus import MilvusStore
from vmem.types import Query

pytestmark = [pytest.mark.k8s, pytest.mark.slow, pytest.mark.timeout(1200)]

SAMPLE = Path(__file__).parents[3] / "vmem" / "datasets" / "sample" / "rounds.jsonl"
QUESTIONS = (
    "How much is the rent?",
    "Who bakes?",
    "Which picture shows the front of the shop?",
    "When does the café open?",
    "What did the landlady ask for?",
)
MEMORY = "trip"


def _settings(home: Path, milvus: str, database: str) -> Settings:
    return replace(
        Settings(),
        store={"home": home, "bank": "kept", "milvus_uri": milvus, "database_url": database},
        llm={"provider": "none"},
    )


def _found(bank: Bank, exact: bool) -> list[list[tuple[str, float]]]:
    """Rounds and scores of each question; from Milvus' own search where it is not exact."""
    assert (bank.settings.store.exact_limit > 0) == exact
    results = [asyncio.run(bank.search(MEMORY, Query(text=each))) for each in QUESTIONS]
    ids = [round_.id for round_ in bank.rounds(MEMORY)]
    return [[(ids[hit.position], round(hit.score, 9)) for hit in one.ranked] for one in results]


def _wipe(milvus: str) -> None:
    """All collections of the bank, as a lost volume takes them."""
    store = MilvusStore(milvus)
    names = [name for name in store.collections() if name.startswith("kept_")]
    assert names
    for name in names:
        store.drop(name)
    store.close()


@pytest.mark.parametrize("exact_limit", [50_000, 0], ids=["in process", "by Milvus"])
def test_export_wipe_import(tmp_path: Path, milvus_server: str, exact_limit: int) -> None:
    settings = _settings(tmp_path / "home", milvus_server, f"sqlite:///{tmp_path}/log.sqlite3")
    settings = replace(settings, store={"exact_limit": exact_limit})
    (dialogue,) = read_rounds(SAMPLE)
    with Bank(settings) as bank:
        bank.append(MEMORY, dialogue.rounds)
        before = _found(bank, exact_limit > 0)
        assert export_memory(bank, MEMORY, tmp_path / "export") == len(dialogue.rounds)
    _wipe(milvus_server)
    shutil.rmtree(tmp_path / "home")
    (tmp_path / "log.sqlite3").unlink()
    with Bank(settings) as bank:
        assert bank.memories() == []
        assert len(import_memory(bank, MEMORY, tmp_path / "export").added) == len(dialogue.rounds)
        after = _found(bank, exact_limit > 0)
        bank.delete(MEMORY)
    _wipe(milvus_server)
    assert after == before
    assert all(before)


def test_a_dump_of_the_database_brings_a_memory_back(
    tmp_path: Path, milvus_server: str, postgres_url: str
) -> None:
    """What README.md tells to do: pg_dump and the folder of files; Milvus as it was."""
    settings = _settings(tmp_path / "home", milvus_server, postgres_url)
    (dialogue,) = read_rounds(SAMPLE)
    with Bank(settings) as bank:
        bank.append(MEMORY, dialogue.rounds)
        before = _found(bank, exact=True)
    url = sa.make_url(postgres_url)
    access = ["-h", str(url.query["host"]), "-U", "vmem"]
    dump = tmp_path / "vmem.dump"
    _run("pg_dump", *access, "-Fc", "-f", dump, url.database)
    shutil.copytree(tmp_path / "home", tmp_path / "files")
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("DROP SCHEMA public CASCADE"))
        connection.execute(sa.text("CREATE SCHEMA public"))
    engine.dispose()
    shutil.rmtree(tmp_path / "home")
    _run("pg_restore", *access, "-d", url.database, "--clean", "--if-exists", dump)
    shutil.copytree(tmp_path / "files", tmp_path / "home")
    with Bank(settings) as bank:
        assert _found(bank, exact=True) == before
    _wipe(milvus_server)


def _run(program: str, *words: Any) -> None:
    found: Sequence[Path] = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{program}"))
    path = str(found[-1]) if found else shutil.which(program)
    if path is None:
        pytest.skip(f"PostgreSQL's {program} is missing: apt-get install postgresql")
    done = subprocess.run([path, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
