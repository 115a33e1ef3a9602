"""Failures in a real Chromium: no model, no server, no place, no key."""

import re
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.browser
pytest.importorskip("selenium", reason="selenium is not installed: make test-browser")

from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

QUESTION = "What is the blend from Tidewater Roasters called?"


@pytest.mark.parametrize(
    ("mark", "sentence"),
    [
        ("@dead", "The language model cannot be reached: try again later."),
        ("@cut", "The language model gave no usable answer."),
    ],
)
def test_a_dead_backbone_is_told_and_can_be_tried_again(
    page: Any, mark: str, sentence: str
) -> None:
    page.open("sample")
    page.one(".round")
    page.one("#question").send_keys(f"{mark} {QUESTION}", Keys.ENTER)
    problem = page.one("#outcome .problem")
    assert problem.get_attribute("role") == "alert"
    told, request, again = problem.text.splitlines()
    assert (told, again) == (sentence, "Try again")
    assert re.fullmatch("Request [0-9a-f]{32}", request)
    assert page.all(".citation")
    assert page.one("#submit").text == "Ask"
    page.take(f"failure-{mark[1:]}")
    problem.find_element(By.TAG_NAME, "button").click()
    page.until(lambda: request not in page.one("#outcome .problem").text)


def test_a_stream_that_breaks_off_is_told(page: Any) -> None:
    page.open("sample")
    page.one(".round")
    page.run(
        "const real = window.fetch;"
        "window.fetch = async (...asked) => {"
        "  const whole = await (await real(...asked)).text();"
        "  return new Response(whole.slice(0, whole.indexOf('event: done')));"
        "};"
    )
    page.one("#question").send_keys(QUESTION, Keys.ENTER)
    assert page.one("#outcome .problem p").text == "The answer broke off."
    page.run("window.fetch = () => Promise.reject(new TypeError('network'))")
    page.one("#question").send_keys(Keys.ENTER)
    page.until(lambda: page.one("#outcome .problem p").text == "The server cannot be reached.")


def test_a_busy_service_is_told(page: Any, site: Any) -> None:
    page.open("sample")
    page.one(".round")
    url = f"{site.url}/v1/memories/sample/answer"
    with httpx.stream("POST", url, json={"query": "@slow", "stream": True}) as under_way:
        pieces = under_way.iter_text()  # a name of its own: let go of, it ends the stream
        assert "event: found" in next(pieces)
        page.one("#question").send_keys(QUESTION, Keys.ENTER)
        assert page.one("#outcome .problem p").text == "The service is busy: try again shortly."
    page.until(lambda: answered_when_tried_again(page))


def answered_when_tried_again(page: Any) -> bool:
    """The place of a stream is free once its server has noticed that the reader is gone."""
    for button in page.all("#outcome .problem button"):
        button.click()
    return page.text("#outcome .status").startswith("Answered")


def test_the_key_is_asked_for_only_when_the_server_wants_one(page: Any, site: Any) -> None:
    page.open()
    page.one(".memory-link")
    assert not page.all("dialog[open]")
    page.open("sample", url=site.locked_url)
    page.one("#key").send_keys("wrong", Keys.ENTER)
    page.until(lambda: page.one("#key").get_property("value") == "")
    assert page.one("#key-reason").text
    page.take("key-light")
    page.one("#key").send_keys(site.key, Keys.ENTER)
    page.one(".round")
    assert len(page.all(".round")) == 3
    page.until(lambda: page.one(".picture img[src]").get_property("naturalWidth"))
    kept = page.run("return [{...sessionStorage}, {...localStorage}, document.cookie]")
    assert kept == [{"vmem-key": site.key}, {}, ""]
    page.ask("Who painted the board?")
    page.one("#forget").click()
    page.one("#key-cancel").click()
    assert page.one(".problem .small").text.startswith("Request ")
