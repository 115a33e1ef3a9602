"""Runs a command until it ends, or until whoever started this does, by whatever means.

`python -m jobs.evaluation.guarded COMMAND...`, its input a pipe that the starter holds open: the
pipe closes with the starter, even where that is killed, and the command's process group is ended.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

PATIENCE_S = 30.0
"""Seconds that the command may take to end by itself once it is asked to."""


def main() -> int:
    """Run the command of the command line; gives back its exit status."""
    command = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, start_new_session=True)
    threading.Thread(target=_end_with_starter, args=(command,), daemon=True).start()
    try:
        return command.wait()
    finally:
        _signal(command, signal.SIGKILL)  # what of its group outlives it


def _end_with_starter(command: "subprocess.Popen[bytes]") -> None:
    # The bare call: a buffered reader would hold a lock that the interpreter wants at its end.
    while os.read(sys.stdin.fileno(), 1):
        pass
    _signal(command, signal.SIGTERM)
    time.sleep(PATIENCE_S)  # the process ends meanwhile where the command does
    _signal(command, signal.SIGKILL)


def _signal(command: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(command.pid, number)


if __name__ == "__main__":
    sys.exit(main())
