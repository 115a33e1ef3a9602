"""The page in a real Chromium: reading, asking by keyboard alone, pictures, failures, safety."""

import base64
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
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
Size = tuple[int, int]
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
        self, memory: str = "", *, size: Size = DESKTOP, dark: bool = False, url: str = ""
    ) -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        calm = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme, calm]})
        screen = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        self.driver.get("about:blank")
        self.driver.get(f"{url or self.url}/ui/" + (f"#/{memory}" if memory else ""))

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


def test_citations_and_names_lead_to_their_round(page: Page, site: Any) -> None:
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


def test_a_far_round_is_reached_without_reading_all_before_it(page: Page) -> None:
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


def test_a_picture_goes_with_the_question(page: Page, site: Any) -> None:
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


def test_an_option_out_of_bounds_is_told(page: Page) -> None:
    page.open("sample")
    page.one(".round")
    page.one("#top-k").send_keys("5000")
    page.one("#question").send_keys("otter", Keys.ENTER)
    assert "top_k" in page.one("#outcome .problem p").text


@pytest.mark.parametrize("kind", ["paste", "drop"])
def test_a_picture_is_pasted_or_dropped(page: Page, kind: str) -> None:
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
    ("mark", "sentence"),
    [
        ("@dead", "The language model cannot be reached: try again later."),
        ("@cut", "The language model gave no usable answer."),
    ],
)
def test_a_dead_backbone_is_told_and_can_be_tried_again(
    page: Page, mark: str, sentence: str
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


def test_a_stream_that_breaks_off_is_told(page: Page) -> None:
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


def test_a_busy_service_is_told(page: Page, site: Any) -> None:
    page.open("sample")
    page.one(".round")
    url = f"{site.url}/v1/memories/sample/answer"
    with httpx.stream("POST", url, json={"query": "@slow", "stream": True}) as under_way:
        pieces = under_way.iter_text()  # a name of its own: let go of, it ends the stream
        assert "event: found" in next(pieces)
        page.one("#question").send_keys(QUESTION, Keys.ENTER)
        assert page.one("#outcome .problem p").text == "The service is busy: try again shortly."
    page.until(lambda: answered_when_tried_again(page))


def answered_when_tried_again(page: Page) -> bool:
    """The place of a stream is free once its server has noticed that the reader is gone."""
    for button in page.all("#outcome .problem button"):
        button.click()
    return page.text("#outcome .status").startswith("Answered")


def test_escape_stops_an_answer(page: Page) -> None:
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


def test_the_key_is_asked_for_only_when_the_server_wants_one(page: Page, site: Any) -> None:
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


def test_empty_and_unknown_memories_say_so(page: Page) -> None:
    page.open("empty")
    assert page.one("#reader-after .empty").text == "Nothing has been said here yet."
    page.ask("Anything?")
    assert page.one(".evidence .empty").text == "No round was found."
    page.open("nowhere")
    assert page.one(".problem").text.startswith("There is no such memory.\nRequest ")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_it_fits_the_screen_and_follows_the_scheme(page: Page, size: Size, dark: bool) -> None:
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
