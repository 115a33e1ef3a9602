"""`vmem serve`: the whole application on this machine, from start to drained end."""

import ctypes
import io
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from pathlib import Path

import ray
from ray import serve as ray_serve
from ray.serve.exceptions import RayServeException

from serve.app import NAME, bind
from serve.at_proxy import proxy_env
from serve.auth import is_loopback
from serve.loopback import SETUP_HOOK, loopback_options
from serve.settings import RaySettings, ServeSettings
from serve.stopping import stopping
from vmem.config import Settings, replace
from vmem.errors import ConfigError, StoreError

DRAIN_S = 60.0
"""Seconds that requests under way may take to end after SIGTERM."""
SETTLE_S = 2.0
"""Seconds in which the proxy passes on the last replies, and new callers still hear 503."""
START_S = 60.0
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux's prctl

_ENV = {
    "RAY_SERVE_LOG_TO_STDERR": "0",
    # One event loop a process: nothing here blocks it for long, and each hop between threads costs.
    "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
    "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0",
    # Replicas call each other by gRPC: half the hops between threads that an actor's call takes.
    "RAY_SERVE_USE_GRPC_BY_DEFAULT": "1",
    "RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH": str(2**31 - 1),  # pictures go this way
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": os.environ.get("HF_HUB_OFFLINE", "0"),
}


def run(settings: ServeSettings, ready: Callable[[str], None]) -> None:
    """Start the application, say that it is ready, and serve until SIGTERM or SIGINT.

    Then nothing more is taken on, what is under way ends, and everything that was started stops.
    A signal during the start cuts it off, and everything that was started stops as well.

    Args:
        settings: The application's settings.
        ready: Called with the application's address once it answers.

    Raises:
        ConfigError: The port is taken, or a setting does not fit this machine.
        StoreError: The embedded store cannot be opened.
        SystemExit: A signal cut the start off.
    """
    with stopping() as stop:
        check_access(settings)
        check_port(settings.http.host, settings.http.port)
        with embedded_store(settings.memory_settings()) as memory, local_ray(settings):
            stop.listen()
            try:
                start(settings, memory)
            except BaseException:
                if settings.ray.address:  # a Ray of our own ends with all that runs on it
                    ray_serve.shutdown()  # type: ignore[no-untyped-call]
                raise
            ready(address(settings))
            stop.wait()
            end()


def start(settings: ServeSettings, memory: Settings) -> None:
    """Run the application on the Ray at hand; returns when every deployment is healthy.

    Raises:
        ConfigError: A deployment cannot start.
    """
    http = settings.http
    ray_serve.start(http_options={"host": http.host, "port": http.port, "keep_alive_timeout_s": 75})
    try:
        ray_serve.run(bind(settings, memory), name=NAME, route_prefix="/")
    except RuntimeError as error:
        raise ConfigError(f"the application did not start: {_why(error)}") from None


def end() -> None:
    """Take on nothing more, let what is under way end, stop the application."""
    try:
        handle = ray_serve.get_app_handle(NAME)
        handle.broadcast("drain", DRAIN_S).results()
        time.sleep(SETTLE_S)
    except (RayServeException, RuntimeError, TimeoutError) as error:
        logging.getLogger("vmem.serve").warning("drain was cut short: %s", type(error).__name__)
    with _unsaid():
        ray_serve.shutdown()  # type: ignore[no-untyped-call]


def _unsaid() -> AbstractContextManager[object]:
    """Keeps what Ray writes of its own calls, which end with the application, off the terminal."""
    return redirect_stdout(io.StringIO())


def address(settings: ServeSettings) -> str:
    """Where the application answers."""
    host = settings.http.host
    host = "127.0.0.1" if host in {"0.0.0.0", "::"} else host  # shown, not bound
    return f"http://{host}:{settings.http.port}"


