"""The text and image indices of section 3.2 in Milvus: Lite, a server or a cluster, one adapter.

The schema is one that behaves the same on all of them: scalars and one vector, FLAT under COSINE,
no dynamic fields, no partition key (2.3 loses rows on it), whole rows by `upsert` only.
"""

import fcntl
import logging
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import grpc
from milvus_lite.server_manager import server_manager_instance
from pymilvus import DataType, MilvusClient
from pymilvus.exceptions import ConnectionConfigException, ErrorCode, MilvusException

from vmem.errors import StoreBusyError, StoreError
from vmem.ports import Vectors
from vmem.stores.unit_rows import (
    MAX_BYTES,
    Hit,
    UnitRow,
    check_key,
    check_vector,
    filter_expression,
    from_entity,
    to_entity,
    unit_id,
    unit_key,
)
from vmem.types import UnitKind

__all__ = ["MAX_LIMIT", "Hit", "MilvusStore", "UnitRow", "unit_key"]

MAX_LIMIT = 16_384
BATCH_BYTES = 4 * 2**20  # servers refuse messages over 64 MiB
_KEY_PAGE = 16_000
_DELETE_KEYS = 1_000
_GET_KEYS = 500
_ROW = [*MAX_BYTES, "round", "vector"]

# These log every error with its traceback; each is raised as well, and told in one sentence.
for _name in ("pymilvus", "milvus_lite.adapter", "milvus_lite.server_manager"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)

# Lite's server hangs up on a client that pings it while nothing is asked, as pymilvus would.
_GRPC = {"grpc.keepalive_permit_without_calls": False}
# Lite runs inside the process, once a folder. Two threads that write at once lose rows there.
_lite_lock = threading.RLock()
_lite_users: Counter[str] = Counter()


