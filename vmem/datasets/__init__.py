"""Benchmarks by name, as dialogues, questions and the oddities met while reading them."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from vmem.datasets.locomo import read_locomo
from vmem.datasets.mem_gallery import read_mem_gallery
from vmem.errors import DataError, InputError
from vmem.types import Benchmark

EXCLUDED = frozenset({"adversarial"})
"""What no score counts: LoCoMo's adversarial questions reward abstention (Table 6)."""
READERS: Mapping[str, Callable[[Path], Benchmark]] = {
    "locomo": read_locomo,
    "mem-gallery": read_mem_gallery,
    "photobench": partial(read_mem_gallery, name="photobench"),
}


def read_benchmark(name: str, folder: Path) -> Benchmark:
    """A benchmark from its folder.

    Args:
        name: `locomo`, `mem-gallery`, or `photobench` for other data in Mem-Gallery's format.
        folder: Where its files are; `vmem.datasets.fetch` downloads them.

    Raises:
        DataError: The name is unknown, the folder is missing, or a file in it cannot be used.
    """
    if name not in READERS:
        raise DataError(f"no benchmark is named {name!r}; known: {', '.join(sorted(READERS))}")
    if not folder.exists():
        raise DataError(f"{folder} does not exist; put the files of {name} there")
    return READERS[name](folder)


def named_folders(given: Sequence[str]) -> dict[str, Path]:
    """Benchmarks' folders, as `--data` gives them.

    Raises:
        InputError: One is not of the form NAME=FOLDER.
    """
    folders = {}
    for each in given:
        name, equals, folder = each.partition("=")
        if not equals or not folder:
            raise InputError(f"--data {each}: give NAME=FOLDER, such as locomo=data/locomo")
        folders[name] = Path(folder)
    return folders
