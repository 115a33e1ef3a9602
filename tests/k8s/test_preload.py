"""The preload Job's own script, with a stand-in for the hub's command: what it leaves is found."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import snapshot_download

pytestmark = pytest.mark.k8s

COMMIT = "0123456789abcdef0123456789abcdef01234567"
HF = """#!/bin/bash
# hf download MODEL --revision REVISION: a cache as the hub's client lays it out
set -eu
[ "$2" = org/broken ] && exit 1
folder="$HF_HOME/hub/models--${2//\\//--}"
commit="$4"
if [ "$4" = main ]; then
  commit=ffffffffffffffffffffffffffffffffffffffff
  mkdir -p "$folder/refs"
  printf %s "$commit" > "$folder/refs/main"
fi
mkdir -p "$folder/snapshots/$commit"
echo "{}" > "$folder/snapshots/$commit/config.json"
"""


@pytest.fixture
def preload(rendered: Callable[..., list[dict[str, Any]]], tmp_path: Path) -> Callable[[str], int]:
    """Runs the Job's script over a list, on folders of the test; gives its status."""
    (job,) = [each for each in rendered("overlays/gpu") if each["kind"] == "Job"]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    *shell, script = container["command"]
    for folder in ("/wanted", "/models"):
        script = script.replace(f"{folder}/", f"{tmp_path}{folder}/")
        (tmp_path / folder[1:]).mkdir()
    hf = tmp_path / "hf"
    hf.write_text(HF)
    hf.chmod(0o755)

    def run(models: str) -> int:
        (tmp_path / "wanted" / "models.txt").write_text(models)
        env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HF_HOME": str(tmp_path / "models")}
        return subprocess.run([*shell, script], env=env, check=False).returncode

    return run


def test_a_model_is_found_by_its_name_at_the_commit_that_is_named(
    preload: Callable[[str], int], tmp_path: Path
) -> None:
    wanted = f"org/pinned {COMMIT}\norg/newest main\n"
    assert preload(wanted) == 0
    cache = str(tmp_path / "models" / "hub")
    found = {
        name: Path(snapshot_download(f"org/{name}", cache_dir=cache, local_files_only=True)).name
        for name in ("pinned", "newest")
    }
    assert found == {"pinned": COMMIT, "newest": "f" * 40}
    assert (tmp_path / "models" / "ready").read_text() == wanted


def test_nothing_is_called_ready_when_a_model_fails(
    preload: Callable[[str], int], tmp_path: Path
) -> None:
    assert preload(f"org/broken main\norg/pinned {COMMIT}\n") != 0
    assert not (tmp_path / "models" / "ready").exists()