class MilvusStore:
    """Collections of unit rows.

    A collection may be named by its alias. One process at a time writes a collection. A write
    that failed half-way can be repeated, since rows of one key replace each other; on Lite close
    the store and open it again first, for after a full disk Lite hides rows (it loses none).

    Args:
        uri: A path ending in `.db` (Milvus Lite: one process at a time) or a server's address.
        token: The server's token, `user:password` or a key.
        timeout_s: Seconds for one request.

    Raises:
        StoreBusyError: Another process holds the Lite folder.
        StoreError: The server cannot be reached or the Lite folder cannot be opened.
    """

    def __init__(self, uri: str, token: str = "", timeout_s: float = 60.0) -> None:
        self._place = uri.rpartition("@")[2].rpartition("://")[2]  # no password in a message
        self._timeout_s = timeout_s
        self._widths: dict[str, int] = {}  # of the collections that are loaded
        self._lite = Path(uri).resolve() if uri.endswith(".db") else None
        self._writing: AbstractContextManager[Any] = _lite_lock if self._lite else nullcontext()
        if self._lite is None:
            with self._told("be reached"):
                self._client = MilvusClient(uri, token=token, timeout=timeout_s, grpc_options=_GRPC)
        else:
            with _lite_lock:
                self._client = _open_lite(self._lite)
                _lite_users[str(self._lite)] += 1

    def close(self) -> None:
        """Release the connection; the last store of a Lite folder lets other processes in."""
        self._client.close()
        if self._lite is None:
            return
        with _lite_lock:
            _lite_users[str(self._lite)] -= 1
            if not _lite_users[str(self._lite)]:
                server_manager_instance.release_server(str(self._lite))
        self._lite = None

    def create(self, collection: str, width: int) -> None:
        """Create an empty collection for vectors (D,), indexed and loaded.

        Raises:
            StoreError: It exists already.
        """
        if self.exists(collection):
            raise StoreError(f"collection {collection} exists already; drop it first")
        schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        for name, limit in MAX_BYTES.items():
            schema.add_field(name, DataType.VARCHAR, max_length=limit, is_primary=name == "id")
        schema.add_field("round", DataType.INT64)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=width)
        with self._told(f"create collection {collection}"):
            # pymilvus's iterators read at the collection's own level, whatever level they are told
            self._client.create_collection(
                collection, schema=schema, consistency_level="Strong", timeout=self._timeout_s
            )
        self._load(collection)

    def exists(self, collection: str) -> bool:
        """Whether a collection, or an alias, has this name."""
        return self._describe(collection) is not None

    def collections(self) -> list[str]:
        """Names of all collections, sorted; aliases are not among them."""
        with self._told("list collections"):
            return sorted(self._client.list_collections(timeout=self._timeout_s))

    def width(self, collection: str) -> int:
        """D of the collection's vectors."""
        return self._resolve(collection)[1]

    def drop(self, collection: str) -> None:
        """Remove a collection with all its rows; one that does not exist is no error.

        Raises:
            StoreError: An alias points to it.
        """
        if not self.exists(collection):
            return
        with self._told(f"drop collection {collection}"):
            found = self._client.list_aliases(collection, timeout=self._timeout_s)
            if found["aliases"]:
                raise StoreError(
                    f"collection {collection} is in use as {found['aliases'][0]}; "
                    "switch that alias to another one first"
                )
            self._client.drop_collection(collection, timeout=self._timeout_s)
        self._widths.pop(collection, None)

    def alias_target(self, alias: str) -> str | None:
        """The collection that an alias points to; None where there is no such alias."""
        found = self._describe(alias)
        name = None if found is None else str(found["collection_name"])
        return None if name == alias else name

    def switch_alias(self, alias: str, collection: str) -> None:
        """Point an alias to a collection, in one step for every reader."""
        current = self.alias_target(alias)
        with self._told(f"point alias {alias} to {collection}"):
            if current is None:
                self._client.create_alias(collection, alias, timeout=self._timeout_s)
            elif current != collection:
                self._client.alter_alias(collection, alias, timeout=self._timeout_s)
        self._widths.pop(alias, None)

    def upsert(self, collection: str, rows: Sequence[UnitRow]) -> None:
        """Write whole rows; of rows with one key the last stays.

        Every row is checked before the first is written. On a server a search shows them at once
        when it is `strong`, else within seconds.

        Raises:
            VectorError: A vector is not finite, is zero or has the wrong width.
            DataError: A text is longer than its field, or is not Unicode.
            StoreError: The store refuses, or its disk is full.
        """
        name, width = self._resolve(collection)
        latest = {row.key: row for row in rows}
        entities = [to_entity(row, width) for row in latest.values()]
        self._load(name)
        for batch in _batches(entities):
            with self._told(f"write {len(batch)} rows to {collection}"), self._writing:
                self._client.upsert(name, batch, timeout=self._timeout_s)

    def delete(self, collection: str, ids: Sequence[str]) -> None:
        """Remove rows by primary key (`UnitRow.key`); a key that is not there is no error."""
        keys = [check_key(key) for key in ids]
        self._load(collection)
        for start in range(0, len(keys), _DELETE_KEYS):
            batch = keys[start : start + _DELETE_KEYS]
            with self._told(f"delete {len(batch)} rows of {collection}"), self._writing:
                self._client.delete(collection, ids=batch, timeout=self._timeout_s)

    def flush(self, collection: str) -> None:
        """Seal what was written; once, at the end of a build (servers limit how often)."""
        with self._told(f"flush {collection}"), self._writing:
            self._client.flush(collection, timeout=self._timeout_s)

    def count(self, collection: str, dialogue_id: str | None = None) -> int:
        """Number of rows, of one dialogue or of all (Strong: every finished write counts)."""
        self._load(collection)
        with self._told(f"count the rows of {collection}"):
            found = self._client.query(
                collection,
                filter=filter_expression(dialogue_id),
                output_fields=["count(*)"],
                consistency_level="Strong",
                timeout=self._timeout_s,
            )
        return int(found[0]["count(*)"])

    def ids(self, collection: str, dialogue_id: str | None = None) -> set[str]:
        """Primary keys (`UnitRow.key`), of one dialogue or of all (Strong)."""
        return {str(row["id"]) for row in self._scan(collection, dialogue_id, ["id"])}

    def digests(self, collection: str, dialogue_id: str | None = None) -> dict[str, str]:
        """The digest under each primary key, of one dialogue or of all (Strong)."""
        rows = self._scan(collection, dialogue_id, ["id", "digest"])
        return {str(row["id"]): str(row["digest"]) for row in rows}

    def fetch(
        self,
        collection: str,
        dialogue_id: str,
        positions: Sequence[int] | None = None,
        *,
        strong: bool = True,
    ) -> list[UnitRow]:
        """Rows of a dialogue with their vectors, by (round, id), in one request.

        An iterator would wait for every finished write at each page, 0.4 s a page on a server.

        Args:
            collection: Where they are.
            dialogue_id: Whose rows.
            positions: Only those of these rounds; None is all rounds.
            strong: As for `search`.

        Raises:
            StoreError: They are 16,384 or more, or the store cannot be read.
        """
        self._load(collection)
        with self._told(f"read rows of {collection}"):
            found = self._client.query(
                collection,
                filter=filter_expression(dialogue_id, positions),
                output_fields=_ROW,
                limit=MAX_LIMIT,
                consistency_level="Strong" if strong else "Bounded",
                timeout=self._timeout_s,
            )
        if len(found) == MAX_LIMIT:
            raise StoreError(f"{MAX_LIMIT:,} rows of {collection} or more: read fewer rounds")
        return sorted(map(from_entity, found), key=lambda row: (row.round, row.id))

    def get(self, collection: str, keys: Sequence[str], *, strong: bool = True) -> list[UnitRow]:
        """The rows of some primary keys (`UnitRow.key`), in no order; others are left out.

        Args:
            collection: Where they are.
            keys: Their keys.
            strong: As for `search`.

        Raises:
            StoreError: A key is none that `unit_key` makes, or the store cannot be read.
        """
        wanted = [check_key(key) for key in keys]
        self._load(collection)
        rows: list[UnitRow] = []
        for start in range(0, len(wanted), _GET_KEYS):
            with self._told(f"read rows of {collection}"):
                found = self._client.query(
                    collection,
                    ids=wanted[start : start + _GET_KEYS],
                    output_fields=_ROW,
                    consistency_level="Strong" if strong else "Bounded",
                    timeout=self._timeout_s,
                )
            rows += [from_entity(entity) for entity in found]
        return rows

    def search(
        self,
        collection: str,
        vector: Vectors,
        dialogue_id: str,
        *,
        positions: Sequence[int] | None = None,
        kinds: Sequence[UnitKind] | None = None,
        limit: int,
        strong: bool = False,
    ) -> list[Hit]:
        """The units of a dialogue nearest to a vector (D,), exactly.

        Bounded: a server may not yet show the rows of the last seconds. `strong` shows every
        finished write and waits up to 0.4 s for it. Lite always shows every write.

        Args:
            collection: Where to search.
            vector: The anchor (D,).
            dialogue_id: Whose units.
            positions: Only units of these rounds; None is all rounds.
            kinds: Only these kinds; None is all kinds.
            limit: Hits at most, 1 to 16,384.
            strong: Wait for every finished write.

        Returns:
            Hits by (-score, position, unit id). Which of several equal scores at the limit are
            among them is the server's choice.

        Raises:
            VectorError: The vector is not finite, is zero or has the wrong width.
            StoreError: The limit is out of range, or the search failed.
        """
        if not 1 <= limit <= MAX_LIMIT:
            raise StoreError(f"a search returns 1 to {MAX_LIMIT} units; {limit} were asked for")
        anchor = check_vector(vector, self._load(collection), "the anchor")
        if (positions is not None and not len(positions)) or (kinds is not None and not kinds):
            return []
        with self._told(f"search {collection}"):
            found = self._client.search(
                collection,
                data=[anchor],
                anns_field="vector",
                filter=filter_expression(dialogue_id, positions, kinds),
                limit=limit,
                output_fields=["round"],
                search_params={"metric_type": "COSINE", "params": {}},
                consistency_level="Strong" if strong else "Bounded",
                timeout=self._timeout_s,
            )
        return sorted(map(_hit, found[0]), key=lambda hit: (-hit.score, hit.position, hit.unit_id))

    def _scan(
        self, collection: str, dialogue_id: str | None, fields: list[str]
    ) -> Iterator[dict[str, Any]]:
        self._load(collection)
        with self._told(f"read the rows of {collection}"):
            pages = self._client.query_iterator(
                collection,
                batch_size=_KEY_PAGE,
                filter=filter_expression(dialogue_id),
                output_fields=fields,
                timeout=self._timeout_s,
            )
            while rows := pages.next():
                yield from rows
            pages.close()

    def _describe(self, collection: str) -> dict[str, Any] | None:
        with self._told(f"describe {collection}"):
            try:
                found = self._client.describe_collection(collection, timeout=self._timeout_s)
            except MilvusException as error:
                if error.code == ErrorCode.COLLECTION_NOT_FOUND:
                    return None
                raise
        return dict(found)

    def _resolve(self, collection: str) -> tuple[str, int]:
        """The real name (pymilvus keeps the schema that an alias had) and D."""
        found = self._describe(collection)
        if found is None:
            raise StoreError(f"there is no collection {collection}; build or create it first")
        params = {field["name"]: field["params"] for field in found["fields"]}
        if set(params) != {*MAX_BYTES, "round", "vector"}:
            raise StoreError(
                f"collection {collection} has fields {', '.join(sorted(params))}, which are not "
                "those of unit rows; choose another name or build it anew"
            )
        return str(found["collection_name"]), int(params["vector"]["dim"])

    def _load(self, collection: str) -> int:
        """D; on first use also index and load, which a process that died may have left undone."""
        if collection not in self._widths:
            name, width = self._resolve(collection)
            with self._told(f"load {collection}"):
                if not self._client.list_indexes(name, timeout=self._timeout_s):
                    index = MilvusClient.prepare_index_params()
                    index.add_index("vector", index_type="FLAT", metric_type="COSINE")
                    # a FLAT index is there at once; `sync` would sleep half a second
                    self._client.create_index(name, index, timeout=self._timeout_s, sync=False)
                self._client.load_collection(name, timeout=self._timeout_s)
            self._widths[collection] = width
        return self._widths[collection]

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """Failures of Milvus as one sentence: its own messages run over many lines."""
        try:
            yield
        except (MilvusException, grpc.RpcError) as error:
            self._widths.clear()  # a Lite server that was started again has nothing loaded
            message = error.message if isinstance(error, MilvusException) else str(error)
            reason = (message.strip().splitlines() or ["no reason given"])[0][:300]
            raise StoreError(f"Milvus at {self._place} could not {what}: {reason}") from error


def _open_lite(folder: Path) -> MilvusClient:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        return MilvusClient(str(folder), grpc_options=_GRPC)
    except ConnectionConfigException as error:
        if _is_locked(folder):
            raise StoreBusyError(
                f"{folder} is in use by another process; end it, or share the folder through "
                "`milvus-lite server` and set store.milvus_uri"
            ) from error
        raise StoreError(
            f"{folder} cannot be opened as a Milvus Lite folder; it is damaged or not writable"
        ) from error
    except OSError as error:
        raise StoreError(f"{folder} cannot be created: {error.strerror}") from error


def _is_locked(folder: Path) -> bool:
    try:
        with (folder / "LOCK").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _batches(entities: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    batch: list[dict[str, Any]] = []
    size = 0
    for entity in entities:
        weight = entity["vector"].nbytes + 4 * sum(len(entity[name]) for name in MAX_BYTES)
        if batch and size + weight > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(entity)
        size += weight
    if batch:
        yield batch


def _hit(found: Any) -> Hit:  # noqa: ANN401 - pymilvus has no types
    return Hit(
        unit_id=unit_id(found["id"]),
        position=int(found["entity"]["round"]),
        score=float(found["distance"]),
    )
