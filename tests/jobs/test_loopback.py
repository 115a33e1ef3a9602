"""A Ray that a job starts listens on loopback only; `-m cluster` looks at the application's."""

import json
import subprocess
import sys

STARTED = """
import json, sys
from jobs.evaluation.evaluate import on_ray

with on_ray(None):
    from psutil import CONN_LISTEN, Process  # Ray's copy

    everyone = [Process(), *Process().children(recursive=True)]
    found = [c.laddr.ip for p in everyone for c in p.net_connections("tcp")
             if c.status == CONN_LISTEN]
print(json.dumps(found))
"""


def test_a_ray_started_for_an_evaluation_is_for_this_machine_alone() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STARTED], capture_output=True, text=True, check=True, timeout=200
    )
    listening = json.loads(done.stdout.splitlines()[-1])
    assert len(listening) > 5
    assert {address.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}
