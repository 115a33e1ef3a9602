"""The read path in its order, on a small memory in process; encoders and backbone are fakes."""

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace as with_
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow

from vmem.build import hot_memory
from vmem.config import Settings, replace
from vmem.encoders.fake import FakeImageEncoder, FakeTextEncoder
from vmem.errors import (
    ConfigError,
    ImageError,
    ModelTimeoutError,
    ModelUnavailableError,
    QueryError,
)
from vmem.images import read_image
from vmem.llm.fake import FakeChat
from vmem.pipeline import PROMPT_TOKENS, Parts, _budget, ask, retrieve, stream_ask
from vmem.ports import ChatReply, ChatRequest, Mask, UnitScores, Vectors
from vmem.prompts import Prompts
from vmem.rounds import exchange
from vmem.stores.hot import HotMemory
from vmem.tokens import estimate_tokens
from vmem.types import Case, Dialogue, Failure, Image, Query, Retrieval, Signal, Usage

COLOURS = {"red": (220, 20, 20), "green": (20, 220, 20), "blue": (20, 20, 220)}
CAPTIONS = {"red": "a scarlet kite", "green": "a lime frog", "blue": "a navy boat"}
WAIT_S = 20


class Recorder:
    """Writes down what is asked of whom, in order."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def __call__(self, event: str) -> None:
        self.events.append(event)


class HeardText(FakeTextEncoder):
    """Notes each text that it encodes."""

    def __init__(self, heard: Recorder) -> None:
        super().__init__()
        self.heard = heard

    def encode(self, texts: Sequence[str]) -> Vectors:
        self.heard(f"text {texts[0]}")
        return super().encode(texts)


class HeardImage(FakeImageEncoder):
    """Notes that it encodes a picture."""

    def __init__(self, heard: Recorder) -> None:
        super().__init__()
        self.heard = heard

    def encode(self, images: Sequence[Pillow.Image]) -> Vectors:
        self.heard("picture")
        return super().encode(images)


class HeardMemory(HotMemory):
    """Notes each signal that is searched, and what with."""

    heard: Recorder

    def score(
        self,
        signal: Signal,
        anchor: str | Vectors,
        candidate_R: Mask | None,
        *,
        pool: int | None,
        with_captions: bool,
    ) -> UnitScores:
        self.heard(f"search {signal.value}" + (f" {anchor}" if isinstance(anchor, str) else ""))
        return super().score(signal, anchor, candidate_R, pool=pool, with_captions=with_captions)


@pytest.fixture
def settings() -> Settings:
    fakes = {"text": {"kind": "fake"}, "image": {"kind": "fake"}}
    return replace(Settings(), encoders=fakes, answer={"context_tokens": 2000})


@pytest.fixture
def heard() -> Recorder:
    return Recorder()


def picture(folder: Path, name: str, size: int = 16) -> str:
    path = folder / f"{name}-{size}.png"
    Pillow.new("RGB", (size, size), COLOURS[name]).save(path)
    return str(path)


def parts_of(chat: Any = None, **changes: Any) -> Parts:
    parts = Parts(
        text_encoder=FakeTextEncoder(),
        image_encoder=FakeImageEncoder(),
        chat=chat,
        prompts=Prompts(Settings().prompts),
        read_image=read_image,
    )
    return with_(parts, **changes)


@pytest.fixture
def memory(tmp_path: Path, settings: Settings) -> HotMemory:
    """Nine rounds: pictures in rounds 1, 4 and 7, words everywhere."""
    shared = {1: "red", 4: "green", 7: "blue"}
    rounds = []
    for n in range(9):
        name = shared.get(n)
        images = (
            [Image(id=f"IMG_{name}", uri=picture(tmp_path, name), caption=CAPTIONS[name])]
            if name
            else []
        )
        round_ = exchange(
            f"r{n}", session="D1", time="2026-03-02", user=f"word{n} said", images=images
        )
        rounds.append(with_(round_, position=n))
    return hot_memory(Dialogue(id="d", rounds=tuple(rounds)), settings, parts_of())


def run(query: Query, memory: HotMemory, parts: Parts, settings: Settings) -> Retrieval:
    return asyncio.run(retrieve(query, memory, parts, settings))


def shown(folder: Path, text: str, name: str = "blue") -> Query:
    """A question that comes with a picture of a colour, other than the one stored."""
    return Query(text=text, image=Image(id="asked", uri=picture(folder, name, size=24)))


def keywords(*terms: str, caption: str = "a boat at sea") -> str:
    return json.dumps({"keywords": list(terms), "caption": caption})


def seeing(reply: str, answer: str = "fine") -> FakeChat:
    return FakeChat(
        lambda request: reply if request.role == "keywords" else answer, sees_images=True
    )


def test_the_six_steps_come_in_order(
    memory: HotMemory, tmp_path: Path, settings: Settings, heard: Recorder
) -> None:
    def model(request: ChatRequest) -> str:
        heard(f"model {request.role}")
        return keywords("word7")

    watched = HeardMemory.__new__(HeardMemory)
    watched.__dict__ |= memory.__dict__ | {"heard": heard}
    parts = parts_of(
        FakeChat(model, sees_images=True),
        text_encoder=HeardText(heard),
        image_encoder=HeardImage(heard),
    )
    query = shown(tmp_path, "what did I call this?")
    answer = asyncio.run(ask(query, watched, parts, settings))
    assert sorted(heard.events[:2]) == ["model keywords", "picture"], "these two are side by side"
    assert heard.events[2:] == [
        "text what did I call this? word7",
        "search text_dense",
        "search text_sparse what did I call this? word7",
        "search visual",
        "model answer",
    ]
    assert answer.retrieval.route.case is Case.IMAGE_TEXT_TO_TEXT
    assert answer.retrieval.ranked[0].position == 7
    assert answer.retrieval.context.text in answer.prompt
    assert [usage.role for usage in answer.usage] == ["keywords", "answer"]
    steps = ["encode", "anchors", "search", "fuse", "assemble", "answer"]
    assert answer.seconds.keys() == {"route", *steps}


def test_captions_are_searched_with_a_hypothetical_caption(
    memory: HotMemory, settings: Settings, heard: Recorder
) -> None:
    chat = FakeChat(["a lime frog on a leaf"])
    question = "Which picture shows word0?"
    found = run(Query(text=question), memory, parts_of(chat), settings)
    assert found.route.case is Case.TEXT_TO_IMAGE
    assert found.anchors.by_signal == {
        Signal.TEXT_DENSE: question,
        Signal.TEXT_SPARSE: question,
        Signal.CAPTION_DENSE: "a lime frog on a leaf",
        Signal.CAPTION_SPARSE: "a lime frog on a leaf",
    }
    ranks = {item.position: item.ranks for item in found.ranked}
    assert ranks[4][Signal.CAPTION_DENSE] == ranks[4][Signal.CAPTION_SPARSE] == 1
    assert [request.role for request in chat.requests] == ["hypo_caption"]


def test_a_counting_question_asks_no_model(memory: HotMemory, settings: Settings) -> None:
    chat = FakeChat([])
    found = run(Query(text="How many photos show a lime frog?"), memory, parts_of(chat), settings)
    assert found.route.case is Case.TEXT_TO_IMAGE
    assert chat.requests == []
    assert set(found.anchors.by_signal.values()) == {"How many photos show a lime frog?"}
    assert found.ranked[0].position == 4


def test_keywords_join_the_text_anchor_and_no_other(
    memory: HotMemory, tmp_path: Path, settings: Settings
) -> None:
    chat = seeing(keywords("word5", "word6"))
    query = shown(tmp_path, "what is this?")
    found = run(query, memory, parts_of(chat), settings)
    assert found.anchors.by_signal == {
        Signal.TEXT_DENSE: "what is this? word5 word6",
        Signal.TEXT_SPARSE: "what is this? word5 word6",
        Signal.VISUAL: query.image,
    }
    sparse = {p.position: p.ranks.get(Signal.TEXT_SPARSE) for p in found.ranked}
    assert {position for position, rank in sparse.items() if rank} == {5, 6}


class SlowPair:
    """A model and an encoder that each end only after the other has begun."""

    name = "slow"
    sees_images = True

    def __init__(self) -> None:
        self.model_began, self.encoder_began = threading.Event(), threading.Event()
        self.both: list[bool] = []

    async def complete(self, request: ChatRequest) -> ChatReply:
        self.model_began.set()
        self.both.append(await asyncio.to_thread(self.encoder_began.wait, WAIT_S))
        text = keywords("word5") if request.role == "keywords" else "a frog"
        return ChatReply(text=text, usage=Usage(role=request.role))

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    async def close(self) -> None:
        """Nothing is open."""

    def encode(self, encoder: Callable[[Any], Vectors], items: Any) -> Vectors:
        self.encoder_began.set()
        self.both.append(self.model_began.wait(WAIT_S))
        return encoder(items)


def test_a_picture_is_encoded_while_the_model_writes(
    memory: HotMemory, tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, encoder = SlowPair(), FakeImageEncoder()
    original = encoder.encode
    monkeypatch.setattr(encoder, "encode", lambda items: pair.encode(original, items))
    run(shown(tmp_path, "what is it?"), memory, parts_of(pair, image_encoder=encoder), settings)
    assert pair.both == [True, True]


def test_a_question_is_encoded_while_the_model_writes(
    memory: HotMemory, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, encoder = SlowPair(), FakeTextEncoder()
    original = encoder.encode
    monkeypatch.setattr(encoder, "encode", lambda items: pair.encode(original, items))
    query = Query(text="Which photo shows a frog?")
    run(query, memory, parts_of(pair, text_encoder=encoder), settings)
    assert pair.both == [True, True, True], "the question, and later the caption"


def test_the_note_on_the_picture_ends_the_context_with_the_best_match(
    memory: HotMemory, tmp_path: Path, settings: Settings
) -> None:
    chat = seeing(keywords("word2", caption="a boat at sea"))
    context = run(shown(tmp_path, "what is it?"), memory, parts_of(chat), settings).context
    assert context.note.startswith("[ATTACHED IMAGE]")
    assert context.text.endswith(context.note)
    assert "IMG_blue" in context.note
    assert CAPTIONS["blue"] in context.note
    assert "a boat at sea" in context.note
    assert context.tokens == chat.count_tokens(context.text)


def test_without_a_picture_there_is_no_note(memory: HotMemory, settings: Settings) -> None:
    context = run(Query(text="word3"), memory, parts_of(), settings).context
    assert context.note == ""
    assert "[ATTACHED IMAGE]" not in context.text


@pytest.mark.parametrize("budget", [64, 90])
def test_the_budget_leaves_room_for_the_note(
    memory: HotMemory, tmp_path: Path, settings: Settings, budget: int
) -> None:
    chat = seeing(keywords("word2", caption="a boat"))
    whole = run(shown(tmp_path, "what is it?"), memory, parts_of(chat), settings).context
    rounds = whole.tokens - chat.count_tokens(whole.note)
    assert rounds < budget < whole.tokens, "the rounds alone would fit"
    tight = replace(settings, answer={"context_tokens": budget})
    context = run(shown(tmp_path, "what is it?"), memory, parts_of(chat), tight).context
    assert context.note == whole.note
    assert context.tokens <= budget
    assert context.found + context.dropped == whole.found
    assert context.dropped


@pytest.mark.parametrize(
    ("target", "with_picture", "case"),
    [
        ("text", False, Case.TEXT_TO_TEXT),
        ("image", False, Case.TEXT_TO_IMAGE),
        ("text", True, Case.IMAGE_TEXT_TO_TEXT),
        ("image", True, Case.IMAGE_TEXT_TO_IMAGE),
    ],
)
def test_a_forced_target_decides_against_the_wording(
    memory: HotMemory,
    tmp_path: Path,
    settings: Settings,
    target: str,
    with_picture: bool,
    case: Case,
) -> None:
    text = "Which photo shows a frog?" if target == "text" else "what about the frog"
    query = shown(tmp_path, text) if with_picture else Query(text=text)
    found = run(query, memory, parts_of(), replace(settings, retrieval={"target": target}))
    assert found.route.case is case
    assert found.anchors.by_signal.keys() == set(settings.retrieval.signals[case])


class WithTower(FakeImageEncoder):
    """Has a text tower, which puts every text beside blue pictures."""

    def encode_text(self, texts: Sequence[str]) -> Vectors:
        blue = Pillow.new("RGB", (8, 8), COLOURS["blue"])
        return self.encode([blue] * len(texts))


def test_uniform_routing_searches_everything_with_the_question(
    memory: HotMemory, settings: Settings
) -> None:
    uniform = replace(settings, retrieval={"routing": "uniform"})
    parts = parts_of(FakeChat([]), image_encoder=WithTower())
    found = run(Query(text="Which photo shows a frog?"), memory, parts, uniform)
    assert found.anchors.by_signal.keys() == set(Signal) - {Signal.VISUAL}
    ranks = {item.position: item.ranks for item in found.ranked}
    assert ranks[7][Signal.VISUAL_BY_TEXT] == 1


@pytest.mark.parametrize("encoder", [FakeImageEncoder(), None])
def test_uniform_routing_without_a_text_tower_says_what_it_leaves_out(
    memory: HotMemory, settings: Settings, encoder: FakeImageEncoder | None
) -> None:
    uniform = replace(settings, retrieval={"routing": "uniform"})
    parts = parts_of(image_encoder=encoder)
    found = run(Query(text="Which photo shows a frog?"), memory, parts, uniform)
    assert found.anchors.by_signal.keys() == set(Signal) - {Signal.VISUAL, Signal.VISUAL_BY_TEXT}
    assert any("no text tower" in note for note in found.anchors.notes)
    assert found.ranked[0].position == 4


@pytest.mark.parametrize(("wanted", "sees"), [(True, True), (True, False), (False, True)])
def test_a_model_that_sees_gets_the_pictures_where_it_is_asked_for(
    memory: HotMemory, tmp_path: Path, settings: Settings, wanted: bool, sees: bool
) -> None:
    chat = FakeChat(lambda _: keywords("word2"), sees_images=sees)
    chosen = replace(settings, answer={"sees_pixels": wanted}, retrieval={"top_k": 2, "window": 0})
    query = shown(tmp_path, "what is it?")
    answer = asyncio.run(ask(query, memory, parts_of(chat), chosen))
    held = [image for p in answer.retrieval.context.found for image in memory.rounds[p].images]
    assert query.image is not None
    assert held
    pictures = tuple(read_image(str(image.uri)) for image in [query.image, *held])
    assert chat.requests[-1].role == "answer"
    assert chat.requests[-1].images == (pictures if wanted and sees else ())


def streamed(query: Query, memory: HotMemory, parts: Parts, settings: Settings) -> list[Any]:
    async def read() -> list[Any]:
        return [piece async for piece in stream_ask(query, memory, parts, settings)]

    return asyncio.run(read())


def test_a_streamed_answer_shows_what_was_found_first_and_ends_as_the_plain_one(
    memory: HotMemory, tmp_path: Path, settings: Settings
) -> None:
    chosen = replace(settings, answer={"sees_pixels": True})
    query = shown(tmp_path, "what is it?")
    chats = [seeing(keywords("word2"), answer="a  small boat") for _ in range(2)]
    found, *pieces, last = streamed(query, memory, parts_of(chats[0]), chosen)
    whole = asyncio.run(ask(query, memory, parts_of(chats[1]), chosen))
    assert pieces == ["a  ", "small ", "boat"]
    assert last.retrieval == found
    assert with_(found, seconds={}) == with_(whole.retrieval, seconds={})
    assert (last.text, last.prompt, last.usage) == (whole.text, whole.prompt, whole.usage)
    assert chats[0].requests == chats[1].requests
    assert len(chats[0].requests[-1].images) > 1


def test_a_streamed_answer_that_fails_has_shown_what_was_found(
    memory: HotMemory, settings: Settings
) -> None:
    async def read() -> None:
        pieces = stream_ask(Query(text="word1"), memory, parts_of(chat), settings)
        assert isinstance(await anext(pieces), Retrieval)
        assert not chat.requests
        with pytest.raises(ModelUnavailableError, match="gone"):
            await anext(pieces)

    chat = FakeChat([ModelUnavailableError("gone")])
    asyncio.run(read())


@pytest.mark.parametrize("door", [streamed, lambda *given: asyncio.run(ask(*given))])
def test_answering_without_a_model_is_refused(
    memory: HotMemory, settings: Settings, door: Callable[..., object]
) -> None:
    with pytest.raises(ConfigError, match=r"llm\.provider"):
        door(Query(text="word1"), memory, parts_of(), settings)


def test_a_search_goes_on_without_the_model_where_it_is_told_to_and_an_answer_does_not(
    memory: HotMemory, settings: Settings
) -> None:
    query = Query(text="Which picture shows a lime frog?")
    gone = FakeChat(lambda _: no_reply())
    with pytest.raises(ModelUnavailableError):
        run(query, memory, parts_of(gone), settings)
    going_on = replace(settings, retrieval={"on_model_failure": "query"})
    found = run(query, memory, parts_of(gone), going_on)
    assert found.ranked[0].position == 4
    assert found.ranked == run(query, memory, parts_of(), going_on).ranked
    assert found.anchors.notes == (
        "hypothetical caption not usable: the language model cannot be reached",
    )
    failure = Failure(role="hypo_caption", error="ModelUnavailableError")
    assert found.anchors.failures == (failure,)
    with pytest.raises(ModelUnavailableError):
        asyncio.run(ask(query, memory, parts_of(gone), going_on))


def no_reply() -> str:
    raise ModelUnavailableError("m7 at 10.0.0.9 is gone")


def test_an_anchor_has_its_own_time(memory: HotMemory, settings: Settings) -> None:
    class Silent(FakeChat):
        async def complete(self, request: ChatRequest) -> ChatReply:
            await asyncio.sleep(WAIT_S)
            raise AssertionError("it was not waited for")

    query = Query(text="Which picture shows a lime frog?")
    impatient = replace(settings, llm={"anchor_timeout_s": 0.01})
    with pytest.raises(ModelTimeoutError, match=r"hypo_caption call within 0\.01 s: raise llm\.a"):
        run(query, memory, parts_of(Silent()), impatient)
    going_on = replace(impatient, retrieval={"on_model_failure": "query"})
    notes = run(query, memory, parts_of(Silent()), going_on).anchors.notes
    assert notes == ("hypothetical caption not usable: the language model gave no reply in time",)


@pytest.mark.parametrize(
    ("text", "said"),
    [(" \n\t", "empty"), ("x" * 20_001, "20,001 characters"), ("caf\udcff", "Unicode")],
)
def test_what_cannot_be_searched_with_is_refused(
    memory: HotMemory, settings: Settings, text: str, said: str
) -> None:
    with pytest.raises(QueryError, match=said):
        run(Query(text=text), memory, parts_of(), settings)


def test_a_broken_picture_is_refused_by_name_before_a_model_is_asked(
    memory: HotMemory, tmp_path: Path, settings: Settings
) -> None:
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"\x89PNG and then nothing")
    chat = seeing(keywords("word2"))
    query = Query(text="what is it?", image=Image(id="broken.png", uri=str(broken)))
    with pytest.raises(ImageError, match=r"broken\.png"):
        run(query, memory, parts_of(chat), settings)
    assert chat.requests == []


def test_without_a_model_tokens_are_estimated(memory: HotMemory, settings: Settings) -> None:
    context = run(Query(text="word3"), memory, parts_of(), settings).context
    assert context.tokens == estimate_tokens(context.text) == int(np.ceil(len(context.text) / 3))


@pytest.mark.parametrize(
    ("llm", "expected"),
    [
        ({"provider": "none"}, 16_000),
        ({"provider": "openai"}, 16_000),
        ({"provider": "openai", "context_window": 8_192}, 8_192 - 256 - PROMPT_TOKENS - 9),
        ({"provider": "llama_cpp"}, 4_096 - 256 - PROMPT_TOKENS - 9),
        ({"provider": "llama_cpp", "context_window": 512}, 1),
    ],
)
def test_the_context_fits_the_window_of_the_model(llm: dict[str, object], expected: int) -> None:
    assert _budget(replace(Settings(), llm=llm), question_tokens=9) == expected
