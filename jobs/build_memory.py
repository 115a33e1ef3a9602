"""Builds a bank of memories with Ray Data (section 3.4): manifest, encoder actors, verified switch.

The manifest fixes what the new collections must hold. Rows that a killed run left behind are kept,
the rest is encoded, and only when the collections hold exactly the manifest's rows do the bank's
record and aliases point to them. Nothing on the way calls a language model.
"""

import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import ray
import ray.data

from jobs.encode import encode_rows, vectors_of
from serve.loopback import loopback_options
from vmem.bank import Bank
from vmem.config import BuildSettings
from vmem.errors import ImageError, StoreError
from vmem.stores.catalogue import Bank as BankRecord
from vmem.stores.catalogue import round_digest
from vmem.stores.checks import check_dialogues
from vmem.stores.manifest import Manifest, make_manifest
from vmem.stores.milvus import MilvusStore
from vmem.stores.unit_rows import UnitRow
from vmem.types import Dialogue, Modality, Round, UnitKind

Progress = Callable[[str, int, int], None]
"""Called with the stage, what is done and what there is to do."""


def _silent(stage: str, done: int, total: int) -> None:
    """Report no progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildReport:
    """What a build did.

    Attributes:
        bank: The bank's name.
        dialogues: Memories in it.
        rounds: Their rounds.
        text_units: Rows of the text index.
        image_units: Rows of the image index.
        without_pixels: Images of which only the caption is there.
        truncated: Texts longer than the encoder reads, among those encoded now.
        encoded: Rows encoded by this run.
        kept: Rows that an earlier, unfinished run had written.
        unchanged: The bank was already exactly this; nothing was done.
        seconds: Wall time.
        encode_seconds: Wall time from the first row to the last, starting actors included.
        llm_tokens: Tokens of a language model: none are ever used.
    """

    bank: str
    dialogues: int
    rounds: int
    text_units: int
    image_units: int
    without_pixels: int
    truncated: int
    encoded: int
    kept: int
    unchanged: bool
    seconds: float
    encode_seconds: float
    llm_tokens: int = 0

    @property
    def rounds_per_second(self) -> float:
        """Rounds over wall time."""
        return self.rounds / self.seconds if self.seconds else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Plain values for printing."""
        return {**asdict(self), "rounds_per_second": self.rounds_per_second}


def build_bank(
    bank: Bank,
    dialogues: Sequence[Dialogue],
    progress: Progress = _silent,
) -> BuildReport:
    """Make a bank hold exactly these dialogues.

    Raises:
        ImageError, AudioError: A picture or voice message cannot be used; the bank stays as it was.
        DataError: A dialogue cannot be kept: two rounds share an id, say.
        StoreError: The bank holds rounds that the dialogues do not, rounds of it were erased, it
            changed meanwhile, or verification failed.
        EncoderMismatchError: The bank was made with other encoders or unit settings.
    """
    start = time.perf_counter()
    check_dialogues(dialogues)
    record = bank.record
    held = bank.catalogue.bank_digest(record.name)
    dialogues = _keep_media(bank, dialogues, progress)
    _refuse_unknown_rounds(bank, dialogues)
    pictures = record.image_width > 0
    manifest = make_manifest(
        dialogues,
        bank.settings.units,
        [record.text_encoder, record.image_encoder],
        pictures=pictures,
    )
    names = _collections(record, manifest)
    if record.manifest_digest == manifest.digest and not _differs(bank.store, manifest, names):
        return _report(record, dialogues, manifest, start, unchanged=True)
    manifest.write(bank.settings.store.home / "builds" / record.name / f"{manifest.digest}.parquet")
    encode_start = time.perf_counter()
    tally = _Tally()
    with _ray(bank.settings.build):
        for modality, collection in names.items():
            _fill(bank, manifest, modality, collection, tally, progress)
    encode_seconds = time.perf_counter() - encode_start
    for modality, collection in names.items():
        bank.store.flush(collection)
        _verify(bank.store, manifest, modality, collection)
    _switch(bank, record, dialogues, manifest, names, held)
    return _report(record, dialogues, manifest, start, tally=tally, encode_seconds=encode_seconds)


