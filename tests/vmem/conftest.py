"""The `vmem` command as its user runs it, in this process, on fake encoders."""

import io
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import yaml

from vmem import cli

Command = Callable[..., CompletedProcess[str]]


@pytest.fixture
def vmem(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs the command in process; returns its exit status and what it wrote."""

    def run(*arguments: object, stdin: bytes = b"") -> CompletedProcess[str]:
        words = ["vmem", *map(str, arguments)]
        monkeypatch.setattr(sys, "argv", words)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return CompletedProcess(words, int(ended.value.code or 0), out, err)

    return run


def write_settings(folder: Path, home: Path, **sections: dict[str, object]) -> Path:
    """A settings file with fake encoders and backbone, and a store of its own."""
    fakes: dict[str, object] = {
        "name": "fakes",
        "encoders": {"text": {"kind": "fake"}, "image": {"kind": "fake"}},
        "llm": {"provider": "fake"},
        "store": {"home": str(home)},
    }
    path = folder / "fakes.yaml"
    path.write_text(yaml.safe_dump(fakes | sections), encoding="utf-8")
    return path


@pytest.fixture
def fakes(tmp_path: Path) -> Path:
    """A settings file with fake encoders and backbone."""
    return write_settings(tmp_path, tmp_path / "home")


@pytest.fixture(scope="session")
def settings_file() -> Callable[..., Path]:
    """Writes such a settings file."""
    return write_settings
