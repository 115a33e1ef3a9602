import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmem.anchors import make_anchors
from vmem.config import PAPER_SIGNALS, AnswerSettings, PromptSettings, RetrievalSettings
from vmem.errors import (
    ConfigError,
    ImageError,
    ModelError,
    ModelFormatError,
    ModelTimeoutError,
    ModelUnavailableError,
)
from vmem.llm.fake import FakeChat
from vmem.prompts import Prompts
from vmem.prompts.replies import LONGEST_KEYWORD, choose_keywords, parse_keywords
from vmem.types import Anchors, Case, Failure, Image, Query, Route, Signal

PROMPTS = Prompts(PromptSettings())
PHOTO = Image(id="Q1", uri="q.png", caption="the data's words")
LOST = Image(id="Q2", caption="the data's words")
TEXT, SPARSE = Signal.TEXT_DENSE, Signal.TEXT_SPARSE
CAPTION, CAPTION_SPARSE = Signal.CAPTION_DENSE, Signal.CAPTION_SPARSE
GOOD = json.dumps({"keywords": ["Biscuit", "terrier"], "caption": "A small dog."})


def a_route(case: Case, counts_images: bool = False) -> Route:
    return Route(
        case=case,
        counts_images=counts_images,
        aggregates=False,
        asks_conflict=False,
        reason="",
    )


def read_image(uri: str) -> bytes:
    return f"bytes of {uri}".encode()


def anchors(
    case: Case,
    chat: FakeChat | None,
    image: Image | None = None,
    *,
    counts_images: bool = False,
    answer: dict[str, Any] | None = None,
    **retrieval: Any,
) -> Anchors:
    return asyncio.run(
        make_anchors(
            Query(text="raw words", image=image),
            a_route(case, counts_images),
            chat,
            PROMPTS,
            RetrievalSettings(**retrieval),
            AnswerSettings(**(answer or {})),
            read_image,
        )
    )


def seeing(*script: str | Exception) -> FakeChat:
    return FakeChat(script, name="seer", sees_images=True)


def test_text_to_text_searches_with_the_query_and_calls_no_model() -> None:
    chat = FakeChat([])
    made = anchors(Case.TEXT_TO_TEXT, chat)
    assert made == Anchors(by_signal={TEXT: "raw words", SPARSE: "raw words"})
    assert not chat.requests


def test_text_to_image_searches_captions_with_a_generated_one() -> None:
    chat = FakeChat(['  "a dog\n on a sofa"  '])
    made = anchors(Case.TEXT_TO_IMAGE, chat, answer={"temperature": 0.5})
    assert made.by_signal == {
        TEXT: "raw words",
        SPARSE: "raw words",
        CAPTION: "a dog on a sofa",
        CAPTION_SPARSE: "a dog on a sofa",
    }
    assert (made.hypo_caption, made.notes) == ("a dog on a sofa", ())
    (sent,) = chat.requests
    assert (sent.role, sent.temperature, sent.images) == ("hypo_caption", 0.5, ())
    assert sent.prompt == PROMPTS.hypo_caption_prompt("raw words")
    assert [usage.role for usage in made.usage] == ["hypo_caption"]


@pytest.mark.parametrize(
    ("values", "has_model", "note"),
    [
        ({"counts_images": True}, True, "a counting question keeps its words"),
        ({"hypo_caption": False}, True, "switched off by setting"),
        ({}, False, "no language model is configured"),
    ],
)
def test_why_there_is_no_hypothetical_caption(
    values: dict[str, Any], has_model: bool, note: str
) -> None:
    chat = FakeChat([])
    made = anchors(Case.TEXT_TO_IMAGE, chat if has_model else None, **values)
    assert set(made.by_signal.values()) == {"raw words"}
    assert (made.notes, made.failures) == ((f"hypothetical caption off: {note}",), ())
    assert not chat.requests


@pytest.mark.parametrize("reply", [' "" ', ModelFormatError("an empty reply")])
def test_an_empty_caption_leaves_the_query_as_it_is(reply: str | Exception) -> None:
    made = anchors(Case.TEXT_TO_IMAGE, FakeChat([reply]))
    assert set(made.by_signal.values()) == {"raw words"}
    assert made.hypo_caption is None
    assert [note.split(":")[0] for note in made.notes] == ["hypothetical caption not usable"]
    assert made.failures == (Failure(role="hypo_caption", error="ModelFormatError"),)
    assert len(made.usage) == isinstance(reply, str)


def test_no_caption_is_written_where_no_caption_is_searched() -> None:
    chat = FakeChat([])
    made = anchors(Case.TEXT_TO_IMAGE, chat, signals={Case.TEXT_TO_IMAGE: (TEXT,)})
    assert made == Anchors(by_signal={TEXT: "raw words"})
    assert not chat.requests


