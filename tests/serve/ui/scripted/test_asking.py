"""Asking in a real Chromium: by keyboard alone, with a picture, stopped half-way."""

import base64
from pathlib import Path
from typing import Any

import pytest

import vmem.datasets.sample

pytestmark = pytest.mark.browser
pytest.importorskip("selenium", reason="selenium is not installed: make test-browser")

from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.remote.webelement import WebElement  # noqa: E402

CAT = Path(vmem.datasets.sample.__file__).parent / "images" / "query_cat.jpg"
QUESTION = "What is the blend from Tidewater Roasters called?"


def test_a_question_typed_by_keyboard_alone_is_answered(page: Any, site: Any) -> None:
    page.open("sample")
    page.one(".round")
    page.press("/")
    assert page.run("return document.activeElement.id") == "question"
    page.press(*"Blend of Tidewater?", Keys.SHIFT + Keys.ENTER)
    assert page.one("#question").get_property("value") == "Blend of Tidewater?\n"
    page.ask(QUESTION)
    answer = page.one(".answer")
    assert answer.text == "The blend is called Lamplighter (D3:6)."
    assert answer.get_attribute("aria-live") == "polite"
    assert answer.get_attribute("aria-busy") is None

    said = site.post("sample", "search", {"query": QUESTION, "explain": True})
    route = page.one(".route").text
    assert "A question in words that looks for what was said" in route
    assert said["route"]["reason"] in route
    tables = page.all(".lane table")
    assert [table.find_element(By.TAG_NAME, "strong").text for table in tables] == [
        "Texts by meaning",
        "Texts by words",
    ]
    for table, lane in zip(tables, said["lanes"].values(), strict=True):
        assert cells(table) == [[str(item["rank"]), item["round_id"]] for item in lane]
    assert cells(page.one(".fused-table")) == [
        [
            str(item["rank"]),
            item["round_id"],
            f"{item['score']:.4f}",
            *(str(item["ranks"].get(signal, "–")) for signal in said["lanes"]),
        ]
        for item in said["fused"]
    ]
    cited = [
        [item.text for item in row.find_elements(By.CSS_SELECTOR, ".number, .round-id")]
        for row in page.all(".citation")
    ]
    assert cited == [[str(item["rank"]), item["round_id"]] for item in said["citations"]]
    page.one(".context summary").click()
    assert page.text(".context pre") == said["context"]["text"]
    page.one(".costs summary").click()
    assert "1,843 read, 12 written" in page.one(".costs").text
    assert "answer 1.8 s" in page.one(".costs").text
    page.take("answer-light")


def cells(table: WebElement) -> list[list[str]]:
    """The texts of a table's body, those of rows that are not shown among them."""
    return [
        [str(cell.get_property("textContent")) for cell in row.find_elements(By.TAG_NAME, "td")]
        for row in table.find_elements(By.CSS_SELECTOR, "tbody tr")
    ]


def test_a_picture_goes_with_the_question(page: Any, site: Any) -> None:
    page.open("sample")
    page.one(".round")
    page.all("#picture")[0].send_keys(str(CAT))
    assert page.one("#attachment .file").text == CAT.name
    page.one("input[value=image] + span").click()
    page.one("#top-k").send_keys("5")
    page.one("#window").send_keys("2")
    page.ask("Which cat is this?")
    image = {"base64": base64.b64encode(CAT.read_bytes()).decode()}
    options = {"target": "image", "top_k": 5, "window": 2}
    body = {"query": "Which cat is this?", "image": image, "options": options, "explain": True}
    said = site.post("sample", "search", body)
    assert "A question with a picture that looks for pictures" in page.one(".route").text
    assert "the request forces the target image" in page.one(".route").text
    assert page.all(".lane caption strong")[-1].text == "Pictures by likeness"
    assert page.all(".lane .anchor")[-1].text == "searched with the attached picture"
    cited = [each.text for each in page.all(".citation .round-id")]
    assert cited == [item["round_id"] for item in said["citations"]]
    assert len(cited) == 5
    page.one(".context summary").click()
    assert page.text(".context pre") == said["context"]["text"]
    page.until(lambda: page.one(".asked img").get_property("naturalWidth"))
    page.take("picture-light")

    page.one("#search").click()
    page.until(lambda: page.text("#outcome .status").startswith("Searched"))
    assert page.all(".citation")
    assert not page.all(".answer")


def test_an_option_out_of_bounds_is_told(page: Any) -> None:
    page.open("sample")
    page.one(".round")
    page.one("#top-k").send_keys("5000")
    page.one("#question").send_keys("otter", Keys.ENTER)
    assert "top_k" in page.one("#outcome .problem p").text


@pytest.mark.parametrize("kind", ["paste", "drop"])
def test_a_picture_is_pasted_or_dropped(page: Any, kind: str) -> None:
    page.open("sample")
    page.one(".round")
    event = "new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true})"
    if kind == "drop":
        event = "new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true})"
    page.run(
        "const bytes = Uint8Array.from(atob(arguments[0]), (c) => c.charCodeAt(0));"
        "const data = new DataTransfer();"
        "data.items.add(new File(['no'], 'notes.txt', {type: 'text/plain'}));"
        "data.items.add(new File([bytes], 'cat.jpg', {type: 'image/jpeg'}));"
        f"document.body.dispatchEvent({event});",
        base64.b64encode(CAT.read_bytes()).decode(),
    )
    assert page.one("#attachment .file").text == "cat.jpg"
    page.ask("Which cat?")
    assert "A question with a picture" in page.one(".route").text
    page.one("#attachment button").click()
    page.ask("Which cat?")
    assert "A question in words" in page.one(".route").text


def test_escape_stops_an_answer(page: Any) -> None:
    page.open("sample")
    page.one(".round")
    page.one("#question").send_keys("@slow", Keys.ENTER)
    page.until(lambda: "and on and on" in page.one(".answer").text)
    assert page.one("#submit").text == "Stop"
    page.press(Keys.ESCAPE)
    page.until(lambda: page.text("#outcome .status") == "Stopped.")
    assert page.one("#submit").text == "Ask"
    said = page.one(".answer").text
    page.ask(QUESTION)
    assert "and on" in said
    assert page.one(".answer").text.startswith("The blend")


def test_events_are_read_whatever_their_line_ends_and_pieces(page: Any) -> None:
    page.open()
    page.one(".memory-link")
    stream = (
        ': wait\r\n\r\nevent: token\r\ndata: {"text":\r\ndata: "é"}\r\n\r\ndata: 1\r\rdata: 2\n\n'
    )
    found = page.driver.execute_async_script(
        """
        const [text, size, done] = arguments;
        const bytes = new TextEncoder().encode(text);
        const pieces = [];
        for (let at = 0; at < bytes.length; at += size) pieces.push(bytes.slice(at, at + size));
        const body = new ReadableStream({
            pull(into) { pieces.length ? into.enqueue(pieces.shift()) : into.close(); },
        });
        import("./api.js").then(async ({ events }) => {
            const found = [];
            for await (const event of events({ body })) found.push(event);
            done(found);
        });
        """,
        stream,
        1,
    )
    assert found == [
        {"event": "token", "data": {"text": "é"}},
        {"event": "message", "data": 1},
        {"event": "message", "data": 2},
    ]
