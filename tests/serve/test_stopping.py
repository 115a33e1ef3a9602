"""A command that is cut off by a signal, without a Ray: its status, its words, its children."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

# Starts a child and an orphan that SIGTERM does not end; says their ids; then does as it is told.
COMMAND = """
import os, subprocess, sys, time
from serve.stopping import stopping

SLEEP = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(99)"

def child():
    process = subprocess.Popen([sys.executable, "-c", SLEEP], stdout=subprocess.PIPE)
    process.stdout.readline()
    return process.pid

with stopping() as stop:
    born, read = child(), os.pipe()
    middle = os.fork()
    if middle == 0:
        os.write(read[1], str(child()).encode())
        os._exit(0)
    os.waitpid(middle, 0)
    print(born, os.read(read[0], 20).decode(), flush=True)
    {then}
print("ended", flush=True)
"""  # noqa: E501


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def command(then: str) -> tuple[subprocess.Popen[str], list[int]]:
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND.format(then=then)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    children = [int(pid) for pid in process.stdout.readline().split()]
    assert len(children) == 2
    assert all(alive(pid) for pid in children)
    return process, children


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_start_cut_off_leaves_no_child_and_no_orphan(number: signal.Signals) -> None:
    process, children = command("time.sleep(99)")
    os.kill(process.pid, number)
    time.sleep(0.2)
    os.kill(process.pid, number)  # a second one does not cut off the end
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (128 + number, "", "")
    assert not any(alive(pid) for pid in children)


def test_a_signal_that_ray_turned_into_an_exit_has_the_same_status() -> None:
    process, children = command("sys.exit(15)")
    assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == 128 + signal.SIGTERM
    assert not any(alive(pid) for pid in children)


def test_a_start_that_fails_leaves_nothing_and_keeps_its_error() -> None:
    process, children = command("raise ValueError('no port')")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert err.strip().endswith("ValueError: no port")
    assert not any(alive(pid) for pid in children)


def test_a_service_ends_with_the_first_signal() -> None:
    process, children = command("stop.wait()")
    time.sleep(0.5)
    os.kill(process.pid, signal.SIGTERM)
    assert process.communicate(timeout=60) == ("ended\n", "")
    assert process.returncode == 0
    assert not any(alive(pid) for pid in children)
