"""The page on a desktop and on a phone, light and dark, and for those who do not see it."""

import re
from typing import Any

import pytest

pytestmark = pytest.mark.browser
pytest.importorskip("selenium", reason="selenium is not installed: make test-browser")


QUESTION = "What is the blend from Tidewater Roasters called?"
Size = tuple[int, int]
DESKTOP = (1360, 860)
PHONE = (360, 780)
NARROW = (320, 600)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_it_fits_the_screen_and_follows_the_scheme(page: Any, size: Size, dark: bool) -> None:
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


@pytest.mark.parametrize("size", [DESKTOP, NARROW], ids=["desktop", "narrow"])
def test_long_names_and_captions_do_not_break_the_page(page: Any, size: Size) -> None:
    page.open("extreme", size=size)
    page.one(".round")
    page.take(f"wide-read-{size[0]}")
    heights = [time.size["height"] for time in page.all(".session time, .round time")]
    assert max(heights) < 2 * min(heights)
    captions = page.all(".pictures figcaption")
    assert len({each.size["height"] for each in captions[:5]}) == 1
    assert captions[5].size["height"] > captions[0].size["height"]
    page.ask("Look")
    page.take(f"wide-ask-{size[0]}")
    widths = "const e = document.querySelector('.findings'); return [e.scrollWidth, e.clientWidth]"
    assert len(set(page.run(widths))) == 1
    words, picture = page.one(".citation").rect, page.one(".citations .picture").rect
    assert words["x"] + words["width"] <= picture["x"]


def test_every_control_has_a_name_and_the_page_has_landmarks(page: Any) -> None:
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
