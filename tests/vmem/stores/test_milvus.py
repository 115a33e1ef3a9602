"""One contract for the unit rows, held by Milvus Lite and by a real server."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from pymilvus import DataType

from vmem.errors import DataError, StoreError, VectorError
from vmem.stores import milvus as milvus_module
from vmem.stores.milvus import MilvusStore, UnitRow, unit_key
from vmem.types import UnitKind

WIDTH = 8
HOSTILE = [
    'a" or dialogue_id != "',
    "a' or id != '",
    "a\\",
    "{dialogue}",
    "a\nb\x00c\x7f",
    "100%25",
    "100%",
    "日本 語🎈",
    "\u2028",
    "",
]
_names = itertools.count()


@pytest.fixture(
    scope="module",
    params=["lite", "lite_server", pytest.param("server", marks=pytest.mark.services)],
)
def uri(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    if request.param != "lite":
        return str(request.getfixturevalue(f"milvus_{request.param}"))
    return str(tmp_path_factory.mktemp("lite") / "units.db")


@pytest.fixture(scope="module")
def store(uri: str) -> Iterator[MilvusStore]:
    store = MilvusStore(uri)
    yield store
    store.close()


@pytest.fixture
def units(store: MilvusStore) -> Iterator[str]:
    """The name of an empty collection."""
    name = f"units_{next(_names)}"
    store.create(name, WIDTH)
    yield name
    store.drop(name)


def unit_row(position: int = 0, dialogue_id: str = "d", **changes: Any) -> UnitRow:
    values: dict[str, Any] = {
        "id": f"r{position}/text/0",
        "dialogue_id": dialogue_id,
        "round": position,
        "session": "s1",
        "time": "2023-05-08T13:56",
        "kind": UnitKind.TEXT,
        "source_id": f"D1:{position}",
        "image_uri": "",
        "digest": f"digest {position}",
        "text": f"text {position}",
        "vector": basis(position % WIDTH),
    }
    return UnitRow(**{**values, **changes})


def basis(axis: int) -> npt.NDArray[np.float32]:
    vector = np.zeros(WIDTH, dtype=np.float32)
    vector[axis] = 1
    return vector


def random_rows(count: int, dialogues: int) -> list[UnitRow]:
    rng = np.random.default_rng(7)
    kinds = list(UnitKind)
    return [
        unit_row(
            i // 2,
            dialogue_id=f"d{i % dialogues}",
            id=f"r{i // 2}/{i}",
            kind=kinds[i % len(kinds)],
            vector=rng.standard_normal(WIDTH).astype(np.float32),
        )
        for i in range(count)
    ]


def fields(row: UnitRow) -> dict[str, Any]:
    return {
        name: getattr(row, name) for name in UnitRow.__dataclass_fields__ if name != "vector"
    } | {"vector": row.vector.tolist()}


def cosine(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> float:
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def test_collections_are_created_and_dropped(store: MilvusStore, units: str) -> None:
    assert store.exists(units)
    assert units in store.collections()
    assert store.width(units) == WIDTH
    assert store.count(units) == 0
    with pytest.raises(StoreError, match="exists already"):
        store.create(units, WIDTH)
    store.drop(units)
    assert not store.exists(units)
    assert units not in store.collections()
    store.drop(units)
    store.create(units, 3)
    assert store.width(units) == 3


def test_a_row_comes_back_as_it_was_written(store: MilvusStore, units: str) -> None:
    vector = np.linspace(-3, 5, WIDTH, dtype=np.float32)
    row = unit_row(
        4,
        dialogue_id="conv-26",
        id='D1:3 "q"/caption/0',
        session='s"1\\',
        time="2023-05-08",
        kind=UnitKind.CAPTION,
        source_id="D1:'3'",
        image_uri="s3://bucket/ab/cd.png",
        text="line\nبيت 🎈 \x00 \"'\\ %25",
        vector=vector,
    )
    store.upsert(units, [row])
    [found] = store.fetch(units, "conv-26")
    assert fields(found) == fields(row)
    assert found.vector.dtype == np.float32


def test_a_text_may_fill_its_field_to_the_last_byte(store: MilvusStore, units: str) -> None:
    full = "é" * 32_767 + "x"
    assert len(full.encode()) == 65_535
    store.upsert(units, [unit_row(text=full)])
    assert store.fetch(units, "d")[0].text == full


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"text": "é" * 32_768}, "text of unit 'r1/text/0' of 'd' has 65536 bytes"),
        ({"dialogue_id": "é" * 513}, "dialogue_id of unit .* has 1026 bytes"),
        ({"text": "half a pair \ud83d"}, "text of unit 'r1/text/0' of 'd' is not Unicode"),
    ],
)
def test_a_text_that_does_not_fit_stops_the_whole_write(
    store: MilvusStore, units: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        store.upsert(units, [unit_row(0), unit_row(1, **changes)])
    assert store.count(units) == 0


@pytest.mark.parametrize(
    "vector",
    [
        np.full(WIDTH, np.nan, dtype=np.float32),
        np.array([np.inf] + [0] * (WIDTH - 1), dtype=np.float32),
        np.zeros(WIDTH, dtype=np.float32),
        np.full(WIDTH, 1e-30, dtype=np.float32),
        np.full(WIDTH, 1e30, dtype=np.float32),
        np.ones(WIDTH + 1, dtype=np.float32),
        np.ones((1, WIDTH), dtype=np.float32),
    ],
    ids=["nan", "inf", "zero", "length under float32", "length over float32", "wide", "two axes"],
)
def test_an_unusable_vector_stops_the_whole_write(
    store: MilvusStore, units: str, vector: npt.NDArray[np.float32]
) -> None:
    with pytest.raises(VectorError, match="unit 'r1/text/0' of 'd'"):
        store.upsert(units, [unit_row(0), unit_row(1, vector=vector)])
    assert store.count(units) == 0
    with pytest.raises(VectorError, match="the anchor"):
        store.search(units, vector, "d", limit=1)


def test_rows_of_one_key_replace_each_other(store: MilvusStore, units: str) -> None:
    store.upsert(units, [unit_row(text="first"), unit_row(text="second")])
    assert [row.text for row in store.fetch(units, "d")] == ["second"]
    store.upsert(units, [unit_row(text="third", vector=basis(5))])
    assert store.count(units) == 1
    [row] = store.fetch(units, "d")
    assert (row.text, row.vector.tolist()) == ("third", basis(5).tolist())
    store.upsert(units, [])
    assert store.count(units) == 1


def test_reads_cross_pages_and_keep_to_their_dialogue(
    store: MilvusStore, units: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(milvus_module, "_KEY_PAGE", 7)
    rows = random_rows(50, dialogues=2)
    store.upsert(units, rows[:30])
    store.flush(units)
    store.upsert(units, rows[20:])
    mine = [row for row in rows if row.dialogue_id == "d1"]
    assert (store.count(units), store.count(units, "d1"), store.count(units, "d9")) == (50, 25, 0)
    assert store.ids(units) == {row.key for row in rows}
    assert store.ids(units, "d1") == {row.key for row in mine}
    assert store.digests(units) == {row.key: row.digest for row in rows}
    assert store.digests(units, "d1") == {row.key: row.digest for row in mine}
    expected = sorted(mine, key=lambda row: (row.round, row.id))
    assert [fields(row) for row in store.fetch(units, "d1")] == [fields(row) for row in expected]
    assert store.fetch(units, "d9") == []
    some = [row.round for row in mine[:3]]
    assert [row.round for row in store.fetch(units, "d1", some)] == sorted(some)
    assert store.fetch(units, "d1", []) == []


def test_a_dialogue_that_one_request_cannot_hold_is_read_by_rounds(
    store: MilvusStore, units: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(milvus_module, "MAX_LIMIT", 10)
    store.upsert(units, random_rows(10, dialogues=1))
    with pytest.raises(StoreError, match="read fewer rounds"):
        store.fetch(units, "d0")
    assert len(store.fetch(units, "d0", range(4))) == 8


def test_rows_are_read_by_key(
    store: MilvusStore, units: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(milvus_module, "_GET_KEYS", 3)
    rows = [unit_row(n, dialogue_id="a/b" if n % 2 else 'it\'s "%2F"') for n in range(10)]
    store.upsert(units, rows)
    wanted = rows[1:9]
    found = store.get(units, [row.key for row in wanted] + [unit_key("nobody", "r0/text/0")])
    assert sorted(map(fields, found), key=str) == sorted(map(fields, wanted), key=str)
    assert store.get(units, []) == []
    with pytest.raises(StoreError, match="is no primary key"):
        store.get(units, ['" or id != "'])


def test_writes_are_cut_into_messages_of_bounded_size(
    store: MilvusStore, units: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(milvus_module, "BATCH_BYTES", 20_000)
    sizes: list[int] = []
    upsert = store._client.upsert

    def counted(name: str, batch: list[dict[str, Any]], **options: Any) -> Any:
        sizes.append(sum(len(entity["text"].encode()) for entity in batch))
        return upsert(name, batch, **options)

    monkeypatch.setattr(store._client, "upsert", counted)
    store.upsert(units, [unit_row(i, text="日" * 1000) for i in range(20)])
    assert sum(sizes) == 20 * 3000
    assert max(sizes) <= 20_000
    store.upsert(units, [unit_row(20, text="x" * 50_000)])
    assert store.count(units) == 21


def test_search_is_exact_under_every_filter(store: MilvusStore, units: str) -> None:
    rows = random_rows(120, dialogues=3)
    store.upsert(units, rows)
    anchor = np.linspace(1, 2, WIDTH, dtype=np.float32)
    # far more positions than there are, as for the image filter of a long memory
    for positions in (None, [3, 4, 5, 6, 30, 59], range(5, 5_000)):
        for kinds in (None, [UnitKind.CAPTION], [UnitKind.TEXT, UnitKind.AUDIO]):
            hits = store.search(
                units, anchor, "d1", positions=positions, kinds=kinds, limit=9, strong=True
            )
            expected = sorted(
                (
                    (-cosine(anchor, row.vector), row.round, row.id)
                    for row in rows
                    if row.dialogue_id == "d1"
                    and (positions is None or row.round in positions)
                    and (kinds is None or row.kind in kinds)
                ),
            )[:9]
            assert [(hit.position, hit.unit_id) for hit in hits] == [e[1:] for e in expected]
            assert [hit.score for hit in hits] == pytest.approx([-e[0] for e in expected])


def test_equal_scores_go_by_position_then_id(store: MilvusStore, units: str) -> None:
    rows = [
        unit_row(position, id=f"r{position}/{name}", vector=basis(0) * (position + 1))
        for position in (11, 2, 7)
        for name in ("b", "a")
    ]
    store.upsert(units, [*rows, unit_row(1, vector=basis(0) + basis(1))])
    hits = store.search(units, basis(0), "d", limit=20, strong=True)
    assert [hit.unit_id for hit in hits] == [
        *("r2/a", "r2/b", "r7/a", "r7/b", "r11/a", "r11/b"),
        "r1/text/0",
    ]
    assert hits[-1].score == pytest.approx(1 / np.sqrt(2))


def test_a_search_among_nothing_finds_nothing(store: MilvusStore, units: str) -> None:
    store.upsert(units, [unit_row()])
    assert store.search(units, basis(0), "d", positions=[], limit=3, strong=True) == []
    assert store.search(units, basis(0), "d", kinds=[], limit=3, strong=True) == []
    assert store.search(units, basis(0), "other", limit=3, strong=True) == []
    for limit in (0, 16_385):
        with pytest.raises(StoreError, match=f"1 to 16384 units; {limit} were"):
            store.search(units, basis(0), "d", limit=limit)


def test_no_dialogue_id_breaks_out_of_its_filter(store: MilvusStore, units: str) -> None:
    rows = [unit_row(n, dialogue_id=name, id=f"{name}/text/0") for n, name in enumerate(HOSTILE)]
    store.upsert(units, rows)
    assert store.count(units) == len(HOSTILE)
    for row in rows:
        assert [fields(found) for found in store.fetch(units, row.dialogue_id)] == [fields(row)]
        hits = store.search(units, row.vector, row.dialogue_id, limit=20, strong=True)
        assert [hit.unit_id for hit in hits] == [row.id]
    for gone, row in enumerate(rows, start=1):
        store.delete(units, [row.key])
        assert store.count(units) == len(HOSTILE) - gone


def test_slashes_in_ids_never_make_two_rows_one(store: MilvusStore, units: str) -> None:
    pairs = [("a", "b/c"), ("a/b", "c"), ("a%2Fb", "c"), ("a", "b%2Fc")]
    assert unit_key("conv-26", "D1:3/text/0") == "conv-26/D1:3/text/0"
    store.upsert(units, [unit_row(dialogue_id=dialogue, id=unit) for dialogue, unit in pairs])
    assert store.count(units) == len(pairs)
    assert [row.id for row in store.fetch(units, "a/b")] == ["c"]


def test_deleted_rows_are_gone(store: MilvusStore, units: str) -> None:
    rows = [unit_row(position) for position in range(4)]
    store.upsert(units, rows)
    store.delete(units, [rows[1].key, rows[2].key, unit_key("d", "never there")])
    store.delete(units, [])
    assert store.ids(units) == {rows[0].key, rows[3].key}
    found = store.search(units, basis(1), "d", limit=9, strong=True)
    assert [hit.position for hit in found] == [0, 3]
    for key in ("d/x' or id != '", "no slash"):
        with pytest.raises(StoreError, match="is no primary key"):
            store.delete(units, [key])
    assert store.count(units) == 2


def test_a_flushed_collection_still_finds_everything(store: MilvusStore, units: str) -> None:
    store.upsert(units, [unit_row(0)])
    store.flush(units)
    store.upsert(units, [unit_row(1)])
    assert [hit.position for hit in store.search(units, basis(1), "d", limit=2, strong=True)] == [
        1,
        0,
    ]


def test_an_alias_moves_to_another_collection_at_once(store: MilvusStore, units: str) -> None:
    alias, second = f"{units}_live", f"{units}_second"
    assert store.alias_target(alias) is None
    assert store.alias_target(units) is None
    store.create(second, WIDTH + 1)
    store.switch_alias(alias, units)
    store.switch_alias(alias, units)
    assert store.alias_target(alias) == units
    assert store.exists(alias)
    assert alias not in store.collections()
    store.upsert(alias, [unit_row(0)])
    assert (store.count(alias), store.width(alias)) == (1, WIDTH)
    with pytest.raises(StoreError, match=f"in use as {alias}"):
        store.drop(units)
    # the second collection's vectors are wider, which the first one's schema would refuse
    store.switch_alias(alias, second)
    wide = [unit_row(position, vector=np.ones(WIDTH + 1)) for position in (5, 6)]
    store.upsert(alias, wide)
    assert (store.count(alias), store.count(units), store.count(second)) == (2, 1, 2)
    found = store.search(alias, np.ones(WIDTH + 1, dtype=np.float32), "d", limit=9, strong=True)
    assert [hit.position for hit in found] == [5, 6]
    store.drop(units)
    store.create(units, WIDTH)
    store.switch_alias(alias, units)
    assert store.count(alias) == 0
    store.drop(second)
    store._client.drop_alias(alias)


def test_a_name_that_is_a_collection_cannot_become_an_alias(store: MilvusStore, units: str) -> None:
    with pytest.raises(StoreError, match=f"point alias {units} to {units}"):
        store.switch_alias(units, units)


def test_what_was_written_outlives_the_store(store: MilvusStore, units: str, uri: str) -> None:
    store.upsert(units, [unit_row(position) for position in range(3)])
    again = MilvusStore(uri)
    assert again.count(units) == 3
    assert len(again.search(units, basis(0), "d", limit=9, strong=True)) == 3
    again.close()
    assert store.count(units) == 3


def test_a_collection_left_half_made_becomes_usable(store: MilvusStore) -> None:
    name = f"units_{next(_names)}"
    whole = f"units_{next(_names)}"
    store.create(whole, WIDTH)
    described = store._client.describe_collection(whole)
    schema = store._client.create_schema(auto_id=False, enable_dynamic_field=False)
    for field in described["fields"]:
        options = dict(field["params"]) | ({"is_primary": True} if field["name"] == "id" else {})
        schema.add_field(field["name"], DataType(field["type"]), **options)
    store._client.create_collection(name, schema=schema)
    assert store._client.list_indexes(name) == []
    store.upsert(name, [unit_row()])
    assert [hit.position for hit in store.search(name, basis(0), "d", limit=1, strong=True)] == [0]
    store.drop(name)
    store.drop(whole)


def test_an_unknown_collection_is_named(store: MilvusStore) -> None:
    for ask in (
        lambda: store.width("nowhere"),
        lambda: store.count("nowhere"),
        lambda: store.ids("nowhere"),
        lambda: store.fetch("nowhere", "d"),
        lambda: store.upsert("nowhere", [unit_row()]),
        lambda: store.delete("nowhere", ["d/x"]),
        lambda: store.search("nowhere", basis(0), "d", limit=1),
    ):
        with pytest.raises(StoreError, match="there is no collection nowhere"):
            ask()
    assert not store.exists("nowhere")
    assert store.alias_target("nowhere") is None


def test_a_collection_of_another_kind_is_refused(store: MilvusStore) -> None:
    name = f"units_{next(_names)}"
    store._client.create_collection(name, dimension=4)
    with pytest.raises(StoreError, match=f"collection {name} has fields id, vector, which are not"):
        store.width(name)
    store.drop(name)


def test_a_server_that_is_not_there_is_named_without_its_password() -> None:
    with pytest.raises(
        StoreError, match=r"Milvus at 127\.0\.0\.1:9 could not be reached"
    ) as caught:
        MilvusStore("http://root:secret@127.0.0.1:9", timeout_s=2)
    assert "secret" not in str(caught.value)
    with pytest.raises(StoreError, match="Milvus at nonsense could not be reached"):
        MilvusStore("nonsense")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"file/units\.db"):
        MilvusStore(str(tmp_path / "file" / "units.db"))
