"""One open bank on Milvus Lite and SQLite; encoders and backbone are fakes that say so."""

import asyncio
import subprocess
import sys
import wave
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow

from vmem.bank import Bank
from vmem.config import Settings, replace
from vmem.errors import (
    AudioError,
    DataError,
    EncoderMismatchError,
    ImageError,
    InputError,
    QueryError,
    RoundConflictError,
    UnknownMemoryError,
    VectorError,
)
from vmem.export import export_memory, import_memory
from vmem.stores.searched import MilvusMemory
from vmem.types import Case, Image, Query, Retrieval, Round, Turn

RED, BLUE = (200, 30, 30), (30, 30, 200)


def fake_settings(home: Path, **store: object) -> Settings:
    return replace(
        Settings(),
        store={"home": home, "bank": "test", **store},
        encoders={
            "text": {"kind": "fake"},
            "image": {"kind": "fake"},
        },
        llm={"provider": "fake"},
    )


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return fake_settings(tmp_path / "home")


@pytest.fixture
def bank(settings: Settings) -> Iterator[Bank]:
    with Bank(settings) as opened:
        yield opened


def picture(folder: Path, name: str, colour: tuple[int, int, int]) -> str:
    path = folder / f"{name}.png"
    Pillow.new("RGB", (32, 32), colour).save(path)
    return str(path)


def a_round(name: str, text: str, *images: Image) -> Round:
    turns = (
        Turn(source_id=name, speaker="user", text=text, images=images),
        Turn(source_id=name, speaker="assistant", text=f"noted {name}"),
    )
    return Round(id=name, position=0, session="D1", time="2026-03-02T10:00", turns=turns)


def some_rounds(folder: Path) -> list[Round]:
    red = Image(id="IMG_1", uri=picture(folder, "red", RED), caption="a red kite")
    blue = Image(id="IMG_2", uri=picture(folder, "blue", BLUE), caption="a blue boat")
    return [
        a_round("r1", "the harbour opens at nine"),
        a_round("r2", "my kite", red),
        a_round("r3", "lunch was soup"),
        a_round("r4", "my boat", blue),
    ]


def search(bank: Bank, text: str, image: str | None = None) -> Retrieval:
    picture = Image(id="query", uri=image) if image else None
    return asyncio.run(bank.search("trip", Query(text=text, image=picture)))


def first(found: Retrieval) -> int:
    return found.ranked[0].position


def ids(rounds: Sequence[Round]) -> list[str]:
    return [round_.id for round_ in rounds]


def test_what_is_appended_is_found_by_text_and_by_picture(bank: Bank, tmp_path: Path) -> None:
    appended = bank.append("trip", some_rounds(tmp_path))
    assert ids(appended.added) == ["r1", "r2", "r3", "r4"]
    assert first(search(bank, "when does the harbour open?")) == 0
    asked = search(bank, "what did I call this?", picture(tmp_path, "other", BLUE))
    assert asked.route.case is Case.IMAGE_TEXT_TO_TEXT
    assert asked.ranked[0].position == 3


def test_rounds_can_be_appended_as_the_conversation_happens(bank: Bank, tmp_path: Path) -> None:
    rounds = some_rounds(tmp_path)
    for round_ in rounds:
        bank.append("trip", [round_])
        assert bank.memory("trip").rounds[-1].id == round_.id
    whole = search(bank, "harbour kite boat")
    bank.append("other", rounds)
    at_once = asyncio.run(bank.search("other", Query(text="harbour kite boat")))
    assert whole.ranked == at_once.ranked
    assert whole.context == at_once.context


def test_an_append_extends_what_is_held_and_reads_nothing_again(
    bank: Bank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = some_rounds(tmp_path)
    bank.append("trip", rounds[:1])
    search(bank, "harbour")
    fetched: list[str] = []
    fetch = bank.store.fetch
    monkeypatch.setattr(
        bank.store, "fetch", lambda *a, **o: (fetched.append(a[0]), fetch(*a, **o))[1]
    )
    for round_ in rounds[1:]:
        bank.append("trip", [round_])
    asked = search(bank, "what did I call this?", picture(tmp_path, "other", BLUE))
    assert fetched == []
    monkeypatch.undo()
    bank.reload()
    again = search(bank, "what did I call this?", picture(tmp_path, "other", BLUE))
    assert asked.ranked == again.ranked
    assert asked.ranked[0].position == 3


def test_the_same_round_again_is_no_change(bank: Bank, tmp_path: Path) -> None:
    rounds = some_rounds(tmp_path)
    bank.append("trip", rounds)
    again = bank.append("trip", rounds)
    assert (again.added, again.unchanged) == ((), 4)
    assert bank.memories()[0].rounds == 4


def test_another_round_under_a_known_id_is_refused_whole(bank: Bank, tmp_path: Path) -> None:
    bank.append("trip", some_rounds(tmp_path))
    with pytest.raises(RoundConflictError, match="r1"):
        green = Image(id="IMG_9", uri=picture(tmp_path, "green", (30, 200, 30)))
        bank.append("trip", [a_round("r9", "new", green), a_round("r1", "the harbour never opens")])
    assert bank.memories()[0].rounds == 4
    assert bank.media.count() == 2, "the refused picture is gone, the others stay"


def test_a_picture_that_cannot_be_used_leaves_the_memory_as_it_was(
    bank: Bank, tmp_path: Path
) -> None:
    bank.append("trip", [a_round("r1", "the harbour")])
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"\x89PNG not really")
    with pytest.raises(ImageError, match=r"broken\.png"):
        bank.append("trip", [a_round("r2", "look", Image(id="X", uri=str(broken)))])
    assert bank.memories()[0].rounds == 1


