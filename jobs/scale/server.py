"""A Milvus server of one's own to measure: its memory, and its files by what they are."""

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from vmem.errors import ConfigError, StoreError
from vmem.stores.milvus import MilvusStore

PARTS = {
    "rows": ("insert_log",),
    "keys and counts": ("stats_log",),
    "deletions": ("delta_log",),
    "message queue": ("rocksmq", "rocksmq_meta_kv"),
    "etcd": ("etcd.data",),
}
"""Folders below Milvus' own `data`; the first three are a bucket's in a cluster."""
SESSION_S = 30
"""How long Milvus takes parts of itself that have ended to be there still."""
STILL = {
    "interval: 3600 # gc": "interval: 20 # gc",
    "dropTolerance: 10800": "dropTolerance: 20",
    "enableAutoCompaction: true": "enableAutoCompaction: false",
}
"""What differs from Milvus' own: compaction is a stage of its own and what it replaced leaves the
disk."""
_START_S = 600
_END_S = 20
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class MilvusServer:
    """A standalone Milvus in a folder, on free ports of loopback, in a process group of its own.

    Args:
        folder: Where it keeps everything; one that held a server before is opened again.
        changes: Lines of its settings by what stands in their place.

    Raises:
        ConfigError: The `milvus` wheel is missing.
        StoreError: The server does not start.
    """

    def __init__(self, folder: Path, changes: Mapping[str, str]) -> None:
        try:
            milvus = import_module("milvus")
        except ImportError as error:
            raise ConfigError("the Milvus server is missing: make setup-services") from error
        self.folder = folder
        self._config = milvus.MilvusServerConfig(data_dir=str(folder))
        names = [name for name in self._config.configurable_items if name.endswith("_port")]
        *ports, self._peer, self._metrics = free_ports(len(names) + 2)
        self._config.update(**dict(zip(names, ports, strict=True)))
        self._config.resolve()
        milvus._initialize_data_files(str(folder))
        self._change(changes)
        self.uri = f"http://127.0.0.1:{self._config.get('proxy_port')}"
        self._process = self._start()

    def close(self) -> None:
        """End the server; with collections loaded it does not end when it is asked to."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        # the one file that it writes outside its folder
        Path(f"/tmp/milvus/server_id_{self._process.pid}").unlink(missing_ok=True)

    def restart(self) -> None:
        """End it and start it again on the same files and ports: memory as a new pod has it."""
        self.close()
        self._process = self._start()
        time.sleep(SESSION_S + 5)  # until then it looks for rows at those that have ended

    def resident_bytes(self) -> int:
        """Its resident memory."""
        return resident_bytes(self._process.pid)

    def cpu_seconds(self) -> float:
        """Processor time that it has taken since its start."""
        stat = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="ascii")
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / _TICKS

    def disk_bytes(self) -> dict[str, int]:
        """Bytes of its files, by `PARTS`."""
        data = self.folder / "data"
        return {
            name: sum(folder_bytes(data / part) for part in parts) for name, parts in PARTS.items()
        }

    def _start(self) -> subprocess.Popen[bytes]:
        folder = self.folder
        etcd = folder / "configs/etcd.yaml"
        etcd.write_text(self._etcd(), encoding="utf-8")
        with (folder / "logs/stdout.log").open("wb") as log:
            process = subprocess.Popen(
                [folder / "bin/milvus", "run", "standalone"],
                cwd=folder,
                env={
                    **os.environ,
                    "DEPLOY_MODE": "STANDALONE",
                    "ETCD_CONFIG_PATH": str(etcd),
                    "LD_LIBRARY_PATH": str(folder / "bin"),
                    "METRICS_PORT": str(self._metrics),
                    "MILVUS_RUN_DIR": str(folder / "run"),
                },
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        health = f"http://127.0.0.1:{self._metrics}/healthz"
        deadline = time.monotonic() + _START_S
        while not (_is_healthy(health) and _answers(self.uri)):
            if process.poll() is not None or time.monotonic() > deadline:
                raise StoreError(f"Milvus does not start: see {folder}/logs/stdout.log")
            time.sleep(0.5)
        return process

    def _change(self, changes: Mapping[str, str]) -> None:
        path = self.folder / "configs/milvus.yaml"
        text = path.read_text(encoding="utf-8")
        for setting, changed in changes.items():
            if setting not in text:
                raise StoreError(f"{path} has no {setting!r}: another Milvus than 2.3.5?")
            text = text.replace(setting, changed)
        path.write_text(text, encoding="utf-8")

    def _etcd(self) -> str:
        """Embedded etcd on loopback: it would listen everywhere on its well-known ports."""
        client = f"http://127.0.0.1:{self._config.get('etcd_port')}"
        peer = f"http://127.0.0.1:{self._peer}"
        return (
            f"name: default\ndata-dir: {self.folder}/data/etcd.data\nlog-level: error\n"
            f"listen-client-urls: {client}\nadvertise-client-urls: {client}\n"
            f"listen-peer-urls: {peer}\ninitial-advertise-peer-urls: {peer}\n"
            f"initial-cluster: default={peer}\n"
        )


def _answers(uri: str) -> bool:
    """Whether all its parts have found each other, which it does not wait for to be healthy."""
    try:
        store = MilvusStore(uri, timeout_s=20)
    except StoreError:
        return False
    try:
        store.collections()
    except StoreError:
        return False
    finally:
        store.close()
    return True


def resident_bytes(pid: int | None = None) -> int:
    """Resident memory of a process, or of this one."""
    statm = Path(f"/proc/{pid or os.getpid()}/statm").read_text(encoding="ascii")
    return int(statm.split()[1]) * _PAGE


def folder_bytes(folder: Path) -> int:
    """Bytes of all files in a folder, as the disk holds them; 0 where there is none."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(place) / name).stat().st_size
            except FileNotFoundError:
                continue  # compaction ended meanwhile
    return total


def free_ports(count: int) -> list[int]:
    """Different ports of loopback that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _is_healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            return b"OK" in reply.read()
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False
