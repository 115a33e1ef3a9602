import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmem.config import RetrievalSettings
from vmem.routing import route_query
from vmem.types import Case, Image, Query

NARROW = RetrievalSettings(routing="narrow")
WIDE = RetrievalSettings(routing="wide")
PICTURE = Image(id="query", uri="query.jpg")


def case(text: str, image: Image | None = None, settings: RetrievalSettings = NARROW) -> Case:
    return route_query(Query(text=text, image=image), settings).case


@pytest.mark.parametrize(
    "text",
    [
        "Which image shows the harbour at night?",
        "Which of the three photos has a dog in it?",
        "which two pictures did I send in May?",
        "How many photos of bridges have I shared?",
        "In how many of my pictures is it raining?",
        "Tell me which old black-and-white photo you liked.",
    ],
)
def test_the_narrow_rule_takes_which_and_how_many_images(text: str) -> None:
    assert case(text) is Case.TEXT_TO_IMAGE
    assert case(text, PICTURE) is Case.IMAGE_TEXT_TO_IMAGE


@pytest.mark.parametrize(
    "text",
    [
        "What is the name in the picture?",
        "Which animal is in the picture?",
        "Which person do you see in this photo?",
        "How many people are in the photo?",
        "Which city was the photo taken in?",
        "How many museums have we discussed?",
        "Which imagery did I like?",
        "",
    ],
)
def test_a_fact_about_a_picture_is_text(text: str) -> None:
    assert case(text) is Case.TEXT_TO_TEXT
    assert case(text, PICTURE) is Case.IMAGE_TEXT_TO_TEXT


@pytest.mark.parametrize(
    "text",
    [
        "Please find all photos of the harbour.",
        "Show me the picture of my bike",
        "Return only the image_id.",
        "Give the IDs of the images with snow.",
    ],
)
def test_requests_for_images_are_wide_only(text: str) -> None:
    assert case(text) is Case.TEXT_TO_TEXT
    assert case(text, settings=WIDE) is Case.TEXT_TO_IMAGE


@pytest.mark.parametrize("target", ["text", "image"])
def test_a_request_may_force_the_target(target: str) -> None:
    settings = RetrievalSettings.model_validate({"target": target})
    expected = {"text": Case.TEXT_TO_TEXT, "image": Case.TEXT_TO_IMAGE}[target]
    assert case("¿Qué foto te gustó?", settings=settings) is expected
    assert case("Which image is it?", settings=settings) is expected


def test_the_counting_gate_needs_a_count_of_images() -> None:
    def counts(text: str) -> bool:
        return route_query(Query(text=text), NARROW).counts_images

    assert counts("How many images show a bridge?")
    assert counts("how  many of these photos are mine?")
    assert not counts("Which image shows how many bridges there are?")
    assert not counts("How many bridges have I crossed?")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("How many different museums have we discussed?", True),
        ("List all the trips I planned.", True),
        ("In what ways does Ana relax?", True),
        ("What activities has Ben tried?", True),
        ("What books has Mia read?", True),
        ("What is Ben's favourite book?", False),
        ("What was the first thing she did?", False),
        ("When did the checklist arrive?", False),
        ("What is this?", False),
    ],
)
def test_the_aggregation_rule(text: str, expected: bool) -> None:
    assert route_query(Query(text=text), NARROW).aggregates is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Is there a contradiction in what Lea said?", True),
        ("Does this conflict with her earlier plan?", True),
        ("Are these statements inconsistent?", True),
        ("What did she say about the plan?", False),
    ],
)
def test_the_conflict_gate(text: str, expected: bool) -> None:
    assert route_query(Query(text=text), NARROW).asks_conflict is expected


def test_the_reason_quotes_the_wording() -> None:
    route = route_query(Query(text="So, which  photo was it?"), NARROW)
    assert "“which photo”" in route.reason
    assert "no picture is attached" in route.reason


@given(st.text(max_size=400), st.booleans(), st.sampled_from([NARROW, WIDE]))
def test_routing_is_total(text: str, attached: bool, settings: RetrievalSettings) -> None:
    route = route_query(Query(text=text, image=PICTURE if attached else None), settings)
    assert route.case.value.startswith("image+text" if attached else "text")


def test_routing_stays_linear_on_hostile_text() -> None:
    text = "which " + "a " * 50_000 + "how many of of all all " * 2_000
    assert case(text, settings=WIDE) is Case.TEXT_TO_TEXT
