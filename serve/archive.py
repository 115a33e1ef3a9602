"""A memory as a zip file: `rounds.jsonl` with `images/` and `audio/` beside it, as exports have it.

The format is that of `vmem export`, so either can read what the other wrote.
"""

import asyncio
import io
import stat
import zipfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import BinaryIO

from serve.errors import LimitError, RequestError
from serve.limits import check_json
from serve.media import PICTURES, VOICES, picture_type, picture_uri, voice_uri
from serve.rounds_in import check_ids
from vmem.audio import audio_suffix
from vmem.audio import read_audio as read_audio_file
from vmem.datasets.jsonl import dump_round, read_rounds
from vmem.errors import DataError
from vmem.images import protocol_of, read_image
from vmem.stores.images import stored_digest
from vmem.types import Image, Round, Turn

ROUNDS = "rounds.jsonl"
MAX_ENTRIES = 20_000
MAX_ROUNDS = 20_000
JSON_DEPTH = 8
"""A picture in a turn of a round is four deep."""
MAX_GROWTH = 4
"""How much longer than the request's limit an archive may be once unpacked."""
_SUFFIX = {kind: name.lower().replace("jpeg", "jpg") for name, kind in PICTURES.items()}

ReadPage = Callable[[int], Awaitable[tuple[Round, ...]]]
ReadFile = Callable[[str], Awaitable[bytes]]


class _Pipe(io.RawIOBase):
    """What a zip file is written to and taken from in pieces."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._pieces.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)


async def pack(name: str, page: ReadPage, file: ReadFile) -> AsyncGenerator[bytes, None]:
    """A memory's zip file, piece by piece.

    Args:
        name: The memory's bare name.
        page: Rounds after a position, a page of them; none at the end.
        file: A file's bytes by its digest.

    Yields:
        The file. Where something fails half way it has no directory, and nothing reads it.
    """
    pipe = _Pipe()
    packed: dict[str, str] = {}
    after = -1
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as archive:
        lines: list[str] = []
        while rounds := await page(after):
            for round_ in rounds:
                for digest in _digests(round_):
                    if digest not in packed:
                        data = await file(digest)
                        packed[digest] = _place(digest, data)
                        archive.writestr(_entry(packed[digest]), data, zipfile.ZIP_STORED)
                        yield pipe.take()
                lines.append(dump_round(_moved(round_, packed), name) + "\n")
            after = rounds[-1].position
        archive.writestr(_entry(ROUNDS), "".join(lines))
    yield pipe.take()


async def unpack(archive: BinaryIO, max_bytes: int) -> tuple[Round, ...]:
    """The rounds of an archive, their files as `data:` URIs.

    Args:
        archive: A zip file.
        max_bytes: The request's limit; unpacked it may be `MAX_GROWTH` times as long.

    Raises:
        RequestError: It is no archive of a memory, or an entry or a round names a place outside.
        LimitError: It unpacks to more than allowed.
        ImageError, AudioError: A file in it cannot be used.
    """
    with TemporaryDirectory(prefix="vmem-import-") as name:
        folder = Path(name)
        await asyncio.to_thread(_extract, archive, folder, max_bytes * MAX_GROWTH)
        await asyncio.to_thread(_check_lines, folder / ROUNDS)
        try:
            dialogues = await asyncio.to_thread(read_rounds, folder / ROUNDS, folder)
        except DataError as error:
            # The sentence speaks of the folder that only this server sees.
            sentence = str(error).replace(f"{folder}/", "").replace(str(folder), "the archive")
            raise RequestError(sentence) from error
        rounds = [round_ for dialogue in dialogues for round_ in dialogue.rounds]
        check_ids([round_.id for round_ in rounds])
        return tuple([await _inlined(round_, folder) for round_ in rounds])


def _extract(archive: BinaryIO, folder: Path, max_bytes: int) -> None:
    try:
        with zipfile.ZipFile(archive) as opened:
            entries = opened.infolist()
            if len(entries) > MAX_ENTRIES:
                raise LimitError(f"The archive has over {MAX_ENTRIES:,} entries.")
            left = max_bytes
            seen: set[str] = set()
            for entry in entries:
                _check_entry(entry, seen)
                if not entry.is_dir():
                    left = _extract_entry(opened, entry, folder, left)
    except (zipfile.BadZipFile, NotImplementedError, EOFError, OSError, ValueError) as error:
        raise RequestError("The archive is no zip file that can be read.") from error
    if ROUNDS not in seen:
        raise RequestError(f"The archive has no {ROUNDS}.")


def _check_entry(entry: zipfile.ZipInfo, seen: set[str]) -> None:
    path = PurePosixPath(entry.filename)
    outside = path.is_absolute() or ".." in path.parts or "\\" in entry.filename
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if outside or not path.parts or "\0" in entry.filename or len(entry.filename) > 200:
        raise RequestError("The archive has an entry that leads out of it.")
    if kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
        raise RequestError("The archive has an entry that is no ordinary file.")
    if entry.flag_bits & 0x1:
        raise RequestError("The archive is encrypted.")
    if str(path) in seen:
        raise RequestError("The archive has two entries of one name.")
    seen.add(str(path))


def _extract_entry(
    archive: zipfile.ZipFile, entry: zipfile.ZipInfo, folder: Path, left: int
) -> int:
    """Write one entry; returns how many more bytes may be unpacked."""
    target = folder / PurePosixPath(entry.filename)
    target.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(entry) as source, target.open("xb") as file:
        while piece := source.read(2**16):
            left -= len(piece)
            if left < 0:
                raise LimitError("The archive unpacks to more than this service takes.")
            file.write(piece)
    return left


def _check_lines(path: Path) -> None:
    """Refuse lines that would be costly to parse."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if number > MAX_ROUNDS:
                raise LimitError(f"The archive has over {MAX_ROUNDS:,} rounds.")
            check_json(line, JSON_DEPTH, f"{ROUNDS} line {number}")