def test_image_and_text_to_text_appends_keywords_to_the_text() -> None:
    chat = seeing(GOOD)
    made = anchors(Case.IMAGE_TEXT_TO_TEXT, chat, PHOTO, max_keywords=3)
    enriched = "raw words Biscuit terrier"
    assert made.by_signal == {TEXT: enriched, SPARSE: enriched, Signal.VISUAL: PHOTO}
    assert (made.keywords, made.query_caption) == (("Biscuit", "terrier"), "A small dog.")
    assert made.notes == ()
    (sent,) = chat.requests
    assert (sent.role, sent.images) == ("keywords", (b"bytes of q.png",))
    assert sent.prompt == PROMPTS.keywords_prompt("raw words", 3)
    assert sent.json_schema is not None
    assert sent.json_schema["properties"]["keywords"]["maxItems"] == 3
    assert [usage.role for usage in made.usage] == ["keywords"]


DESCRIPTION_OFF = "description of the attached image off: it is only made together with keywords"


@pytest.mark.parametrize(
    ("chat", "values", "note"),
    [
        (seeing(), {"keywords": False}, "switched off by setting"),
        (None, {}, "no language model is configured"),
        (FakeChat([], name="blind"), {}, "blind cannot see images"),
    ],
)
def test_why_there_are_no_keywords(
    chat: FakeChat | None, values: dict[str, Any], note: str
) -> None:
    made = anchors(Case.IMAGE_TEXT_TO_TEXT, chat, PHOTO, **values)
    assert made.by_signal == {TEXT: "raw words", SPARSE: "raw words", Signal.VISUAL: PHOTO}
    assert made.notes == (f"image keywords off: {note}", DESCRIPTION_OFF)
    assert (made.query_caption, made.usage, made.failures) == (None, (), ())
    assert chat is None or not chat.requests


@pytest.mark.parametrize("reply", ["{}", '{"keywords": []}', "{broken", ModelFormatError("empty")])
def test_unusable_keywords_leave_the_query_as_it_is(reply: str | Exception) -> None:
    made = anchors(Case.IMAGE_TEXT_TO_TEXT, seeing(reply), PHOTO)
    assert made.by_signal[TEXT] == "raw words"
    assert made.keywords == ()
    assert [note.split(":")[0] for note in made.notes] == [
        "image keywords not usable",
        "description of the attached image off",
    ]
    assert made.failures == (Failure(role="keywords", error="ModelFormatError"),)


def test_keywords_left_out_are_counted() -> None:
    words = ["Dog", "dog", "cat", "x" * (LONGEST_KEYWORD + 1), "sofa", "rug"]
    made = anchors(
        Case.IMAGE_TEXT_TO_TEXT, seeing(json.dumps({"keywords": words})), PHOTO, max_keywords=3
    )
    assert made.keywords == ("Dog", "cat", "sofa")
    assert made.notes[0] == "image keywords: 3 of 6 kept"
    assert made.failures == ()


@pytest.mark.parametrize(
    ("source", "caption", "notes"),
    [
        ("generated", "A small dog.", 0),
        ("dataset", "the data's words", 0),
        ("none", None, 1),
    ],
)
def test_where_the_description_comes_from(source: str, caption: str | None, notes: int) -> None:
    made = anchors(Case.IMAGE_TEXT_TO_TEXT, seeing(GOOD), PHOTO, answer={"query_caption": source})
    assert (made.query_caption, len(made.notes)) == (caption, notes)


def test_a_data_set_without_a_caption_is_noted() -> None:
    image = Image(id="Q3", uri="q.png")
    made = anchors(Case.IMAGE_TEXT_TO_IMAGE, None, image, answer={"query_caption": "dataset"})
    assert made.query_caption is None
    assert made.notes == ("description of the attached image off: the data gives it no caption",)


def test_image_and_text_to_image_searches_with_the_picture_alone() -> None:
    chat = seeing()
    made = anchors(Case.IMAGE_TEXT_TO_IMAGE, chat, PHOTO)
    assert made.by_signal == {Signal.VISUAL: PHOTO}
    assert made.notes == (DESCRIPTION_OFF,)
    assert not chat.requests


def test_a_picture_without_a_file_falls_back_to_the_text() -> None:
    made = anchors(Case.IMAGE_TEXT_TO_IMAGE, seeing(), LOST)
    assert made.by_signal == {TEXT: "raw words", SPARSE: "raw words"}
    assert made.notes[:2] == (
        "visual signal left out: image Q2 has no file",
        "no signal remains for this case: the question's text is searched instead",
    )


def test_a_picture_without_a_file_leaves_the_text_signals() -> None:
    made = anchors(Case.IMAGE_TEXT_TO_TEXT, seeing(), LOST)
    assert made.by_signal == {TEXT: "raw words", SPARSE: "raw words"}
    assert made.notes[:2] == (
        "visual signal left out: image Q2 has no file",
        "image keywords off: the image has no file",
    )


@pytest.mark.parametrize(
    ("image", "last"), [(PHOTO, PHOTO), (LOST, "raw words"), (None, "raw words")]
)
@pytest.mark.parametrize("case", list(Case))
def test_uniform_routing_takes_all_that_the_query_supports(
    case: Case, image: Image | None, last: str | Image
) -> None:
    chat = seeing()
    made = anchors(case, chat, image, routing="uniform")
    signal = Signal.VISUAL if image is PHOTO else Signal.VISUAL_BY_TEXT
    texts = dict.fromkeys((TEXT, SPARSE, CAPTION, CAPTION_SPARSE), "raw words")
    assert made.by_signal == {**texts, signal: last}
    assert not chat.requests


