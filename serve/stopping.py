"""How `vmem serve` stops: SIGTERM and SIGINT at any moment, and nothing that it started stays."""

import ctypes
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

GRACE_S = 3.0
"""Seconds that processes left behind may take to end by themselves."""
GIVE_UP_S = 15.0
"""Seconds after which one that even SIGKILL does not end, such as on a hanging disk, is left."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_CHILD_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of Linux's prctl


class Stop:
    """What SIGTERM and SIGINT do to a command: they cut its start off, or end its service.

    The first one counts, and the ones after it change nothing: they would only cut off the end.
    """

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._serving = False

    def listen(self) -> None:
        """Take the signals; to be called anew after what puts handlers of its own (`ray.init`)."""
        for number in _SIGNALS:
            signal.signal(number, self._heard)

    def wait(self) -> None:
        """From here on the service runs; returns at the first signal."""
        self._serving = True
        self._asked.wait()

    def _heard(self, number: int, _: FrameType | None) -> None:
        first = not self._asked.is_set()
        self._asked.set()
        if first and not self._serving:
            raise SystemExit(128 + number)


@contextmanager
def stopping() -> Iterator[Stop]:
    """Takes the signals of a command; at its end no process that descends from it is left.

    Raises:
        SystemExit: A signal cut the start off; the status is 128 and the signal's number.
    """
    # Orphans, such as the agents of a Ray that was cut off, come to this process and not to init.
    ctypes.CDLL(None).prctl(_CHILD_SUBREAPER, 1)
    stop = Stop()
    stop.listen()
    try:
        yield stop
    except SystemExit as cut:
        if cut.code == signal.SIGTERM:  # by the handler that is Ray's while Ray starts
            raise SystemExit(128 + signal.SIGTERM) from None
        raise
    finally:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)  # the process is about to end
        end_children()


def end_children() -> None:
    """End the processes that descend from this one and have not ended with their work."""
    began = time.monotonic()
    _send(signal.SIGTERM)
    while _has_children() and time.monotonic() < began + GIVE_UP_S:
        if time.monotonic() > began + GRACE_S:
            _send(signal.SIGKILL)
        time.sleep(0.02)


def _send(number: int) -> None:
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # a thread, or a child, that ended meanwhile
            for pid in (task / "children").read_text().split():
                os.kill(int(pid), number)


def _has_children() -> bool:
    """Whether a child is left, once those that have ended are reaped."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True
