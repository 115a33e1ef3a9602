"""Killed in each stage and run again: the same files, and no reply paid for twice."""

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs.evaluation.records import Build
from jobs.evaluation.run_folder import RunFolder
from vmem.llm.ledger import read_ledger

CONCURRENCY = 2
"""Of backbone and judge: as many calls can be in flight when a process is killed, and no more."""

OWN_TIMES = re.compile(rb"<dt>(begun|ended|seconds here)</dt>.*")
"""Lines of the report that tell of this very run."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3_600)]


def final_files(run: Path) -> dict[str, bytes]:
    """All that a run comes to; of builds and report what is not this machine's seconds."""
    folders = ("answers", "judgements", "planted", "tables")
    files = [path for name in folders for path in sorted((run / name).rglob("*"))]
    files.append(run / "statistics.json")
    held = {str(path.relative_to(run)): path.read_bytes() for path in files if path.is_file()}
    held["report.html"] = OWN_TIMES.sub(b"", (run / "report.html").read_bytes())
    for path in sorted((run / "builds").iterdir()):
        builds: list[Build] = RunFolder(run).builds(path.stem).read()
        held[path.name] = repr([(b.dialogue_id, b.counts, b.cost) for b in builds]).encode()
    return held


def held_back(server: Any, kept: Callable[[Path], int], run: Path) -> Callable[[], bool]:
    """Whether as many calls as can be are in flight, and all earlier replies are on the disk."""

    def is_so() -> bool:
        in_flight = server.held.total() == CONCURRENCY
        return in_flight and kept(run) == server.answered.total()

    return is_so


def assert_none_twice(server: Any) -> None:
    """No reply was given twice, and only what was in flight at a kill was asked twice."""
    assert set(server.answered.values()) == {1}
    assert set(server.started.values()) <= {1, 2}
    twice = {key for key, times in server.started.items() if times == 2}
    assert twice == set(server.held)
    assert set(server.started) == set(server.answered)


def assert_same_with_the_same_replies(runs: Any, server: Any, run: str) -> None:
    """A run that begins with another's replies asks nothing, and comes to the same files."""
    asked = server.started.total()
    runs.copy_replies(run, "undisturbed")
    runs.to_its_end("undisturbed")
    assert server.started.total() == asked
    first, second = (final_files(runs.path(name)) for name in (run, "undisturbed"))
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []
    assert {"statistics.json", "tables/tables.md", "tables/table-16.tex"} <= first.keys()


def test_killed_while_answering(
    evaluation: Callable[..., Any], server: Any, kept: Any, wait_for: Any
) -> None:
    runs = evaluation(address=True)
    server.hold = ("backbone", 5)
    process = runs.start("killed")
    wait_for(held_back(server, kept, runs.path("killed")), process)
    runs.kill(process)
    server.hold = None
    runs.to_its_end("killed")
    assert_none_twice(server)
    assert server.held.total() == CONCURRENCY
    calls, broken = read_ledger(runs.path("killed") / "ledger.jsonl")
    assert broken == 0
    assert sum(not call.cached for call in calls if not call.error) == server.answered.total()
    assert_same_with_the_same_replies(runs, server, "killed")


def test_killed_in_each_stage(
    evaluation: Callable[..., Any], server: Any, kept: Any, wait_for: Any
) -> None:
    runs = evaluation()
    run = runs.path("killed")
    for times, model in enumerate(("backbone", "judge"), start=1):
        server.hold = (model, 5)
        process = runs.start("killed")
        wait_for(
            lambda times=times: (
                server.held.total() == CONCURRENCY * times and kept(run) == server.answered.total()
            ),
            process,
        )
        runs.kill(process)
        assert list(run.rglob("*.partial.jsonl"))
    server.hold = None
    (run / "tables").mkdir()
    for stuck, is_at_it in (
        # Nobody reads these: whoever opens one to write to it is at it until it is killed.
        (run / "statistics.json.new", lambda: json.loads(_read(run / "manifest.json"))["ended"]),
        (run / "tables" / "table-05.csv.new", lambda: (run / "tables" / "tables.md").exists()),
    ):
        os.mkfifo(stuck)
        process = runs.start("killed")
        wait_for(lambda is_at_it=is_at_it: bool(is_at_it()), process)
        runs.kill(process)
        assert not stuck.with_suffix("").exists()
        stuck.unlink()
        stuck.write_bytes(b"half of")
    runs.to_its_end("killed")
    assert_none_twice(server)
    assert_same_with_the_same_replies(runs, server, "killed")


def _read(path: Path) -> str:
    return path.read_text()


@pytest.mark.parametrize("address", [True, False])
def test_ctrl_c_ends_in_good_order(
    evaluation: Callable[..., Any], server: Any, kept: Any, wait_for: Any, address: bool
) -> None:
    runs = evaluation(address=address)
    run = runs.path("stopped")
    server.hold = ("backbone", 5)
    process = runs.start("stopped")
    wait_for(held_back(server, kept, run), process)
    os.kill(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=900)
    assert process.returncode == 128 + signal.SIGINT
    sentences = [line for line in said.splitlines() if line.startswith("stopped: ")]
    assert len(sentences) == 1
    assert f"vmem eval run --plan {runs.folder}/plan.yaml --out {run}" in sentences[0]
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)  # nobody of its group is left
    with RunFolder(run).held("answer.b"):  # and no driver is at work
        pass
    calls, broken = read_ledger(run / "ledger.jsonl")
    assert broken == 0
    assert [call.error for call in calls if call.error] == ["CancelledError"] * CONCURRENCY
    assert server.answered.total() == kept(run) == 5
    if not address:
        server.hold = None
        runs.to_its_end("stopped")
        assert_none_twice(server)


def test_two_commands_do_not_share_a_folder(tmp_path: Path, evaluation: Any) -> None:
    runs = evaluation()
    with RunFolder(runs.path("busy")).held("run"):
        said = runs.to_its_end("busy", "--stage", "tables", status=1)
    assert "StoreBusyError: another process is at work on" in said
