"""A real Chromium, the page in it as a reader has it before them, and what there is to read."""

import base64
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import vmem.datasets.sample

SAMPLE = Path(vmem.datasets.sample.__file__).parent
Size = tuple[int, int]
DESKTOP = (1360, 860)
TIMEOUT_S = 20


class Page:
    """The page as a reader has it before them."""

    def __init__(self, driver: Any, url: str, pictures: Path, timeout_s: float) -> None:
        self.driver = driver
        self.url = url
        self._pictures = pictures
        self._timeout_s = timeout_s

    def open(
        self, memory: str = "", *, size: Size = DESKTOP, dark: bool = False, url: str = ""
    ) -> None:
        self.show_on(size, dark=dark)
        self.driver.get("about:blank")
        self.driver.get(f"{url or self.url}/ui/" + (f"#/{memory}" if memory else ""))

    def show_on(self, size: Size, *, dark: bool) -> None:
        """Another screen for what is open."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        calm = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme, calm]})
        screen = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)

    def all(self, css: str) -> list[Any]:
        return self.driver.find_elements("css selector", css)

    def one(self, css: str) -> Any:
        """The first element that is shown, waited for."""
        return self.until(lambda: next((e for e in self.all(css) if e.is_displayed()), None), css)

    def text(self, css: str) -> str:
        return str(self.one(css).get_property("textContent"))

    def until(self, ready: Callable[[], Any], what: str = "") -> Any:
        from selenium.webdriver.support.ui import WebDriverWait

        return WebDriverWait(self.driver, self._timeout_s, 0.05).until(lambda _: ready(), what)

    def run(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def press(self, *keys: str) -> None:
        """Keys for whatever has the focus."""
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)

    def ask(self, question: str, *, status: str = "Answered") -> None:
        from selenium.webdriver.common.keys import Keys

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
def open_page(
    chromium: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Page]]:
    """Makes the page of an application, by its address; its console has to stay empty."""
    pages: list[Page] = []

    def make(url: str, timeout_s: float = TIMEOUT_S) -> Page:
        pages.append(Page(chromium, url, tmp_path_factory.getbasetemp(), timeout_s))
        return pages[-1]

    yield make
    for page in pages:
        assert page.console() == []


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A headless Chromium of the system, with its own driver: nothing is downloaded."""
    pytest.importorskip("selenium", reason="selenium is not installed: make test-browser")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    found = shutil.which("chromium"), shutil.which("chromedriver")
    if not all(found):
        pytest.skip("there is no Chromium here: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = found[0]
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(found[1]))
    yield driver
    driver.quit()


@pytest.fixture(scope="session")
def sample_rounds() -> list[dict[str, Any]]:
    """The rounds of the sample as the append route takes them."""
    lines = (SAMPLE / "rounds.jsonl").read_text().splitlines()
    return [as_request(json.loads(line)) for line in lines]


def as_request(line: dict[str, Any]) -> dict[str, Any]:
    """A line of the sample's file with bytes instead of paths."""
    asked = {k: v for k, v in line.items() if k not in {"dialogue", "transcript"}}
    if "turns" in line:
        asked["turns"] = [as_request(turn) for turn in line["turns"]]
    if "images" in line:
        asked["images"] = [
            {"id": i["id"], "caption": i["caption"], "base64": read(i["path"])}
            for i in line["images"]
        ]
    if "audio" in line:
        asked["audio"] = {"base64": read(line["audio"]), "transcript": line["transcript"]}
    return asked


def read(name: str) -> str:
    """A file of the sample as base64."""
    return base64.b64encode((SAMPLE / name).read_bytes()).decode()