def test_a_memory_outlives_its_process(settings: Settings, tmp_path: Path) -> None:
    with Bank(settings) as bank:
        bank.append("trip", some_rounds(tmp_path))
        before = search(bank, "harbour")
    with Bank(settings) as bank:
        assert search(bank, "harbour").ranked == before.ranked


def test_what_the_log_holds_and_the_index_lost_is_healed(
    settings: Settings, tmp_path: Path
) -> None:
    with Bank(settings) as bank:
        bank.append("trip", some_rounds(tmp_path))
        before = search(bank, "harbour kite", picture(tmp_path, "other", RED))
        texts = sorted(bank.store.ids(bank.record.text_collection))
        bank.store.delete(bank.record.text_collection, texts[:3])
        images = sorted(bank.store.ids(bank.record.image_collection))
        bank.store.delete(bank.record.image_collection, images[:1])
    with Bank(settings) as bank:
        assert search(bank, "harbour kite", picture(tmp_path, "other", RED)).ranked == before.ranked
        assert bank.store.count(bank.record.text_collection) == len(texts)


def test_a_crash_between_log_and_index_loses_nothing(settings: Settings, tmp_path: Path) -> None:
    with Bank(settings) as bank:
        bank.append("trip", some_rounds(tmp_path)[:2])
        bank.catalogue.append("test", "trip", [a_round("r7", "the lighthouse is striped")])
    with Bank(settings) as bank:
        assert first(search(bank, "which lighthouse is striped")) == 2
        info = bank.memories()[0]
        assert info.version == info.indexed_version


def test_a_deleted_memory_leaves_nothing_behind(bank: Bank, tmp_path: Path) -> None:
    rounds = some_rounds(tmp_path)
    bank.append("trip", rounds)
    bank.append("other", rounds[:2])
    bank.delete("trip")
    with pytest.raises(UnknownMemoryError, match="trip"):
        search(bank, "harbour")
    assert bank.store.count(bank.record.text_collection, "trip") == 0
    assert bank.store.count(bank.record.image_collection, "trip") == 0
    assert bank.media.count() == 1, "the picture that the other memory holds stays"
    bank.append("trip", [a_round("r1", "a new start")])
    assert ids(bank.rounds("trip")) == ["r1"]


def test_memories_of_a_bank_do_not_see_each_other(bank: Bank, tmp_path: Path) -> None:
    bank.append("trip", [a_round("r1", "the harbour")])
    bank.append("trip 2", [a_round("r1", "the secret is zebra")])
    assert "zebra" not in search(bank, "secret zebra").context.text


def test_a_bank_of_other_encoders_is_refused(settings: Settings) -> None:
    with Bank(settings) as bank:
        bank.append("trip", [a_round("r1", "the harbour")])
    other = replace(settings, encoders={"image": {"kind": "none"}})
    with Bank(other) as bank, pytest.raises(EncoderMismatchError, match="image_encoder"):
        bank.append("trip", [a_round("r2", "the boat")])


def test_a_store_that_another_process_holds_says_so(settings: Settings) -> None:
    with Bank(settings) as bank:
        bank.append("trip", [a_round("r1", "the harbour")])
        other = subprocess.run(
            [sys.executable, "-c", OPEN_STORE, str(settings.store.home)],
            capture_output=True,
            text=True,
            check=False,
        )
    assert other.stderr == ""
    assert other.stdout.startswith("StoreBusyError")


OPEN_STORE = """
import sys
import wave
from pathlib import Path
from vmem.bank import Bank
from vmem.config import Settings, replace
from vmem.errors import StoreBusyError
settings = replace(Settings(), store={"home": Path(sys.argv[1]), "bank": "test"})
try:
    Bank(settings).store.collections()
except StoreBusyError as error:
    print("StoreBusyError", error)
"""


