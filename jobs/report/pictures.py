"""Small pictures inside the page: a report is one file and asks nobody for anything."""

import base64
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from PIL import Image

from vmem.datasets.sample import SAMPLE
from vmem.errors import ImageError
from vmem.images import decode_image, read_image

SIDE = 240
"""Pixels of the longer side at most."""
QUALITY = 60
MOST_BYTES = 3 * 2**20
"""Bytes of all pictures of a page, encoded."""


class Thumbnails:
    """Makes the pictures of one page, as long as they fit.

    Args:
        manifests: The runs' manifests: pictures are read from their benchmarks' folders alone.

    Attributes:
        missing: Pictures, by benchmark and id, whose file is missing, damaged or lies elsewhere.
        beyond: Pictures that there was no room for.
    """

    def __init__(self, manifests: Iterable[Mapping[str, Any]]) -> None:
        self.missing: dict[str, None] = {}
        self.beyond: dict[str, None] = {}
        self._folders: dict[str, Path] = {"sample": SAMPLE}
        for manifest in manifests:
            for benchmark in manifest.get("plan", {}).get("benchmarks", ()):
                if folder := benchmark.get("data"):
                    self._folders.setdefault(benchmark["name"], Path(folder))
        self._room = MOST_BYTES
        self._made: dict[str, str | None] = {}

    def make(self, benchmark: str, id_: str, uri: str | None) -> str | None:
        """A picture as a `data:` URI of JPEG; None where there is none to show."""
        folder = self._folders.get(benchmark)
        if uri is None or folder is None:
            self.missing[f"{benchmark} {id_}"] = None
            return None
        if uri not in self._made:
            self._made[uri] = _small(uri, folder)
        made = self._made[uri]
        if made is None:
            self.missing[f"{benchmark} {id_}"] = None
        elif len(made) > self._room:
            self.beyond[f"{benchmark} {id_}"] = None
            return None
        else:
            self._room -= len(made)
        return made


def _small(uri: str, folder: Path) -> str | None:
    try:
        # Only files: a report that is written may not send anybody out into the network.
        picture = decode_image(read_image(uri, folder, allowed=frozenset({"file"})), uri)
    except ImageError:
        return None
    picture.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=QUALITY, optimize=True)
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"
