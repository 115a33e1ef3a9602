"""What the README shows works as it stands."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_python_example_runs(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("text->text [2026-05-04, monday]")
    assert "7:40 from pier 3" in done.stdout


def test_every_command_named_exists() -> None:
    text = README.read_text(encoding="utf-8")
    makefile = (README.parent / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^make ([a-z0-9-]+)", text, re.MULTILINE))
    assert targets
    assert not {t for t in targets if not re.search(rf"^{t}:", makefile, re.MULTILINE)}
    listed = subprocess.run(
        [sys.executable, "-m", "vmem.cli", "--help"], capture_output=True, text=True, check=True
    ).stdout
    commands = set(re.findall(r"vmem/?b?i?n?/?vmem ([a-z]+)|bin/vmem ([a-z]+)", text))
    named = {name for pair in commands for name in pair if name}
    assert named
    assert not {name for name in named if name not in listed}
