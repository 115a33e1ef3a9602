"""Reading a memory in a real Chromium: by keyboard, far in, voices, pictures, stored markup."""

import re
from typing import Any

import pytest

pytestmark = pytest.mark.browser
pytest.importorskip("selenium", reason="selenium is not installed: make test-browser")

from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

QUESTION = "What is the blend from Tidewater Roasters called?"
DESKTOP = (1360, 860)


def test_a_memory_is_picked_and_read_by_keyboard(page: Any, site: Any) -> None:
    page.open()
    page.one(".memory-link").send_keys(Keys.END)
    focused = page.driver.switch_to.active_element
    assert re.fullmatch(r"sample\n51 rounds · 19 pictures · since .+ 20\d\d", focused.text)
    focused.send_keys(Keys.ENTER)
    page.one(".round")
    assert page.driver.current_url.endswith("#/sample")
    assert page.text(".session") == "D12 Mar 2026"
    shown = [card.get_attribute("aria-label") for card in page.all(".round")[:6]]
    assert shown == [
        "Round D1:1",
        "Round D1:2",
        "Round D1:3",
        "Round D1:4",
        "Round D1:6",
        "Round D1:7",
    ]
    first, second = page.all(".round:first-of-type .turn")
    assert first.text.startswith("user\nMorning! Oona here.")
    assert second.text.startswith("assistant\nCongratulations")

    page.run("document.querySelector('.round').focus()")
    page.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    third = page.driver.switch_to.active_element
    assert third.get_attribute("data-position") == "2"
    picture = third.find_element(By.CSS_SELECTOR, ".picture img")
    page.until(lambda: picture.get_property("naturalWidth"))
    assert picture.get_attribute("src").startswith(f"blob:{site.url}/")
    assert picture.get_attribute("alt").startswith("Painted shop board")
    assert third.find_element(By.TAG_NAME, "figcaption").text.startswith("D1:IMG_001 Painted")

    page.one(".picture").click()
    assert page.one("#large-caption").text.startswith("D1:IMG_001")
    page.press(Keys.ESCAPE)
    page.until(lambda: not page.all("dialog[open]"))


def test_a_voice_message_can_be_heard(page: Any) -> None:
    page.open("sample")
    page.one(".round")
    page.run("document.querySelector('#reader').scrollTop = 1e6")
    voice = page.one(".voice")
    words = voice.find_element(By.XPATH, "following-sibling::p[@class='transcript']").text
    assert words
    page.run("arguments[0].click()", voice)
    player = page.one("audio")
    page.until(lambda: player.get_property("readyState") >= 1)
    assert player.get_property("duration") > 1


def test_citations_and_names_lead_to_their_round(page: Any, site: Any) -> None:
    page.open("sample")
    page.one(".round")
    page.ask(QUESTION)
    second = site.post("sample", "search", {"query": QUESTION})["citations"][1]["round_id"]
    page.one(".citation").send_keys(Keys.ARROW_DOWN)
    page.press(Keys.ENTER)
    focused = lambda: page.driver.switch_to.active_element  # noqa: E731
    page.until(lambda: focused().get_attribute("aria-label") == f"Round {second}")
    assert "found" in focused().get_attribute("class").split()
    assert focused().find_element(By.CSS_SELECTOR, ".cited").text == "found, rank 2"
    top = page.run("return document.activeElement.getBoundingClientRect().top")
    assert 0 <= top < DESKTOP[1]
    for link in (".answer .round-link", ".lane .round-link", ".fused .round-link"):
        name = page.one(link).text
        page.one(link).click()
        page.until(lambda name=name: focused().get_attribute("aria-label") == f"Round {name}")


def test_a_far_round_is_reached_without_reading_all_before_it(page: Any) -> None:
    page.open("long")
    page.one(".round")
    page.ask("otter")
    link = page.driver.find_element(By.XPATH, "//*[@class='citation'][contains(., 'L204')]")
    page.run("arguments[0].click()", link)
    page.until(lambda: page.all(".round.found"))
    shown = lambda: page.run(  # noqa: E731
        "return [...document.querySelectorAll('.round')].map((e) => Number(e.dataset.position))"
    )
    assert shown()[0] == 204 - 6
    page.one("#reader-before button").click()
    page.until(lambda: shown()[0] == 204 - 6 - 40)
    assert shown() == list(range(shown()[0], shown()[-1] + 1))
    assert [title.text for title in page.all(".session span")] == ["S2", "S3", "S4"]

    def at_end() -> bool:
        page.run("document.querySelector('#reader').scrollTop = 1e6")
        return bool(shown()[-1] == 299)

    page.until(at_end)
    assert shown() == list(range(shown()[0], 300))
    assert [title.text for title in page.all(".session span")] == ["S2", "S3", "S4"]


def test_stored_script_never_runs(page: Any) -> None:
    page.open("hostile")
    page.one(".round")
    assert page.all(".turn p")[0].text.startswith("<script>window.pwned = true</script><img")
    page.ask("window.pwned <script>window.pwned = true</script>")
    page.one(".context summary").click()
    page.all(".citation")[1].click()
    assert page.one(".asked").text == "window.pwned <script>window.pwned = true</script>"
    inside = "document.querySelectorAll('main script, main svg[onload], main img[onerror]')"
    assert page.run(f"return {inside}.length") == 0
    page.open("hostile%3Cimg%20src=x%20onerror=%22window.pwned=true%22%3E")
    assert page.one(".problem p").text == "There is no such memory."


def test_empty_and_unknown_memories_say_so(page: Any) -> None:
    page.open("empty")
    assert page.one("#reader-after .empty").text == "Nothing has been said here yet."
    page.ask("Anything?")
    assert page.one(".evidence .empty").text == "No round was found."
    page.open("nowhere")
    assert page.one(".problem").text.startswith("There is no such memory.\nRequest ")
