"""Downloading the two public benchmarks (section 4.1) from where their authors keep them.

LoCoMo is one file of its GitHub repository; Mem-Gallery is a folder of dialogues and pictures of
its Hugging Face data set, taken at one fixed version. A download that broke off goes on where it
stopped: files come under a temporary name, and those already there with their full size stay.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import httpx
from pydantic import BaseModel, TypeAdapter
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from vmem.datasets.locomo import FILE
from vmem.datasets.parsing import parse_json
from vmem.errors import DataError

LOCOMO_URL = f"https://raw.githubusercontent.com/snap-research/locomo/main/data/{FILE}"
GALLERY_HOST = "https://huggingface.co"
GALLERY = "datasets/Ethan-Bei/Mem-Gallery"
GALLERY_VERSION = "af912daba984e896e253016b7c7e334ef92c2a6f"
GALLERY_ROOT = "data"
ATTEMPTS = 4

Progress = Callable[[int, int | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Remote:
    """A file to bring: where from, where to, how long it is."""

    url: str
    target: Path
    size: int | None = None


class _Entry(BaseModel):
    """One line of the data set's listing."""

    type: str
    path: str
    size: int = 0


_ENTRIES = TypeAdapter(list[_Entry])


def fetch(
    name: str,
    folder: Path,
    progress: Progress | None = None,
    *,
    transport: httpx.BaseTransport | None = None,
    backoff_s: float = 1.0,
) -> Path:
    """Download a benchmark into a folder that `read_benchmark` then reads.

    Args:
        name: `locomo` or `mem-gallery`.
        folder: Where to; made if it is missing.
        progress: Told the bytes that have come and, where it is known, how many there will be.
        transport: How requests travel; None is the network.
        backoff_s: Seconds before the first repetition; they double.

    Raises:
        DataError: The name is unknown, the server cannot be reached or refuses, or the folder
            cannot be written.
    """
    if name not in _LISTINGS:
        raise DataError(f"{name!r} cannot be downloaded; known: {', '.join(sorted(_LISTINGS))}")
    tell: Progress = progress or (lambda _done, _total: None)
    try:
        with httpx.Client(transport=transport, timeout=30.0, follow_redirects=True) as client:
            courier = _Courier(client, backoff_s)
            _bring_all(courier, _LISTINGS[name](courier, folder), tell)
    except httpx.HTTPError as error:
        raise DataError(
            f"{name} could not be downloaded ({_cause(error)}); without internet access, put its "
            f"files into {folder} by hand: {_BY_HAND[name]}"
        ) from error
    except OSError as error:
        raise DataError(f"{folder} cannot be written: {error.strerror or error}") from error
    return folder


class _Courier:
    """Requests that are repeated while that may help."""

    def __init__(self, client: httpx.Client, backoff_s: float) -> None:
        self.client = client
        self.retrying = Retrying(
            retry=retry_if_exception(_may_pass),
            stop=stop_after_attempt(ATTEMPTS),
            wait=wait_exponential(multiplier=backoff_s, max=30 * backoff_s),
            reraise=True,
        )

    def get(self, url: str) -> httpx.Response:
        """The whole answer to a request."""
        return self.retrying(self._get, url)

    def bring(self, remote: _Remote, tell: Progress, before: int, total: int | None) -> None:
        """Bring a file; `before` bytes of `total` came with earlier files."""
        self.retrying(self._bring, remote, tell, before, total)

    def _get(self, url: str) -> httpx.Response:
        return self.client.get(url).raise_for_status()

    def _bring(self, remote: _Remote, tell: Progress, before: int, total: int | None) -> None:
        remote.target.parent.mkdir(parents=True, exist_ok=True)
        partial = remote.target.with_name(f"{remote.target.name}.part")
        try:
            with self.client.stream("GET", remote.url) as response, partial.open("wb") as file:
                response.raise_for_status()
                for piece in response.iter_bytes():
                    file.write(piece)
                    tell(before + file.tell(), total)
            if remote.size is not None and partial.stat().st_size != remote.size:
                raise httpx.RemoteProtocolError(f"{remote.url} came incomplete")
            partial.replace(remote.target)
        finally:
            partial.unlink(missing_ok=True)


def _bring_all(courier: _Courier, remotes: list[_Remote], tell: Progress) -> None:
    sizes = [remote.size for remote in remotes if remote.size is not None]
    total = sum(sizes) if len(sizes) == len(remotes) else None
    done = 0
    for remote in remotes:
        if not remote.target.is_file() or remote.target.stat().st_size != remote.size:
            courier.bring(remote, tell, done, total)
        done += remote.target.stat().st_size
    tell(done, done)


def _list_locomo(_courier: _Courier, folder: Path) -> list[_Remote]:
    return [_Remote(url=LOCOMO_URL, target=folder / FILE)]


def _list_gallery(courier: _Courier, folder: Path) -> list[_Remote]:
    remotes = []
    for entry in _entries(courier):
        path = PurePosixPath(entry.path)
        within = PurePosixPath(*path.parts[1:])
        if entry.type != "file" or within.parts[:1] not in {("dialog",), ("image",)}:
            continue
        if ".." in path.parts:
            raise DataError(f"the listing of Mem-Gallery names a path outside its folder: {path}")
        url = f"{GALLERY_HOST}/{GALLERY}/resolve/{GALLERY_VERSION}/{path}"
        remotes.append(_Remote(url=url, target=folder / within, size=entry.size))
    if not remotes:
        raise DataError(f"{GALLERY_HOST}/{GALLERY} lists no dialog/ and image/ any more")
    return remotes


def _entries(courier: _Courier) -> Iterator[_Entry]:
    url = f"{GALLERY_HOST}/api/{GALLERY}/tree/{GALLERY_VERSION}/{GALLERY_ROOT}?recursive=true"
    while url:
        response = courier.get(url)
        yield from parse_json(_ENTRIES, response.text, f"the answer of {url}")
        url = response.links.get("next", {}).get("url", "")


def _may_pass(error: BaseException) -> bool:
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code == 429 or error.response.status_code >= 500
    return isinstance(error, httpx.TransportError)


def _cause(error: httpx.HTTPError) -> str:
    if isinstance(error, httpx.HTTPStatusError):
        return f"{error.request.url.host} answers {error.response.status_code}"
    return f"{type(error).__name__}: {error}"


_LISTINGS: dict[str, Callable[[_Courier, Path], list[_Remote]]] = {
    "locomo": _list_locomo,
    "mem-gallery": _list_gallery,
}
_BY_HAND = {
    "locomo": LOCOMO_URL,
    "mem-gallery": f"dialog/ and image/ of {GALLERY_HOST}/{GALLERY}",
}
