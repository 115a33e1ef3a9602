"""Measures what memories take and how long they take to search as they grow to a million rounds.

python -m jobs.benchmark_scale 1000 10000 100000 1000000 --out scale.jsonl

Conversations are synthetic, of LoCoMo's lengths, and go through the product's own append, Milvus
and search. Encoding is not measured: its throughput is the operator's to know, and synthetic
vectors stand in for it. `vmem.cluster.sizing` holds what came out.
"""

import json
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, TypeVar

import sqlalchemy as sa
import typer
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from jobs.scale.report import Measured, print_run
from jobs.scale.server import STILL, MilvusServer, folder_bytes
from jobs.scale.stages import Built, Shape, build, hold, search
from vmem.bank import database_url
from vmem.config import Settings, load_settings, replace
from vmem.errors import InputError, StoreError, VmemError
from vmem.show import console, errors
from vmem.stores.milvus import MilvusStore
from vmem.stores.tables import METADATA

MOST_ROUNDS = 10_000_000
GARBAGE_S = 60
"""Seconds until what compaction replaced has left the disk."""
Outcome = TypeVar("Outcome")
app = typer.Typer(add_completion=False)


@app.command()
def main(
    rounds: Annotated[list[int], typer.Argument(help="Rounds in all, one run each.")],
    memory_rounds: Annotated[
        int, typer.Option(help="Rounds of each memory; 0 puts all into one.")
    ] = 1_000,
    store: Annotated[
        str, typer.Option(help="server (a Milvus of its own), lite, or none (exact, in process).")
    ] = "server",
    database: Annotated[
        str, typer.Option(help="SQLAlchemy URL of a PostgreSQL; else SQLite.")
    ] = "",
    pictures: Annotated[float, typer.Option(help="Pictures of a round.")] = 0.1,
    settings: Annotated[str, typer.Option(help="How it is searched.")] = "embedded",
    keep: Annotated[
        Path | None, typer.Option(help="Folder for the data; what is built there is used again.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="JSON lines, one a run.")] = None,
) -> None:
    """Build and search memories of growing size; encoding is not measured."""
    check(rounds, memory_rounds, store, pictures)
    chosen = replace(load_settings(settings), llm={"provider": "none"})
    if database:
        chosen = replace(chosen, store={"database_url": database})
    console.print("encoding is not measured: synthetic vectors stand in for the encoders'")
    found = []
    for count in rounds:
        each = memory_rounds or count
        shape = Shape(memories=-(-count // each), rounds=min(each, count), pictures=pictures)
        with _home(keep, f"{store}-{shape.rounds}") as home:
            found.append(measure(chosen, shape, store, home))
        if out:
            with out.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(asdict(found[-1])) + "\n")
        print_run(found[-1])


def check(rounds: Sequence[int], memory_rounds: int, store: str, pictures: float) -> None:
    """Refuse what cannot be measured.

    Raises:
        InputError: A number is out of range, or the store is none of those known.
    """
    for count in rounds:
        if not 1 <= count <= MOST_ROUNDS:
            raise InputError(f"rounds {count:,}: give 1 to {MOST_ROUNDS:,}")
        if memory_rounds < 0 or (memory_rounds and count % min(memory_rounds, count)):
            raise InputError(
                f"--memory-rounds {memory_rounds:,} does not divide {count:,} rounds:"
                " give a divisor, or 0 for one memory"
            )
    if store not in {"server", "lite", "none"}:
        raise InputError(f"--store {store}: give server, lite or none")
    if store == "none" and memory_rounds:
        raise InputError("--store none holds one memory: give --memory-rounds 0")
    if not 0 <= pictures <= 1:
        raise InputError(f"--pictures {pictures:g}: give 0 to 1 a round")


def measure(settings: Settings, shape: Shape, store: str, home: Path) -> Measured:
    """Build and search one size below a folder, which is left with all of it.

    A folder that holds fewer memories of the same length is built on.

    Raises:
        VmemError: A step failed.
    """
    if store == "none":
        settings = replace(settings, store={"home": home})
        built, searched = _alone(hold, settings, shape)
        return Measured(store=store, database="none", shape=shape, built=built, searched=searched)
    server = MilvusServer(home / "milvus", STILL) if store == "server" else None
    try:
        uri = server.uri if server else None
        settings = replace(
            settings,
            store={"home": home, "bank": f"scale_{shape.rounds}", "milvus_uri": uri},
        )
        built = _alone(build, settings, shape)
        found = Measured(
            store=store,
            database="postgresql" if settings.store.database_url else "sqlite",
            shape=shape,
            built=built,
            log_bytes=_log_bytes(settings),
            disk_bytes={"rows": folder_bytes(home / "milvus.db")},
        )
        if server:
            _measure_server(server, built, found)
        found.searched = _alone(search, settings, shape)
    finally:
        if server:
            server.close()
    return found


def _measure_server(server: MilvusServer, built: Built, found: Measured) -> None:
    """Its disk, and its memory idle and loaded, each as a server that has just started."""
    found.milvus_cpu_s = server.cpu_seconds()
    found.resident["built"] = server.resident_bytes()
    time.sleep(GARBAGE_S)
    found.disk_bytes = server.disk_bytes()
    store = MilvusStore(server.uri)
    for name in built.collections:
        store._client.release_collection(name)
    store.close()
    server.restart()
    found.resident["idle"] = server.resident_bytes()
    start = time.perf_counter()
    for name in built.collections:
        _count_when_loaded(server.uri, name)
    found.load_s = time.perf_counter() - start
    found.resident["loaded"] = server.resident_bytes()


@contextmanager
def _home(keep: Path | None, name: str) -> Iterator[Path]:
    """The folder of a run.

    Raises:
        InputError: It cannot be made.
    """
    if keep:
        try:
            (keep / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"--keep {keep} cannot be used: {error.strerror}") from error
        yield keep / name
    else:
        with tempfile.TemporaryDirectory(prefix="vmem-scale-") as folder:
            yield Path(folder)


@retry(
    retry=retry_if_exception_type(StoreError),
    stop=stop_after_delay(600),
    wait=wait_fixed(0.5),
    reraise=True,
)
def _count_when_loaded(uri: str, name: str) -> int:
    """Rows of a collection, once a server that has just started has loaded it."""
    store = MilvusStore(uri)
    try:
        return store.count(name)
    finally:
        store.close()


def _alone(step: Callable[[Settings, Shape], Outcome], settings: Settings, shape: Shape) -> Outcome:
    """Run a step in a new process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(step, settings, shape).result()


def _log_bytes(settings: Settings) -> int:
    """Bytes of the catalogue's tables with their indices: the database holds this bank alone."""
    if not settings.store.database_url:
        home = settings.store.home
        return sum(path.stat().st_size for path in home.glob("catalogue.sqlite3*"))
    engine = sa.create_engine(
        sa.make_url(database_url(settings)).set(drivername="postgresql+psycopg")
    )
    size = sa.text("SELECT coalesce(pg_total_relation_size(to_regclass(:name)), 0)")
    with engine.connect() as connection:
        total = sum(
            int(connection.execute(size, {"name": name}).scalar_one()) for name in METADATA.tables
        )
    engine.dispose()
    return total


if __name__ == "__main__":
    try:
        app()
    except VmemError as error:
        errors.print(str(error), style="red", markup=False)
        raise SystemExit(1) from None