def test_an_encoder_gone_wrong_is_named_and_the_log_stays_the_truth(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = bank.parts.text_encoder
    monkeypatch.setattr(
        encoder, "encode", lambda texts: np.full((len(texts), 32), np.nan, dtype=np.float32)
    )
    with pytest.raises(VectorError, match=r"r1/text/1.*the 1 rounds are in the log of trip"):
        bank.append("trip", [a_round("r1", "the harbour")])
    assert bank.store.count(bank.record.text_collection) == 0
    monkeypatch.undo()
    assert first(search(bank, "harbour")) == 0


@pytest.mark.parametrize(
    ("text", "said"), [("", "empty"), ("  \n", "empty"), ("x" * 100_000, "100,000")]
)
def test_an_unusable_query_is_refused_before_anything_is_loaded(
    bank: Bank, text: str, said: str
) -> None:
    bank.append("trip", [a_round("r1", "the harbour")])
    with pytest.raises(QueryError, match=said):
        search(bank, text)


def test_asking_answers_from_the_context(bank: Bank, tmp_path: Path) -> None:
    bank.append("trip", some_rounds(tmp_path))
    answer = asyncio.run(bank.ask("trip", Query(text="when does the harbour open?")))
    assert "the harbour opens at nine" in answer.prompt
    assert answer.text
    assert [usage.role for usage in answer.usage] == ["answer"]
    assert answer.seconds.keys() >= {"route", "encode", "search", "fuse", "assemble", "answer"}


def test_a_large_memory_is_searched_by_milvus_with_the_same_result(
    settings: Settings, tmp_path: Path
) -> None:
    queries = [("harbour soup", None), ("Which image shows a boat?", None)]
    queries.append(("what is this?", picture(tmp_path, "other", RED)))
    with Bank(settings) as bank:
        bank.append("trip", some_rounds(tmp_path))
        exact = [search(bank, *query).ranked for query in queries]
    with Bank(replace(settings, store={"exact_limit": 3})) as bank:
        assert isinstance(bank.memory("trip"), MilvusMemory)
        searched = [search(bank, *query).ranked for query in queries]
    assert [[item.position for item in ranked] for ranked in searched] == [
        [item.position for item in ranked] for ranked in exact
    ]
    assert [[item.ranks for item in ranked] for ranked in searched] == [
        [item.ranks for item in ranked] for ranked in exact
    ]


def test_an_export_can_be_imported_elsewhere(
    settings: Settings, bank: Bank, tmp_path: Path
) -> None:
    bank.append("trip", some_rounds(tmp_path))
    folder = tmp_path / "out"
    assert export_memory(bank, "trip", folder) == 4
    with pytest.raises(InputError, match="already"):
        export_memory(bank, "trip", folder)
    with Bank(fake_settings(tmp_path / "elsewhere")) as other:
        assert len(import_memory(other, "copy", folder).added) == 4
        assert import_memory(other, "copy", folder).unchanged == 4
        found = asyncio.run(other.search("copy", Query(text="harbour kite boat")))
    assert found.ranked == search(bank, "harbour kite boat").ranked


def voice_message(folder: Path) -> str:
    path = folder / "voice.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(b"\0\0" * 1600)
    return str(path)


def a_voice_round(folder: Path) -> Round:
    turn = Turn(
        source_id="v1",
        speaker="user",
        audio=voice_message(folder),
        transcript="the spare key hangs behind the oven",
    )
    return Round(id="v1", position=0, session="D1", time="2026-03-02", turns=(turn,))


def test_a_voice_message_is_found_by_its_words_and_kept_with_them(
    bank: Bank, tmp_path: Path
) -> None:
    bank.append("trip", [a_round("r1", "the harbour"), a_voice_round(tmp_path)])
    found = search(bank, "where does the spare key hang?")
    assert first(found) == 1
    assert "[Audio: the spare key hangs behind the oven]" in found.context.text
    (tmp_path / "voice.wav").unlink()
    assert export_memory(bank, "trip", tmp_path / "out") == 2
    assert len(list((tmp_path / "out" / "audio").iterdir())) == 1
    assert import_memory(bank, "copy", tmp_path / "out").added[1].turns[0].transcript
    bank.delete("trip")
    assert bank.media.count() == 1, "the copy still holds the voice message"
    bank.delete("copy")
    assert bank.media.count() == 0


def test_a_voice_message_that_is_no_audio_is_refused(bank: Bank, tmp_path: Path) -> None:
    round_ = a_voice_round(tmp_path)
    (tmp_path / "voice.wav").write_text("#EXTM3U\nfile:///etc/passwd")
    with pytest.raises(AudioError, match=r"voice\.wav"):
        bank.append("trip", [round_])
    assert bank.memories() == []


@pytest.mark.parametrize(
    ("text", "said"), [("", "no text and no image"), ("é" * 40_000, "80,000 bytes")]
)
def test_what_the_index_cannot_take_never_reaches_the_log(bank: Bank, text: str, said: str) -> None:
    turn = Turn(source_id="r1", speaker="user", text=text)
    round_ = Round(id="r1", position=0, session="D1", time="2026-03-02", turns=(turn,))
    with pytest.raises(DataError, match=said):
        bank.append("trip", [a_round("r0", "the harbour"), round_])
    assert bank.memories() == []
