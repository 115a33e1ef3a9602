"""What the catalogue says, and what it keeps, when disks, files, servers and processes fail."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from vmem.config import UnitSettings
from vmem.errors import ConfigError, StoreError
from vmem.stores.catalogue import Bank, Catalogue
from vmem.types import Round, Turn

ROOT = Path(__file__).parents[3]
PASSWORD = "hunter2"

WRITER = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from {Path(__file__).stem} import BANK, Catalogue, a_round
catalogue = Catalogue(sys.argv[1])
catalogue.ensure_bank(BANK)
for n in range(int(sys.argv[2]), 10**6):
    catalogue.append("demo", "m", [a_round(f"r{{n}}"), a_round(f"r{{n}}b")])
    print(f"r{{n}} r{{n}}b", flush=True)
"""

BANK = Bank(
    name="demo",
    kind="served",
    text_encoder="t",
    text_width=4,
    image_encoder="none",
    image_width=0,
    text_collection="demo_text",
    image_collection="demo_image",
    units=UnitSettings(),
)


def a_round(name: str, text: str = "hello") -> Round:
    turn = Turn(source_id=name, speaker="Ann", text=text)
    return Round(id=name, position=0, session="s1", time="2023-05-08", turns=(turn,))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "catalogue.sqlite3"


@pytest.fixture
def catalogue(file: Path) -> Iterator[Catalogue]:
    catalogue = Catalogue(f"sqlite:///{file}")
    catalogue.ensure_bank(BANK)
    yield catalogue
    catalogue.close()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.services)])
def url(request: pytest.FixtureRequest, file: Path) -> str:
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    return f"sqlite:///{file}"


def test_a_writer_that_is_killed_loses_no_acknowledged_round(url: str) -> None:
    acknowledged: list[str] = []
    for kill in range(2):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, url, str(1000 * kill)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            for _ in range(20):
                acknowledged += process.stdout.readline().split()
            os.kill(process.pid, signal.SIGKILL)
            *whole, partial = process.stdout.read().split("\n")
            acknowledged += " ".join(whole).split()
            assert process.wait() == -signal.SIGKILL
            assert partial == ""
    assert len(acknowledged) >= 2 * 20 * 2
    catalogue = Catalogue(url)
    rounds = catalogue.rounds("demo", "m")
    ids = [round_.id for round_ in rounds]
    assert len(ids) == len(set(ids)) == catalogue.memory("demo", "m").rounds
    assert set(acknowledged) <= set(ids)
    # at most the one append of each kill that was not acknowledged in time, and that one whole
    assert len(ids) - len(acknowledged) in {0, 2, 4}
    assert [round_.position for round_ in rounds] == list(range(len(rounds)))
    catalogue.close()


def test_a_full_disk_is_told_and_changes_nothing(file: Path, catalogue: Catalogue) -> None:
    catalogue.append("demo", "m", [a_round("r0")])

    @sa.event.listens_for(catalogue._database._engine, "connect")
    def limit(connection: sqlite3.Connection, _: object) -> None:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")

    catalogue._database._engine.dispose()
    with pytest.raises(StoreError) as caught:
        catalogue.append("demo", "m", [a_round("r1", "x" * 100_000)])
    assert str(caught.value) == (
        f"the catalogue {file} could not append to memory m: "
        "the disk is full; free some space and try again"
    )
    assert [round_.id for round_ in catalogue.rounds("demo", "m")] == ["r0"]


def test_a_file_that_is_no_database_is_told(file: Path) -> None:
    file.write_bytes(b"plainly no database\n" * 100)
    with pytest.raises(StoreError, match=f"{file} could not be opened: the file is no SQLite"):
        Catalogue(f"sqlite:///{file}")


def test_a_damaged_file_is_told(file: Path, catalogue: Catalogue) -> None:
    catalogue.append("demo", "m", [a_round(f"r{n}", "x" * 5_000) for n in range(50)])
    catalogue.close()
    size = file.stat().st_size
    with file.open("r+b") as opened:
        opened.seek(4096)
        opened.write(b"\xff" * (size - 4096))
    with pytest.raises(StoreError, match=rf"{file} could not .*: the file is damaged; restore"):
        Catalogue(f"sqlite:///{file}").rounds("demo", "m")


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"file/catalogue\.sqlite3 cannot be created"):
        Catalogue(f"sqlite:///{tmp_path}/file/catalogue.sqlite3")
    with pytest.raises(StoreError, match=f"{tmp_path} could not be opened: the file cannot be"):
        Catalogue(f"sqlite:///{tmp_path}")


@pytest.mark.parametrize("url", ["nonsense", f"mysql://u:{PASSWORD}@h/d"])
def test_a_url_that_cannot_be_used_is_told_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError, match=r"store\.database_url is no usable") as caught:
        Catalogue(url)
    assert PASSWORD not in str(caught.value)


def test_a_server_that_is_not_there_is_told_without_its_password() -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(
        StoreError, match=r"catalogue db at 127\.0\.0\.1 could not be opened: "
    ) as e:
        Catalogue(f"postgresql://root:{PASSWORD}@127.0.0.1:9/db?application_name={PASSWORD}")
    assert PASSWORD not in str(e.value)
    assert len(str(e.value).splitlines()) == 1


@pytest.mark.services
def test_a_database_that_is_not_there_is_told(postgres_server: sa.URL) -> None:
    url = postgres_server.set(database="nowhere", password=PASSWORD)
    with pytest.raises(StoreError, match="catalogue nowhere at its socket could not") as caught:
        Catalogue(url.render_as_string(hide_password=False))
    assert PASSWORD not in str(caught.value)


@pytest.mark.services
def test_a_connection_that_was_cut_is_made_anew(postgres_server: sa.URL, postgres_url: str) -> None:
    catalogue = Catalogue(postgres_url)
    catalogue.ensure_bank(BANK)
    admin = sa.create_engine(postgres_server, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(
            sa.text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name"),
            {"name": sa.make_url(postgres_url).database},
        )
    admin.dispose()
    assert catalogue.append("demo", "m", [a_round("r0")]).version == 1
    catalogue.close()