async def _inlined(round_: Round, folder: Path) -> Round:
    turns = []
    for turn in round_.turns:
        images = [await _inlined_image(image, folder) for image in turn.images]
        audio = turn.audio
        if audio is not None:
            _check_inside(audio)
            data = await asyncio.to_thread(read_audio_file, audio, folder)
            audio = voice_uri(data, f"a voice message of round {round_.id}")
        turns.append(replace(turn, images=tuple(images), audio=audio))
    return replace(round_, turns=tuple(turns))


async def _inlined_image(image: Image, folder: Path) -> Image:
    if image.uri is None:
        return image
    _check_inside(image.uri)
    data = await asyncio.to_thread(read_image, image.uri, folder, allowed={"file"})
    return replace(image, uri=await picture_uri(data, image.id))


def _check_inside(uri: str) -> None:
    if protocol_of(uri) != "file":
        raise RequestError("The archive's rounds name a file outside of it.")


def _digests(round_: Round) -> list[str]:
    pictures = [image.digest for image in round_.images if image.digest]
    voices = [stored_digest(turn.audio) for turn in round_.turns if turn.audio]
    return [*pictures, *(voice for voice in voices if voice)]


def _place(digest: str, data: bytes) -> str:
    suffix = audio_suffix(data)
    if suffix in VOICES:
        return f"audio/{digest}.{suffix}"
    return f"images/{digest}.{_SUFFIX[picture_type(data)]}"


def _moved(round_: Round, packed: dict[str, str]) -> Round:
    return replace(round_, turns=tuple(_moved_turn(turn, packed) for turn in round_.turns))


def _moved_turn(turn: Turn, packed: dict[str, str]) -> Turn:
    images = tuple(
        replace(image, uri=packed.get(image.digest or ""), digest=None) for image in turn.images
    )
    audio = packed.get(stored_digest(turn.audio) or "") if turn.audio else None
    return replace(turn, images=images, audio=audio)


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)  # with a fixed date: the same memory is the same file
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    return entry