def check_access(settings: ServeSettings) -> None:
    """Refuse to let callers in without a key where other machines reach the application.

    Raises:
        ConfigError: It is open, and its address is no loopback one.
    """
    if settings.http.open_on_loopback and not is_loopback(settings.http.host):
        raise ConfigError(
            f"http.open_on_loopback lets in callers without a key, but http.host"
            f" {settings.http.host} is no loopback address: bind 127.0.0.1, or set it to false and"
            " make keys with `vmem keys create`"
        )


def check_port(host: str, port: int) -> None:
    """Find out before anything starts.

    Raises:
        ConfigError: Another program has the port, or the address is none of this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ConfigError(
                f"http: {host} port {port} cannot be used ({error.strerror}): set another http.port"
            ) from error


@contextmanager
def local_ray(settings: ServeSettings) -> Iterator[None]:
    """The cluster named, or one started here and ended with the with-block.

    Raises:
        ConfigError: Ray does not start, or cannot be reached.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")  # callers wait for replicas: no batch work
    # Ray would write down every call between replicas for a dashboard that is not started here.
    os.environ.setdefault("RAY_task_events_report_interval_ms", "0")
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    try:
        _init_ray(settings.ray, {**_ENV, **proxy_env(settings)})
        yield
    finally:
        with _unsaid():
            ray.shutdown(wait_for_processes=True)


def _init_ray(settings: RaySettings, env: Mapping[str, str]) -> None:
    try:
        if settings.address:
            ray.init(address=settings.address, log_to_driver=False, logging_level=logging.ERROR)
            return
        ray.init(
            **loopback_options(),
            num_cpus=settings.num_cpus,
            object_store_memory=settings.object_store_bytes,
            runtime_env={"env_vars": dict(env), "worker_process_setup_hook": SETUP_HOOK},
            _metrics_export_port=settings.metrics_port,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except Exception as error:  # noqa: BLE001 (a node that does not come up is a bare Exception)
        raise ConfigError(f"ray: it did not start: {_last_line(str(error))}") from None


@contextmanager
def embedded_store(memory: Settings) -> Iterator[Settings]:
    """The settings with a Milvus that several processes reach; Lite is served on loopback here.

    Raises:
        StoreError: Milvus Lite does not start, such as when another process holds its folder.
    """
    if memory.store.milvus_uri:
        yield memory
        return
    home = memory.store.home.resolve()
    home.mkdir(parents=True, exist_ok=True)
    port = free_port()
    process = _milvus_lite(home, port)
    try:
        _wait_until_listening(process, port, home)
        yield replace(memory, store={"milvus_uri": f"http://127.0.0.1:{port}", "home": home})
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()


def _milvus_lite(home: Path, port: int) -> subprocess.Popen[bytes]:
    command = [
        str(Path(sys.executable).with_name("milvus-lite")),
        "server",
        *("--data-dir", str(home / "milvus.db"), "--host", "127.0.0.1", "--port", str(port)),
    ]
    libc = ctypes.CDLL(None)

    def die_with_parent() -> None:
        libc.prctl(_DEATH_SIGNAL, signal.SIGTERM)

    with (home / "milvus.log").open("ab") as log:
        return subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for this process, which stops it in its turn
            preexec_fn=die_with_parent,
        )


def _wait_until_listening(process: subprocess.Popen[bytes], port: int, home: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise StoreError(
                f"the store in {home} cannot be opened, perhaps because another process has it:"
                f" see {home / 'milvus.log'}"
            )
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise StoreError(f"the store in {home} did not open within {START_S:g} s")


def free_port() -> int:
    """A TCP port of the loopback address that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _why(error: Exception) -> str:
    """What the replicas that did not start say; Serve's own error only names their deployments."""
    application = ray_serve.status().applications.get(NAME)
    deployments = application.deployments.values() if application else ()
    told = [one.message for one in deployments if one.status == "DEPLOY_FAILED"]
    return "; ".join(sorted({_last_line(text) for text in told or [str(error)]}))


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("vmem.errors.") if lines else "no reason is given"
