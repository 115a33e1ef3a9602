"""Nodes of a real Ray on loopback, started as pods start them, and the environment of a pod.

What only a cluster has (services of Milvus and PostgreSQL, volumes) is replaced by the variables
that name it: a Milvus server on loopback, SQLite, folders of the test.
"""

import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from tenacity import retry, retry_if_exception_type, stop_after_attempt

from serve.launch import free_port

BIN = Path(sys.executable).parent
HEAD = "127.0.0.2"
WAIT_S = 600
Object = dict[str, Any]
Rendered = Callable[..., list[Object]]


class NotStartedError(Exception):
    """A node ended while it started; its log."""


@dataclass(frozen=True, kw_only=True)
class LocalRay:
    """A Ray cluster of `ray start` processes, each node in a process group of its own.

    Attributes:
        folder: Ray's temporary folder, and its token.
        env: The environment of every process.
        port: The head's port.
        dashboard: Address of the dashboard, which takes jobs and Serve configs.
        nodes: What runs, the head first.
        started: Addresses of all nodes that ever ran.
        metrics: Where each of them gives its metrics.
    """

    folder: Path
    env: Mapping[str, str]
    port: int
    dashboard: str
    nodes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    started: list[str] = field(default_factory=list)
    metrics: list[str] = field(default_factory=list)

    def add_node(self, num_cpus: int) -> subprocess.Popen[bytes]:
        """Start a node, the head where there is none, and wait until it has joined."""
        if not self.nodes:
            self.nodes.append(self._start(HEAD, self._head_options(), num_cpus))
        else:
            address = f"127.0.0.{2 + len(self.started)}"
            self.nodes.append(self._start(address, [f"--address={HEAD}:{self.port}"], num_cpus))
        return self.nodes[-1]

    def replace_head(self) -> None:
        """Start a head where the dead one was, and wait until all other nodes are back."""
        (self.folder / "ray_current_cluster").unlink()  # a new pod's folder is empty
        self.nodes.insert(0, self._start(HEAD, self._head_options(), 0))

    def _head_options(self) -> list[str]:
        dashboard = self.dashboard.rpartition(":")[2]
        options = ["--head", f"--port={self.port}", "--dashboard-host=127.0.0.1"]
        options += [f"--dashboard-port={dashboard}", f"--temp-dir={self.folder}"]
        if "REDIS_PASSWORD" in self.env:
            options += [f"--redis-password={self.env['REDIS_PASSWORD']}"]
        return [*options, f"--ray-client-server-port={free_port()}"]

    @retry(retry=retry_if_exception_type(NotStartedError), stop=stop_after_attempt(3), reraise=True)
    def _start(self, address: str, join: list[str], num_cpus: int) -> subprocess.Popen[bytes]:
        """Start a node; one for which Ray's 30 s were too short is started again, as a pod is."""
        metrics = free_port()
        ports = ("dashboard-agent-listen", "runtime-env-agent", "object-manager")
        options = [*join, *(f"--{name}-port={free_port()}" for name in ports)]
        options += [f"--metrics-export-port={metrics}", "--block", f"--num-cpus={num_cpus}"]
        options += [f"--node-ip-address={address}"]  # for 127.0.0.1 Ray takes the outer address
        options += ["--min-worker-port=0", "--max-worker-port=0"]
        with (self.folder / "nodes.log").open("ab") as log:
            process = subprocess.Popen(
                [BIN / "ray", "start", *options, "--object-store-memory=150000000"],
                env={**self.env, "NODE_ADDRESS": address},
                stdout=log,
                stderr=log,
                process_group=0,
            )
        wait_until(lambda: process.poll() is not None or self.alive() == len(self.nodes) + 1)
        if process.poll() is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise NotStartedError((self.folder / "nodes.log").read_text(encoding="utf-8"))
        self.started.append(address)
        self.metrics.append(f"{address}:{metrics}")
        return process

    def alive(self) -> int:
        """Nodes that the head takes for alive; 0 where there is no head."""
        try:
            told = self.ask("GET", "/nodes?view=summary")
        except httpx.HTTPError:
            return 0
        states = [each["raylet"].get("state") for each in told["data"]["summary"]]
        return states.count("ALIVE")

    def ask(self, method: str, path: str, body: Object | None = None) -> Object:
        """The dashboard's JSON reply to a caller with its token; empty where it is none."""
        headers = {"authorization": f"Bearer {self.token}"}
        url = f"{self.dashboard}{path}"
        reply = httpx.request(
            method, url, json=body, headers=headers, timeout=WAIT_S, trust_env=False
        )
        assert reply.status_code == 200, reply.text
        told: Object = reply.json() if reply.content else {}
        return told

    def submit(self, entrypoint: str, env: Mapping[str, str] | None = None) -> str:
        """Start a job as KubeRay's submitter does; returns its id."""
        body = {"entrypoint": entrypoint, "runtime_env": {"env_vars": dict(env or {})}}
        return str(self.ask("POST", "/api/jobs/", body)["submission_id"])

    def job(self, job: str) -> tuple[str, str]:
        """A job's status, and the message that a RayJob's status repeats."""
        told = self.ask("GET", f"/api/jobs/{job}")
        return told["status"], told["message"] or ""

    def ended(self, job: str) -> tuple[str, str]:
        """As `job`, once it has ended."""
        wait_until(lambda: self.job(job)[0] not in {"PENDING", "RUNNING"})
        return self.job(job)

    def said(self, job: str) -> str:
        """What a job wrote."""
        return str(self.ask("GET", f"/api/jobs/{job}/logs")["logs"])

    @property
    def token(self) -> str:
        """What Ray's own interfaces ask for."""
        return Path(self.env["RAY_AUTH_TOKEN_PATH"]).read_text(encoding="utf-8")

    def kill(self, node: subprocess.Popen[bytes]) -> None:
        """End a node as a machine ends: nothing of it gets to say anything."""
        os.killpg(node.pid, signal.SIGKILL)
        node.wait()
        self.nodes.remove(node)

    def end(self) -> None:
        """Kill every node, the head last, and wait until no process of theirs is left."""
        for node in reversed(list(self.nodes)):
            self.kill(node)
        wait_until(lambda: not _processes(str(self.folder)))


