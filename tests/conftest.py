"""Shared by all tests: real services, started once a run, and threads that start together."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from jobs.scale.server import MilvusServer, free_ports

START_TIMEOUT_S = 120
StartMilvusLite = Callable[..., tuple[subprocess.Popen[bytes], str]]


@pytest.fixture
def at_once() -> Callable[[Sequence[Callable[[], object]]], None]:
    """Runs tasks in threads that start together, and raises the first error."""

    def run(tasks: Sequence[Callable[[], object]]) -> None:
        start = threading.Barrier(len(tasks))

        def task_at_start(task: Callable[[], object]) -> None:
            start.wait()
            task()

        with ThreadPoolExecutor(len(tasks)) as threads:
            for done in [threads.submit(task_at_start, task) for task in tasks]:
                done.result()

    return run


@pytest.fixture(scope="session")
def milvus_server() -> Iterator[str]:
    """The address of a Milvus 2.3.5 server of its own."""
    pytest.importorskip("milvus", reason="the milvus wheel is missing: install .[services]")
    with tempfile.TemporaryDirectory(prefix="vmem-milvus-") as folder:
        server = MilvusServer(Path(folder), changes={})
        try:
            yield server.uri
        finally:
            server.close()


@pytest.fixture(scope="session")
def milvus_lite_server(start_milvus_lite: StartMilvusLite) -> Iterator[str]:
    """The address of a Milvus Lite folder that several processes share."""
    with tempfile.TemporaryDirectory(prefix="vmem-lite-") as folder:
        process, uri = start_milvus_lite(Path(folder))
        yield uri
        end_group(process)


@pytest.fixture(scope="session")
def start_milvus_lite() -> StartMilvusLite:
    """Starts a server of Milvus Lite; returns its process and address."""

    def start(folder: Path, port: int | None = None) -> tuple[subprocess.Popen[bytes], str]:
        port = port or free_ports(1)[0]
        command = Path(sys.executable).with_name("milvus-lite")
        options = ["--data-dir", f"{folder}/units.db", "--host", "127.0.0.1", "--port", str(port)]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [command, "server", *options], stdout=log, stderr=log, start_new_session=True
            )
        if not _wait_for(lambda: process.poll() is not None or _listens(port)):
            end_group(process)
        if process.poll() is not None:
            pytest.fail(f"milvus-lite did not start: {(folder / 'log').read_text()}")
        return process, f"http://127.0.0.1:{port}"

    return start


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[sa.URL]:
    """The maintenance database of a PostgreSQL of its own, on a unix socket."""
    binaries = _postgres_binaries()
    user = _ordinary_user()
    as_user = ["runuser", "-u", user, "--"] if os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory(prefix="vmem-pg-", ignore_cleanup_errors=True) as folder:
        data = Path(folder) / "data"
        data.mkdir()
        if as_user:
            shutil.chown(folder, user)
            shutil.chown(data, user)
        initdb = [binaries / "initdb", "-D", data, "-U", "vmem", "--auth=trust", "-E", "UTF8"]
        _run([*as_user, *initdb, "--no-sync", "--locale=C.UTF-8"])
        options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off"
        control = [*as_user, binaries / "pg_ctl", "-D", data, "-w"]
        _run([*control, "-l", data / "log", "-o", options, "start"])
        try:
            yield sa.URL.create(
                "postgresql+psycopg", username="vmem", database="postgres", query={"host": folder}
            )
        finally:
            _run([*control, "-m", "immediate", "stop"])


@pytest.fixture
def postgres_url(postgres_server: sa.URL) -> Iterator[str]:
    """The URL of an empty PostgreSQL database."""
    name = f"t{uuid.uuid4().hex}"
    engine = sa.create_engine(postgres_server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
        yield postgres_server.set(database=name).render_as_string(hide_password=False)
        connection.execute(sa.text(f"DROP DATABASE {name} WITH (FORCE)"))
    engine.dispose()


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process with its children, and reap it."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def _wait_for(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.1)
    return False


def _postgres_binaries() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    on_path = shutil.which("initdb")
    if not found and on_path is None:
        pytest.skip("PostgreSQL's initdb is missing: apt-get install postgresql")
    pytest.importorskip("psycopg", reason="psycopg is missing: install .[services]")
    return found[-1].parent if found else Path(str(on_path)).parent


def _ordinary_user() -> str:
    import pwd

    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _run(command: Sequence[str | Path]) -> None:
    # pg_ctl leaves the server with its output: a pipe would never end.
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        pytest.fail(f"{command[-1]} failed: {done.stderr.decode(errors='replace')}")
