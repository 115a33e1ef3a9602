"""One size of the scale benchmark: a bank built by appends, then read and searched.

Both run the product's own path, each in a process of its own, so that resident memory is that of
what was done. Only the encoders are replaced (`jobs.scale.data`).
"""

import asyncio
import time
from collections.abc import Collection, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from jobs.scale.data import (
    SyntheticImageEncoder,
    SyntheticTextEncoder,
    questions,
    small_pictures,
    synthetic_rounds,
)
from jobs.scale.server import resident_bytes
from jobs.scale.timed import TimedCatalogue, TimedStore
from vmem.bank import Bank, database_url, images_url
from vmem.build import unit_tables
from vmem.config import Settings
from vmem.errors import VmemError
from vmem.images import read_image
from vmem.memory import EncodedUnits, encode_rounds
from vmem.pipeline import Parts, Stopwatch, retrieve
from vmem.prompts import Prompts
from vmem.stores.hot import HotMemory, UnitTable
from vmem.stores.images import ImageStore
from vmem.stores.milvus import MilvusStore
from vmem.types import Image, Query, Retrieval, Round

BATCH_ROUNDS = 1_000
PICTURES = 16
COMPACTION_S = 600
COLD = 40
"""Memories of which the first search is timed."""
HOT = 200
MANY_ROUNDS = 20_000
"""Above that, a search of one memory takes long."""
WARM, WARM_ROUNDS = "warm", 20
APPENDS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What is built.

    Attributes:
        memories: Memories.
        rounds: Rounds of each.
        pictures: Pictures a round.
        seed: Of the conversations.
    """

    memories: int
    rounds: int
    pictures: float
    seed: int = 0


@dataclass(slots=True, kw_only=True)
class Built:
    """What building did.

    Attributes:
        rounds: Rounds in the log.
        appended: Those that this run appended; an earlier one that was cut off did the rest.
        text_units: Rows of the text index.
        image_units: Rows of the image index.
        seconds: By stage of what was appended; `units and vectors` holds the synthetic encoders.
        cpu_s: Processor time of the writer's process, making conversations left out.
        resident: Bytes that the writer's process grew by.
        collections: Where the rows are.
    """

    rounds: int = 0
    appended: int = 0
    text_units: int = 0
    image_units: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    cpu_s: float = 0.0
    resident: int = 0
    collections: tuple[str, ...] = ()

    @property
    def units(self) -> int:
        """Rows of both."""
        return self.text_units + self.image_units


@dataclass(slots=True, kw_only=True)
class Searched:
    """What searching took; every list is milliseconds, one value a search.

    Attributes:
        cold: The first search of a memory.
        cold_stages: Seconds of all of those by what they waited for.
        hot: A search of a memory that is held.
        hot_cpu: The reader's processor time of it.
        hot_milvus: The part of it that waits for Milvus.
        append: An append of one round to a held memory.
        after_append: The search that follows, by another process's reader.
        verify_s: Seconds to read the key and digest of every row, as a build verifies.
        held: Memories held at the end.
        held_units: Their units.
        resident: Bytes that the reader's process grew by while it came to hold them.
        cold_cpu: The reader's processor time of a first search.
    """

    cold: list[float] = field(default_factory=list)
    cold_stages: dict[str, float] = field(default_factory=dict)
    hot: list[float] = field(default_factory=list)
    hot_cpu: list[float] = field(default_factory=list)
    hot_milvus: list[float] = field(default_factory=list)
    append: list[float] = field(default_factory=list)
    after_append: list[float] = field(default_factory=list)
    verify_s: float = 0.0
    held: int = 0
    held_units: int = 0
    resident: int = 0
    cold_cpu: list[float] = field(default_factory=list)


def build(settings: Settings, shape: Shape) -> Built:
    """Append every round that is not there yet to a bank, and bring Milvus to rest.

    Raises:
        VmemError: An append failed.
    """
    watch, built = Stopwatch(), Built()
    before = resident_bytes()
    with _bank(settings, watch, writes=True) as bank:
        pictures = _stored(bank.media)
        whole = {
            each.id
            for each in bank.memories()
            if each.indexed_version == each.version and each.rounds >= shape.rounds
        }
        bank.index()
        start = time.perf_counter()
        for items in chain([_warm(pictures)], _items(shape, pictures, watch, whole)):
            cpu = time.process_time()
            with watch.time("append"):
                outcomes = bank.append_many(items)
            built.cpu_s += time.process_time() - cpu
            for outcome in outcomes:
                if isinstance(outcome, VmemError):
                    raise outcome
                built.appended += len(outcome.added)
        built.collections = names = _collections(bank)
        with watch.time("flush and compact"):
            for name in names:
                _settle(bank.store, name)
        built.seconds = _by_stage(watch, time.perf_counter() - start)
        built.resident = resident_bytes() - before
        built.rounds = bank.catalogue.counts(settings.store.bank)[1]
        built.text_units, built.image_units = (bank.store.count(name) for name in names)
    return built


def search(settings: Settings, shape: Shape) -> Searched:
    """Search memories for the first time, then again and again, then after appends."""
    hot = HOT if shape.rounds <= MANY_ROUNDS else HOT // 5
    watch, found = Stopwatch(), Searched()
    with _bank(settings, watch, writes=False) as bank:
        bank.index()
        names = [_name(n) for n in range(min(shape.memories, COLD))]
        _timed(bank, WARM, questions(shape.seed, 0, 4))
        before = resident_bytes()
        watch.seconds.clear()
        for n, name in enumerate(names):
            asked, cpu = questions(shape.seed, n, 1), time.process_time()
            found.cold += _timed(bank, name, asked)
            found.cold_cpu.append(1000 * (time.process_time() - cpu))
        found.cold_stages = dict(watch.seconds)
        found.resident = resident_bytes() - before
        found.held, found.held_units = bank.hot_counts()
        for n in range(hot):
            watch.seconds.clear()
            asked, cpu = questions(shape.seed, COLD + n, 1), time.process_time()
            found.hot += _timed(bank, names[n % len(names)], asked)
            found.hot_cpu.append(1000 * (time.process_time() - cpu))
            found.hot_milvus.append(1000 * watch.seconds.get("milvus", 0.0))
        _search_after_appends(settings, shape, bank, names, found)
        start = time.perf_counter()
        for collection in _collections(bank):
            bank.store.digests(collection)
        found.verify_s = time.perf_counter() - start
    return found


def _search_after_appends(
    settings: Settings, shape: Shape, bank: Bank, names: Sequence[str], found: Searched
) -> None:
    with _bank(settings, Stopwatch(), writes=True) as writer:
        writer.index()
        for n in range(APPENDS):
            name = names[n % len(names)]
            end = writer.catalogue.memory(settings.store.bank, name).rounds
            rounds = synthetic_rounds(shape.seed, 2**20, end, 1, [], 0.0)
            start = time.perf_counter()
            writer.append(name, rounds)
            found.append.append(1000 * (time.perf_counter() - start))
            found.after_append += _timed(bank, name, questions(shape.seed, n, 1))


def hold(settings: Settings, shape: Shape) -> tuple[Built, Searched]:
    """Hold one memory in process with no store behind it, and search it exactly."""
    parts, found = _parts(settings), Searched(held=1)
    small = Shape(memories=1, rounds=WARM_ROUNDS, pictures=shape.pictures)
    _retrieved(_hot(settings, small, parts), settings, parts, questions(shape.seed, 0, 4))
    before = resident_bytes()
    start, cpu = time.perf_counter(), time.process_time()
    memory = _hot(settings, shape, parts)
    built = Built(rounds=shape.rounds, appended=shape.rounds, cpu_s=time.process_time() - cpu)
    built.seconds = {"all": time.perf_counter() - start}
    cpu = time.process_time()
    found.cold = _retrieved(memory, settings, parts, questions(shape.seed, 0, 1))
    found.cold_cpu = [1000 * (time.process_time() - cpu)]
    found.resident, found.held_units = resident_bytes() - before, memory.unit_count
    built.text_units = len(memory._text)
    built.image_units = memory.unit_count - built.text_units
    for n in range(HOT // 5):
        cpu = time.process_time()
        found.hot += _retrieved(memory, settings, parts, questions(shape.seed, COLD + n, 1))
        found.hot_cpu.append(1000 * (time.process_time() - cpu))
    for n in range(APPENDS):
        more = synthetic_rounds(shape.seed, 2**20, len(memory.rounds), 1, [], 0.0)
        tables = unit_tables(_encoded(more, settings, parts))
        start = time.perf_counter()
        memory = memory.extended(more, *tables)
        found.append.append(1000 * (time.perf_counter() - start))
        found.after_append += _retrieved(memory, settings, parts, questions(shape.seed, n, 1))
    return built, found


def _hot(settings: Settings, shape: Shape, parts: Parts) -> HotMemory:
    pictures = _stored(ImageStore(images_url(settings)))
    batches = [
        synthetic_rounds(shape.seed, 0, start, min(BATCH_ROUNDS, shape.rounds - start), pictures,
                         shape.pictures)
        for start in range(0, shape.rounds, BATCH_ROUNDS)
    ]  # fmt: skip
    tables = [unit_tables(_encoded(rounds, settings, parts)) for rounds in batches]
    text, image = (
        UnitTable(
            units=tuple(unit for table in lane for unit in table.units),
            vectors_UD=np.concatenate([table.vectors_UD for table in lane]),
        )
        for lane in zip(*tables, strict=True)
    )
    rounds = [round_ for batch in batches for round_ in batch]
    return HotMemory(rounds, text, image, settings.retrieval.lexical)


def _encoded(rounds: Sequence[Round], settings: Settings, parts: Parts) -> EncodedUnits:
    return encode_rounds(
        rounds, settings.units, parts.text_encoder, parts.image_encoder, parts.read_image
    )


def _timed(bank: Bank, name: str, asked: Sequence[Query]) -> list[float]:
    """Milliseconds of each search, encoding left out."""
    return [_milliseconds(bank.search(name, query)) for query in asked]


def _retrieved(
    memory: HotMemory, settings: Settings, parts: Parts, asked: Sequence[Query]
) -> list[float]:
    """As `_timed`, of a memory at hand."""
    return [_milliseconds(retrieve(query, memory, parts, settings)) for query in asked]


def _milliseconds(searching: Coroutine[None, None, Retrieval]) -> float:
    start = time.perf_counter()
    result = asyncio.run(searching)
    return 1000 * (time.perf_counter() - start - result.seconds["encode"])


def _parts(settings: Settings) -> Parts:
    return Parts(
        text_encoder=SyntheticTextEncoder(),
        image_encoder=SyntheticImageEncoder(),
        chat=None,
        prompts=Prompts(settings.prompts),
        read_image=read_image,
    )


def _bank(settings: Settings, watch: Stopwatch, *, writes: bool) -> Bank:
    bank = Bank(settings, writes=writes, parts=_parts(settings))
    bank.catalogue.close()
    bank.catalogue = TimedCatalogue(database_url(settings), watch)
    uri = settings.store.milvus_uri or str(settings.store.home / "milvus.db")
    bank.store = TimedStore(uri, watch)
    return bank


def _stored(media: ImageStore) -> list[Image]:
    stored = [media.put(data) for data in small_pictures(PICTURES)]
    return [Image(id=digest, uri=uri, digest=digest) for digest, uri in stored]


def _items(
    shape: Shape, pictures: Sequence[Image], watch: Stopwatch, whole: Collection[str]
) -> Iterator[list[tuple[str, list[Round]]]]:
    """Appends of about `BATCH_ROUNDS` rounds in all, as a busy writer takes them together.

    Where there are several memories, those that are whole are left out.
    """
    items: list[tuple[str, list[Round]]] = []
    waiting = 0
    for memory in range(shape.memories):
        if shape.memories > 1 and _name(memory) in whole:
            continue
        for start in range(0, shape.rounds, BATCH_ROUNDS):
            count = min(BATCH_ROUNDS, shape.rounds - start)
            with watch.time("synthesis"):
                rounds = synthetic_rounds(
                    shape.seed, memory, start, count, pictures, shape.pictures
                )
            items.append((_name(memory), rounds))
            waiting += count
            if waiting >= BATCH_ROUNDS:
                yield items
                items, waiting = [], 0
    if items:
        yield items


def _warm(pictures: Sequence[Image]) -> list[tuple[str, list[Round]]]:
    """A small memory whose search brings into a process what it needs once."""
    return [(WARM, synthetic_rounds(0, 2**21, 0, WARM_ROUNDS, pictures, 0.5))]


def _by_stage(watch: Stopwatch, seconds: float) -> dict[str, float]:
    """Seconds of the build's stages; making the conversations is none of them."""
    spent = watch.seconds
    stages = {"log": spent["log"], "insert": spent["insert"]}
    stages["units and vectors"] = spent["append"] - spent["log"] - spent["insert"]
    stages["flush and compact"] = spent["flush and compact"]
    return stages | {"all": seconds - spent["synthesis"]}


def _settle(store: MilvusStore, collection: str) -> None:
    """Flush, and on a server compact, until nothing is left to be merged or time is up."""
    store.flush(collection)
    client = store._client
    if store._lite is not None:
        return
    job = client.compact(collection)
    end = time.monotonic() + COMPACTION_S
    while client.get_compaction_state(job) != "Completed" and time.monotonic() < end:
        time.sleep(1)


def _collections(bank: Bank) -> tuple[str, str]:
    record = bank.stored_record()
    return record.text_collection, record.image_collection


def _name(memory: int) -> str:
    return f"memory-{memory}"