@dataclass(slots=True)
class _Tally:
    encoded: int = 0
    kept: int = 0
    truncated: int = 0


def _keep_media(bank: Bank, dialogues: Sequence[Dialogue], progress: Progress) -> list[Dialogue]:
    """The dialogues with every picture and voice message in the store."""
    with_media = {
        (dialogue.id, round_.id): round_
        for dialogue in dialogues
        for round_ in dialogue.rounds
        if round_.images or any(turn.audio for turn in round_.turns)
    }
    kept: dict[tuple[str, str], Round] = {}
    with ThreadPoolExecutor() as threads:
        moved = threads.map(bank.keep_media, with_media.values())
        for key, round_ in zip(with_media, moved, strict=True):
            kept[key] = round_
            progress("media", len(kept), len(with_media))
    return [
        replace(d, rounds=tuple(kept.get((d.id, round_.id), round_) for round_ in d.rounds))
        for d in dialogues
    ]


def _refuse_unknown_rounds(bank: Bank, dialogues: Sequence[Dialogue]) -> None:
    """A build must not lose what was appended after the last one, nor undo an erasure."""
    known = {
        (dialogue.id, round_.id, round_digest(round_))
        for dialogue in dialogues
        for round_ in dialogue.rounds
    }
    for info in bank.memories():
        appended = bank.catalogue.rounds(
            bank.record.name, info.id, after_version=info.built_version
        )
        erased = [r for r in appended if not r.turns]
        if erased:
            raise StoreError(
                f"{len(erased)} rounds of memory {info.id} were erased from bank"
                f" {bank.record.name}, the first {erased[0].id}, and a build would bring them back"
                " or close their gaps: build into another bank, from data without them"
            )
        unknown = [r for r in appended if (info.id, r.id, round_digest(r)) not in known]
        if unknown:
            raise StoreError(
                f"bank {bank.record.name} holds {len(unknown)} appended rounds that this build"
                f" does not know, the first {unknown[0].id} of memory {info.id}:"
                " build into another bank, or add them to the data"
            )


def _collections(record: BankRecord, manifest: Manifest) -> dict[Modality, str]:
    """The new collections' names, the same for every run of the same build."""
    names = {Modality.TEXT: f"{record.name}_text_{manifest.digest[:12]}"}
    if record.image_width:
        names[Modality.IMAGE] = f"{record.name}_image_{manifest.digest[:12]}"
    return names


def _fill(
    bank: Bank,
    manifest: Manifest,
    modality: Modality,
    collection: str,
    tally: _Tally,
    progress: Progress,
) -> None:
    """Write every row of one index that is not there yet."""
    rows = manifest.of(modality)
    width = bank.record.text_width if modality is Modality.TEXT else bank.record.image_width
    if not bank.store.exists(collection):
        bank.store.create(collection, width)
    held = bank.store.ids(collection)
    missing = rows.filter(pc.invert(pc.is_in(rows["key"], pa.array(sorted(held), pa.string()))))
    tally.kept += rows.num_rows - missing.num_rows
    by_key = dict(zip(missing["key"].to_pylist(), range(missing.num_rows), strict=True))
    done, stage = 0, f"{modality.value} units"
    progress(stage, 0, missing.num_rows)
    if not missing.num_rows:
        return
    settings = bank.settings.encoders
    encoder = settings.text if modality is Modality.TEXT else settings.image
    for batch in encode_rows(missing, modality, encoder, bank.settings.build):
        _raise_first_error(batch)
        written = missing.take([by_key[key] for key in batch["key"].to_pylist()])
        bank.store.upsert(collection, _unit_rows(written, batch))
        tally.truncated += pc.sum(batch["truncated"]).as_py()
        done += batch.num_rows
        progress(stage, done, missing.num_rows)
    tally.encoded += done


def _raise_first_error(batch: pa.Table) -> None:
    errors = [error for error in batch["error"].to_pylist() if error]
    if errors:
        more = f" (and {len(errors) - 1} more in its batch)" if len(errors) > 1 else ""
        raise ImageError(f"{errors[0]}{more}; the bank stays as it was")


