"""The page's files: nothing runs that was stored, nothing comes from elsewhere, all is readable."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import serve

UI = Path(serve.__file__).parent / "ui"
SCRIPTS = sorted(UI.glob("*.js"))
RUNS_TEXT = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|setHTML|document\.write|createContextualFragment"
    r"|DOMParser|srcdoc|\beval\b|new Function|javascript:|localStorage|document\.cookie"
)
ELSEWHERE = re.compile(r"(https?:)?//[\w-]+\.[\w.-]+|@import")
READ = [
    (ink, ground)
    for ink in ("ink", "soft", "accent")
    for ground in ("ground", "surface", "sunken", "tint")
] + [("on-accent", "accent"), ("danger", "danger-tint"), ("ink", "danger-tint"), ("ink", "raised")]


class Tags(HTMLParser):
    """Every tag with its attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


@pytest.fixture(scope="module")
def tags() -> list[tuple[str, dict[str, str | None]]]:
    parser = Tags()
    parser.feed((UI / "index.html").read_text())
    return parser.found


@pytest.mark.parametrize("file", SCRIPTS, ids=lambda file: file.name)
def test_no_text_can_become_markup_or_code(file: Path) -> None:
    assert not RUNS_TEXT.findall(file.read_text())


@pytest.mark.parametrize("file", sorted(UI.iterdir()), ids=lambda file: file.name)
def test_nothing_comes_from_elsewhere(file: Path) -> None:
    text = file.read_text().replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not ELSEWHERE.search(text)


def test_the_markup_holds_no_script_or_style_of_its_own(
    tags: list[tuple[str, dict[str, str | None]]],
) -> None:
    assert [attributes for tag, attributes in tags if tag == "script"] == [
        {"type": "module", "src": "app.js"}
    ]
    assert not [tag for tag, _ in tags if tag == "style"]
    inline = [name for _, attributes in tags for name in attributes if name.startswith("on")]
    assert not inline
    assert not [attributes for _, attributes in tags if "style" in attributes]


def test_ids_that_scripts_look_up_are_in_the_markup(
    tags: list[tuple[str, dict[str, str | None]]],
) -> None:
    ids = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    looked_up = {
        name for file in SCRIPTS for name in re.findall(r'byId\("(.+?)"', file.read_text())
    }
    assert looked_up <= set(ids)


def test_every_imported_name_is_exported() -> None:
    exports = {
        file.name: set(
            re.findall(
                r"^export (?:const|class|(?:async )?function\*?) (\w+)", file.read_text(), re.M
            )
        )
        for file in SCRIPTS
    }
    for file in SCRIPTS:
        for names, source in re.findall(r'import \{ (.+?) \} from "\./(.+?)"', file.read_text()):
            assert set(names.split(", ")) <= exports[source], f"{file.name} from {source}"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("ink", "ground"), READ)
def test_text_stands_out_from_its_ground(scheme: str, ink: str, ground: str) -> None:
    """WCAG 2.2, 1.4.3: at least 4.5 to 1."""
    light, dark = (
        dict(re.findall(r"--([\w-]+): (#\w{6});", block))
        for block in (UI / "style.css").read_text().split("prefers-color-scheme: dark", 1)
    )
    colours = light if scheme == "light" else light | dark
    high, low = sorted((luminance(colours[ink]), luminance(colours[ground])), reverse=True)
    assert (high + 0.05) / (low + 0.05) >= 4.5


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2.2 defines it."""
    channels = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
