"""The page in a real Chromium: reading, asking by keyboard alone, pictures, failures, safety."""

import base64
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import vmem.datasets.sample

pytestmark = pytest.mark.browser
pytest.importorskip("selenium", reason="selenium is not installed: make test-browser")

from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.remote.webelement import WebElement  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

CAT = Path(vmem.datasets.sample.__file__).parent / "images" / "query_cat.jpg"
QUESTION = "What is the blend from Tidewater Roasters called?"
DESKTOP = (1360, 860)
PHONE = (360, 780)
TIMEOUT_S = 20


class Page:
    """The page as a reader has it before them."""

    def __init__(self, driver: Any, url: str, pictures: Path) -> None:
        self.driver = driver
        self.url = url
        self._pictures = pictures

    def open(
        self, memory: str = "", *, size: tuple[int, int] = DESKTOP, dark: bool = False
    ) -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        calm = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme, calm]})
        screen = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        self.driver.get("about:blank")
        self.driver.get(f"{self.url}/ui/" + (f"#/{memory}" if memory else ""))

    def all(self, css: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def one(self, css: str) -> WebElement:
        """The first element that is shown, waited for."""
        return self.until(lambda: next((e for e in self.all(css) if e.is_displayed()), None), css)

    def text(self, css: str) -> str:
        return str(self.one(css).get_property("textContent"))

    def until(self, ready: Callable[[], Any], what: str = "") -> Any:
        return WebDriverWait(self.driver, TIMEOUT_S, 0.05).until(lambda _: ready(), what)

    def run(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def press(self, *keys: str) -> None:
        """Keys for whatever has the focus."""
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)

    def ask(self, question: str, *, status: str = "Answered") -> None:
        field = self.one("#question")
        field.clear()
        field.send_keys(question, Keys.ENTER)
        self.until(lambda: self.text("#outcome .status").startswith(status), status)

    def console(self) -> list[str]:
        """Errors and warnings of the browser's console, but for answers of status 4xx and 5xx."""
        entries = [entry["message"] for entry in self.driver.get_log("browser")]
        return [entry for entry in entries if "Failed to load resource" not in entry]

    def take(self, name: str) -> None:
        """A screenshot, for a person to look at."""
        assert self.driver.save_screenshot(str(self._pictures / f"{name}.png"))


@pytest.fixture
def page(chromium: Any, site: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    page = Page(chromium, site.url, tmp_path_factory.getbasetemp())
    yield page
    assert page.console() == []
    assert page.run("return window.pwned") is None


def test_a_memory_is_picked_and_read_by_keyboard(page: Page, site: Any) -> None:
    page.open()
    page.one(".memory-link").send_keys(Keys.END)
    focused = page.driver.switch_to.active_element
    assert focused.text.splitlines() == ["sample", "51 rounds · 19 pictures · since 2 Mar 2026"]
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


def test_a_voice_message_can_be_heard(page: Page) -> None:
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


def test_a_question_typed_by_keyboard_alone_is_answered(page: Page, site: Any) -> None:
    page.open("sample")
    page.one(".round")
    page.press("/")
    assert page.run("return document.activeElement.id") == "question"
    page.press(*"Blend of Tidewater?", Keys.SHIFT + Keys.ENTER)
    page.driver.switch_to.active_element.clear()
    page.ask(QUESTION)
    fields, image = site.asked[-1]
    assert (fields["query"], fields["stream"], fields["explain"], image) == (
        QUESTION,
        True,
        True,
        None,
    )
    assert fields["options"] == {"target": "auto"}

    answer = page.one(".answer")
    assert answer.text == "The blend is called Lamplighter, as on D2:IMG_004."
    assert answer.get_attribute("aria-live") == "polite"
    assert answer.get_attribute("aria-busy") is None
    route = page.one(".route").text
    assert "A question in words that looks for what was said" in route
    assert "no picture is attached; nothing in the wording asks for a picture." in route

    tables = page.all(".lane table")
    assert [t.find_element(By.TAG_NAME, "strong").text for t in tables] == [
        "Texts by meaning",
        "Texts by words",
    ]
    best = [t.find_element(By.CSS_SELECTOR, ".round-link").text for t in tables]
    assert best == ["D3:6", "D2:9"]
    cells = [cell.text for cell in page.all(".fused-table tbody tr:nth-child(2) td")]
    assert cells == ["2", "D2:9", f"{1 / 62 + 1 / 63:.4f}", "2", "1"]
    page.one(".context summary").click()
    assert page.text(".context pre") == site.sent[-1]
    page.one(".costs summary").click()
    assert "1,843 read, 12 written" in page.one(".costs").text
    assert "412 ms" in page.one(".costs").text
    page.take("answer-light")


def test_citations_and_names_lead_to_their_round(page: Page) -> None:
    page.open("sample")
    page.one(".round")
    page.ask(QUESTION)
    page.one(".citation").send_keys(Keys.ARROW_DOWN)
    page.press(Keys.ENTER)
    focused = lambda: page.driver.switch_to.active_element  # noqa: E731
    page.until(lambda: focused().get_attribute("aria-label") == "Round D2:9")
    assert "found" in focused().get_attribute("class").split()
    assert focused().find_element(By.CSS_SELECTOR, ".cited").text == "found, rank 2"
    assert page.run("return document.activeElement.getBoundingClientRect().top < innerHeight")
    page.one(".lane .round-link").click()
    page.until(lambda: focused().get_attribute("aria-label") == "Round D3:6")
    page.one(".answer .round-link").click()
    page.until(lambda: focused().get_attribute("aria-label") == "Round D2:9")


def test_a_far_round_is_reached_without_reading_all_before_it(page: Page) -> None:
    page.open("long")
    page.one(".round")
    page.ask("Night Sky 2026")
    page.all(".citation")[-1].click()
    page.until(lambda: page.all(".round.found"))
    shown = lambda: [int(card.get_attribute("data-position")) for card in page.all(".round")]  # noqa: E731
    assert shown()[0] == 204 - 6
    page.one("#reader-before button").click()
    page.until(lambda: shown()[0] == 204 - 6 - 40)
    assert shown() == list(range(shown()[0], shown()[-1] + 1))

    def at_end() -> bool:
        page.run("document.querySelector('#reader').scrollTop = 1e6")
        return shown()[-1] == 299

    page.until(at_end)
    assert shown() == list(range(shown()[0], 300))


def test_a_picture_goes_with_the_question(page: Page, site: Any) -> None:
    page.open("sample")
    page.one(".round")
    page.all("#picture")[0].send_keys(str(CAT))
    assert page.one("#attachment .file").text == CAT.name
    page.one("input[value=image] + span").click()
    page.one("#top-k").send_keys("5")
    page.one("#window").send_keys("2")
    page.ask("Which cat is this?")
    fields, image = site.asked[-1]
    assert image == CAT.read_bytes()
    assert fields["options"] == {"target": "image", "top_k": 5, "window": 2}
    assert fields["stream"] == fields["explain"] == "true"
    assert "A question with a picture that looks for pictures" in page.one(".route").text
    assert page.all(".lane caption strong")[-1].text == "Pictures by likeness"
    assert page.all(".lane .anchor")[-1].text == "searched with the attached picture"
    assert page.one(".note").text == "The attached picture has no caption."
    assert len(page.all(".citation")) == 5
    page.until(lambda: page.one(".asked img").get_property("naturalWidth"))

    page.one("#search").click()
    page.until(lambda: page.text("#outcome .status").startswith("Searched"))
    assert "stream" not in site.asked[-1][0]
    assert not page.all(".answer")


@pytest.mark.parametrize("kind", ["paste", "drop"])
def test_a_picture_is_pasted_or_dropped(page: Page, site: Any, kind: str) -> None:
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
    assert site.asked[-1][1] == CAT.read_bytes()
    page.one("#attachment button").click()
    page.ask("Which cat?")
    assert site.asked[-1][1] is None


def test_stored_script_never_runs(page: Page) -> None:
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


@pytest.mark.parametrize(
    ("question", "sentence", "evidence"),
    [
        ("dead", "The language model cannot be reached: try again later.", True),
        ("broken", "The answer broke off.", True),
        ("busy", "The service is busy.", False),
    ],
)
def test_a_failure_is_told_and_can_be_tried_again(
    page: Page, site: Any, question: str, sentence: str, evidence: bool
) -> None:
    page.open("sample")
    page.one(".round")
    page.one("#question").send_keys(question, Keys.ENTER)
    problem = page.one("#outcome .problem")
    assert problem.get_attribute("role") == "alert"
    assert problem.text.splitlines() == [sentence, "Request scripted-1", "Try again"]
    assert bool(page.all(".citation")) == evidence
    assert page.one("#submit").text == "Ask"
    asked = len(site.asked)
    problem.find_element(By.TAG_NAME, "button").click()
    page.until(lambda: len(site.asked) == asked + 1)
    page.one("#outcome .problem")
    page.take(f"failure-{question}")


def test_escape_stops_an_answer(page: Page) -> None:
    page.open("sample")
    page.one(".round")
    page.one("#question").send_keys("slow", Keys.ENTER)
    page.until(lambda: "and on and on" in page.one(".answer").text)
    assert page.one("#submit").text == "Stop"
    page.press(Keys.ESCAPE)
    page.until(lambda: page.text("#outcome .status") == "Stopped.")
    assert page.one("#submit").text == "Ask"
    said = page.one(".answer").text
    page.ask(QUESTION)
    assert "and on" in said
    assert page.one(".answer").text.startswith("The blend")


def test_the_key_is_asked_for_only_when_the_server_wants_one(page: Page, site: Any) -> None:
    page.open()
    page.one(".memory-link")
    assert not page.all("dialog[open]")
    site.key = "right"
    page.open("sample")
    page.one("#key").send_keys("wrong", Keys.ENTER)
    page.until(lambda: page.one("#key").get_property("value") == "")
    assert page.one("#key-reason").text == "The key opens nothing here: check it."
    page.one("#key").send_keys("right", Keys.ENTER)
    page.one(".round")
    page.until(lambda: page.one(".picture img[src]").get_property("naturalWidth"))
    assert page.run("return [{...sessionStorage}, {...localStorage}]") == [
        {"vmem-key": "right"},
        {},
    ]
    page.one("#forget").click()
    page.one("#key")
    page.one("#key-cancel").click()
    assert page.one(".problem p").text == "The key opens nothing here: check it."


def test_empty_and_unknown_memories_say_so(page: Page) -> None:
    page.open("empty")
    assert page.one("#reader-after .empty").text == "Nothing has been said here yet."
    page.ask("Anything?")
    assert page.one(".evidence .empty").text == "No round was found."
    page.open("nowhere")
    assert page.one(".problem").text.startswith("There is no such memory.\nRequest scripted-1")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_it_fits_the_screen_and_follows_the_scheme(
    page: Page, size: tuple[int, int], dark: bool
) -> None:
    page.open("sample", size=size, dark=dark)
    page.one(".round")
    page.take(f"read-{size[0]}-{'dark' if dark else 'light'}")
    page.ask(QUESTION)
    page.take(f"ask-{size[0]}-{'dark' if dark else 'light'}")
    wide = "return [document.documentElement.scrollWidth, document.documentElement.scrollHeight]"
    assert page.run(wide) == list(size)
    cut_off = """
        const seen = (e) => e.offsetParent && !e.closest('.scroll, .unseen, .attach, .switch');
        return [...document.querySelectorAll('button, input, textarea, p, h2')].filter(seen)
            .filter((e) => e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.outerHTML)
    """
    assert page.run(cut_off) == []
    ground = page.run("return getComputedStyle(document.body).backgroundColor")
    shade = sum(map(int, re.findall(r"\d+", ground))) / 3
    assert (shade < 64) if dark else (shade > 192)
    if size == PHONE:
        assert not page.all(".reader")[0].is_displayed()
        page.one(".citation").click()
        page.until(lambda: page.all(".round.found"))
        assert page.one(".round.found").is_displayed()
        assert not page.all(".findings")[0].is_displayed()


def test_every_control_has_a_name_and_the_page_has_landmarks(page: Page) -> None:
    page.open("sample")
    page.one(".round")
    page.ask(QUESTION)
    nodes = page.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    shown = [node for node in nodes if not node.get("ignored")]
    roles = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in shown]
    controls = {
        "button",
        "link",
        "textbox",
        "radio",
        "spinbutton",
        "image",
        "dialog",
        "DisclosureTriangle",
    }
    assert not [role for role, name in roles if role in controls and not name]
    assert {"banner", "main", "region", "form", "textbox", "radio", "spinbutton"} <= dict(
        roles
    ).keys()
    assert ("form", "Ask a question") in roles
    assert ("region", "Conversation") in roles


def test_events_are_read_whatever_their_line_ends_and_pieces(page: Page) -> None:
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