def _unit_rows(rows: pa.Table, encoded: pa.Table) -> list[UnitRow]:
    fields = rows.drop_columns(["key", "modality"]).to_pylist()
    return [
        UnitRow(**{**row, "kind": UnitKind(row["kind"])}, vector=vector)
        for row, vector in zip(fields, vectors_of(encoded), strict=True)
    ]


def _differs(store: MilvusStore, manifest: Manifest, names: dict[Modality, str]) -> bool:
    return any(
        not store.exists(collection) or store.digests(collection) != manifest.digests(modality)
        for modality, collection in names.items()
    )


def _verify(store: MilvusStore, manifest: Manifest, modality: Modality, collection: str) -> None:
    """The collection holds exactly the manifest's rows, or nothing is switched."""
    wanted, held = manifest.digests(modality), store.digests(collection)
    store.delete(collection, sorted(held.keys() - wanted.keys()))
    wrong = [key for key, digest in wanted.items() if held.get(key) != digest]
    count = store.count(collection)
    if wrong or count != len(wanted):
        raise StoreError(
            f"collection {collection} holds {count:,} rows and the manifest {len(wanted):,},"
            f" {len(wrong):,} of them missing or different: run the build again"
        )


def _switch(
    bank: Bank,
    record: BankRecord,
    dialogues: Sequence[Dialogue],
    manifest: Manifest,
    names: dict[Modality, str],
    held: str,
) -> None:
    """Point record and aliases to the new collections, then drop what no build needs."""
    image = names.get(Modality.IMAGE, record.image_collection)
    bank.catalogue.replace_bank(
        record.name,
        dialogues,
        text_collection=names[Modality.TEXT],
        image_collection=image,
        manifest_digest=manifest.digest,
        expected_digest=held,
    )
    for modality, collection in names.items():
        bank.store.switch_alias(f"{record.name}_{modality.value}_current", collection)
    ours = re.compile(rf"{re.escape(record.name)}_(text|image)(_[0-9a-f]{{12}})?")
    for collection in bank.store.collections():
        if ours.fullmatch(collection) and collection not in names.values():
            bank.store.drop(collection)
    bank.reload()


@contextmanager
def _ray(settings: BuildSettings) -> Iterator[None]:
    """The cluster named, or one started here for the build and ended with it."""
    ray.data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)  # it tells each plan it runs
    # Ray Data's actors take their arguments from the object store; Ray's core warns of just that.
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    if ray.is_initialized():
        yield
        return
    if settings.address:
        ray.init(address=settings.address, log_to_driver=False, logging_level=logging.ERROR)
    else:
        needed = settings.cpus * max(settings.text_actors, settings.image_actors)
        ray.init(
            num_cpus=max(os.cpu_count() or 1, int(needed) + 2),  # reads need a CPU beside actors
            **loopback_options(),
            log_to_driver=False,
            logging_level=logging.ERROR,
            object_store_memory=LOCAL_OBJECT_STORE_BYTES,
        )
    try:
        yield
    finally:
        ray.shutdown()


LOCAL_OBJECT_STORE_BYTES = 300_000_000


def _report(
    record: BankRecord,
    dialogues: Sequence[Dialogue],
    manifest: Manifest,
    start: float,
    *,
    unchanged: bool = False,
    tally: _Tally | None = None,
    encode_seconds: float = 0.0,
) -> BuildReport:
    tally = tally or _Tally()
    return BuildReport(
        bank=record.name,
        dialogues=len(dialogues),
        rounds=sum(len(dialogue.rounds) for dialogue in dialogues),
        text_units=manifest.of(Modality.TEXT).num_rows,
        image_units=manifest.of(Modality.IMAGE).num_rows,
        without_pixels=manifest.without_pixels,
        truncated=tally.truncated,
        encoded=tally.encoded,
        kept=tally.kept,
        unchanged=unchanged,
        seconds=time.perf_counter() - start,
        encode_seconds=encode_seconds,
    )