def _processes(mark: str) -> list[int]:
    """Processes whose command line or environment tells of a folder."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                told = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
            except OSError:
                continue
            if mark.encode() in told:
                found.append(int(folder.name))
    return found


def wait_until(condition: Callable[[], object], seconds: float = WAIT_S) -> None:
    """Wait until something holds.

    Raises:
        AssertionError: It did not in time.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s"
        time.sleep(0.5)


@pytest.fixture
def local_cluster() -> Iterator[Callable[[Mapping[str, str]], LocalRay]]:
    """Makes clusters without nodes, token authentication on; what is left of them is ended."""
    made: list[LocalRay] = []
    with tempfile.TemporaryDirectory(prefix="vr-", ignore_cleanup_errors=True) as short:

        def make(env: Mapping[str, str]) -> LocalRay:
            folder = Path(short) / str(len(made))  # sockets' paths have to be short
            folder.mkdir()
            token = folder / "token"
            token.write_text(secrets.token_hex(32), encoding="utf-8")
            port = free_port()
            access = {
                "RAY_AUTH_MODE": "token",
                "RAY_AUTH_TOKEN_PATH": str(token),
                "RAY_ADDRESS": f"{HEAD}:{port}",
                "RAY_TMPDIR": str(folder),
                "__RAY_WORKER_PROCESS_SETUP_HOOK_ENV_VAR": "node_port.stay_on_node",
            }
            dashboard = f"http://127.0.0.1:{free_port()}"
            made.append(
                LocalRay(folder=folder, env={**env, **access}, port=port, dashboard=dashboard)
            )
            return made[-1]

        yield make
        for each in made:
            each.end()


@pytest.fixture
def pod_env(rendered: Rendered, tmp_path: Path) -> Callable[[str], dict[str, str]]:
    """The environment that the dev overlay gives its pods, given a Milvus' address."""

    def env(milvus_uri: str) -> dict[str, str]:
        maps = {
            each["metadata"]["name"]: each["data"]
            for each in rendered("overlays/dev")
            if each["kind"] == "ConfigMap"
        }
        here = {
            "PATH": f"{BIN}:/usr/bin:/bin",
            "HOME": str(tmp_path),
            "PYTHONPATH": f"{Path(__file__).parents[3]}:{Path(__file__).parent}",
            "OMP_NUM_THREADS": "1",
            "NO_PROXY": "127.0.0.0/8,localhost",
            "HF_HOME": str(tmp_path / "models"),
            "VMEM_STORE__HOME": str(tmp_path / "files" / "home"),
            "VMEM_STORE__IMAGES_URL": str(tmp_path / "files" / "images"),
            "VMEM_STORE__MILVUS_URI": milvus_uri,
            "VMEM_STORE__DATABASE_URL": f"sqlite:///{tmp_path}/files/database.sqlite3",
        }
        replaced = maps["vmem-env"].keys() & here.keys()
        assert replaced == {name for name in here if name.startswith(("VMEM_", "HF_"))} - {
            "VMEM_STORE__DATABASE_URL"  # a Secret's
        }
        (tmp_path / "files").mkdir(exist_ok=True)
        return {**maps["vmem-env"], **maps["serving-env"], **here}

    return env


@pytest.fixture(scope="session", name="wait_until")
def _wait_until() -> Callable[..., None]:
    """Waits until something holds."""
    return wait_until


@pytest.fixture
def entrypoints(rendered: Rendered, tmp_path: Path) -> dict[str, str]:
    """What the dev overlay's jobs run, with folders of the test for the pod's."""
    here = {"/app/": f"{Path(__file__).parents[3]}/", "/files/": f"{tmp_path}/files/"}
    found = {}
    for job in rendered("overlays/dev/jobs"):
        text = job["spec"]["entrypoint"]
        for folder, ours in here.items():
            text = text.replace(folder, ours)
        found[job["metadata"]["name"]] = text
    return found