def test_a_signal_that_the_query_cannot_support_is_left_out() -> None:
    made = anchors(Case.TEXT_TO_TEXT, None, signals={Case.TEXT_TO_TEXT: (TEXT, Signal.VISUAL)})
    assert made.by_signal == {TEXT: "raw words"}
    assert made.notes == ("visual signal left out: no image is attached",)


def test_a_case_without_signals_is_named() -> None:
    signals = {case: PAPER_SIGNALS[case] for case in Case if case is not Case.TEXT_TO_IMAGE}
    with pytest.raises(ConfigError, match="no signals for the case text->image"):
        anchors(Case.TEXT_TO_IMAGE, None, signals=signals)


@pytest.mark.parametrize("error", [ModelUnavailableError("gone"), ModelError("rejected")])
@pytest.mark.parametrize("case", [Case.TEXT_TO_IMAGE, Case.IMAGE_TEXT_TO_TEXT])
def test_a_model_that_fails_fails_the_query(case: Case, error: Exception) -> None:
    image = PHOTO if case is Case.IMAGE_TEXT_TO_TEXT else None
    with pytest.raises(type(error), match=str(error)):
        anchors(case, seeing(error), image)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ModelTimeoutError("m7 at 10.0.0.9 is late"), "gave no reply in time"),
        (ModelUnavailableError("m7 at 10.0.0.9 is gone"), "cannot be reached"),
        (ModelFormatError("m7 at 10.0.0.9 raves"), "gave a reply that makes no sense"),
        (ModelError("m7 at 10.0.0.9 says no"), "rejects the call"),
    ],
)
@pytest.mark.parametrize("case", [Case.TEXT_TO_IMAGE, Case.IMAGE_TEXT_TO_TEXT])
def test_where_it_may_a_search_goes_on_with_the_query_as_it_is(
    case: Case, error: Exception, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    image = PHOTO if case is Case.IMAGE_TEXT_TO_TEXT else None
    made = anchors(case, seeing(error), image, on_model_failure="query")
    assert set(made.by_signal.values()) - {PHOTO} == {"raw words"}
    assert made.notes[0].endswith(f" not usable: the language model {reason}")
    role = "keywords" if image else "hypo_caption"
    assert made.failures == (Failure(role=role, error=type(error).__name__),)
    assert "10.0.0.9" not in str(made), "who asks is not told of servers"
    assert "10.0.0.9" in caplog.text


def test_a_picture_that_cannot_be_read_fails_the_query() -> None:
    def unreadable(uri: str) -> bytes:
        raise ImageError(f"{uri} is damaged")

    with pytest.raises(ImageError, match=r"q\.png is damaged"):
        asyncio.run(
            make_anchors(
                Query(text="raw", image=PHOTO),
                a_route(Case.IMAGE_TEXT_TO_TEXT),
                seeing(),
                PROMPTS,
                RetrievalSettings(),
                AnswerSettings(),
                unreadable,
            )
        )


@pytest.mark.parametrize(
    ("text", "terms", "caption"),
    [
        (GOOD, ["Biscuit", "terrier"], "A small dog."),
        (
            f"Sure!\n```json\n{GOOD}\n```\nHope it helps {{}}",
            ["Biscuit", "terrier"],
            "A small dog.",
        ),
        ('{oops} {"keywords": ["a", 2019, null, " b "], "caption": ""}', ["a", "2019", "b"], None),
        ('{"keywords": "a, b"}', ["a", "b"], None),
        ('{"caption": "only"}', [], "only"),
        ('{"keywords": ["a \\"b\\"", "c", "cut of', ['a "b', "c"], None),
        ('{"caption": "first", "keywords": ["a", "b"', ["a", "b"], "first"),
        ('["a", "b"]', ["a", "b"], None),
        ("- red dog\n* sofa\n2. rug\n\n", ["red dog", "sofa", "rug"], None),
        ("```\na, b; c\n```", ["a", "b", "c"], None),
        ("no JSON, " * 100, [], None),
        ("", [], None),
        ('{"a":' * 5000, [], None),
    ],
)
def test_replies_of_any_shape_are_read(text: str, terms: list[str], caption: str | None) -> None:
    assert parse_keywords(text) == (terms, caption)


@given(st.text() | st.text(alphabet='{}[]",:keywords \n', max_size=60), st.integers(1, 8))
def test_reading_is_total_and_its_keywords_are_tidy(text: str, most: int) -> None:
    terms, caption = parse_keywords(text)
    kept = choose_keywords(terms, most)
    assert len(kept) <= most
    assert len({term.casefold() for term in kept}) == len(kept)
    assert all(term.strip() == term and 0 < len(term) <= LONGEST_KEYWORD for term in kept)
    assert caption != ""
