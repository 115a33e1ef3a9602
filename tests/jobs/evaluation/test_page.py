"""The report: hostile texts stay texts, nothing is loaded, every table is there, gaps are said."""

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Sequence
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

from PIL import Image

from jobs.evaluation.run_folder import RunFolder
from jobs.report import page
from jobs.report.merged_runs import read_statistics
from jobs.report.pictures import SIDE, Thumbnails
from jobs.report.table_formats import Entry, Grid, Line, to_html
from jobs.significance import summarise_run
from jobs.tables import make_grids, write_tables

HOSTILE = '</script><script>alert(1)</script><img src=x onerror="alert(2)">'
CATEGORY = '<b onclick="x()">$x^2$ & FR'
VOID = {"meta", "img", "link", "br", "input"}
SCRIPT = (Path(page.__file__).parent / "report.js").read_text(encoding="utf-8")


class Element:
    """An element with its attributes and all text inside."""

    def __init__(self, tag: str, attributes: dict[str, str], inside: tuple[str, ...]) -> None:
        self.tag, self.attributes, self.inside, self.text = tag, attributes, inside, ""


class Parsed(HTMLParser):
    """What a browser makes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[Element] = []
        self._open: list[Element] = []
        self.feed(text)
        self.close()
        assert not self._open, [element.tag for element in self._open]

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        inside = tuple(one.attributes.get("id", "") for one in self._open)
        element = Element(tag, {name: value or "" for name, value in attrs}, inside)
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.text += data

    def all(self, tag: str, **attributes: str) -> list[Element]:
        return [
            one
            for one in self.elements
            if one.tag == tag and attributes.items() <= one.attributes.items()
        ]


def finish(run, **more: Any) -> None:
    summarise_run(run.folder, run.manifest(**more), 7, 100)


def write(run, name: str = "report.html") -> Parsed:
    report = run.folder.path / name
    assert write_tables([run.folder], run.folder.path / "tables", None, report)[0] == report
    return Parsed(report.read_text(encoding="utf-8"))


def fill(run, systems: Sequence[str] = ("v-mem", "bm25"), **changes: Any) -> None:
    """Two judges twice over eight questions of two categories, and what they planted."""
    for place, system in enumerate(systems):
        records = [run.record(n, category=CATEGORY if n % 2 else "TR", **changes) for n in range(8)]
        scores = [(n + place) % 3 / 2 for n in range(8)]
        lines = {
            "strict.gallery": [
                run.judgement(record, score, repetition=again, reason=HOSTILE)
                for record, score in zip(records, scores, strict=True)
                for again in range(2)
            ],
            "kind.gallery": [run.judgement(record, 1.0) for record in records],
        }
        run.add(records, lines, system=system)
    planted = run.folder.planted("mem-gallery.strict.gallery")
    for kind in ("vague", "specific"):
        planted.append(run.judgement(run.record(0), 0.0, question_id=f"D0#0~{kind}"))
    planted.finish([("D0#0~vague", 0), ("D0#0~specific", 0)])


def test_texts_of_users_and_models_stay_texts_and_the_pages_own_script_alone_may_run(run) -> None:
    fill(run, question=HOSTILE, answer=HOSTILE, context=HOSTILE, keywords=(HOSTILE,))
    finish(run, models={"small": HOSTILE, "strict": "j"}, data={"mem-gallery": HOSTILE})
    parsed = write(run)
    assert [one.text for one in parsed.all("script")] == [SCRIPT]
    policy = parsed.all("meta", **{"http-equiv": "Content-Security-Policy"})[0].attributes[
        "content"
    ]
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert not [a for one in parsed.elements for a in one.attributes if a.startswith("on")]
    assert not parsed.all("b")
    assert not parsed.all("img")
    told = Counter(one.tag for one in parsed.elements if HOSTILE in one.text)
    assert told["bdi"] == told["summary"] == 16  # each question, by two systems
    assert told["dd"] >= 16 * 6  # question, answer, context, keywords, two reasons
    assert told["p"] >= 1  # captions of tables name models
    assert any(CATEGORY in one.text for one in parsed.all("text"))  # in a plot


def test_nothing_is_loaded_from_anywhere(run) -> None:
    fill(run)
    finish(run)
    parsed = write(run)
    links = [
        value
        for one in parsed.elements
        for name, value in one.attributes.items()
        if name in ("src", "href", "xlink:href", "srcset", "action", "data", "poster", "background")
    ]
    assert links
    assert not [link for link in links if not link.startswith(("#", "data:image/jpeg;base64,"))]
    assert not {one.tag for one in parsed.elements} & {"link", "iframe", "object", "embed", "base"}
    styles = [one.text for one in parsed.all("style")]
    assert len(styles) == 1
    assert not re.search(r"url\(|@import|http", styles[0])
    inline = " ".join(one.attributes.get("style", "") for one in parsed.elements)
    assert not re.search(r"url\((?!#)", inline)


def test_the_same_run_gives_the_same_bytes(run) -> None:
    fill(run)
    finish(run)
    write(run, "one.html")
    write(run, "other.html")
    one, other = ((run.folder.path / name).read_bytes() for name in ("one.html", "other.html"))
    assert one == other


def test_every_table_is_in_the_page_with_all_its_lines_and_its_caption(run) -> None:
    fill(run)
    finish(run)
    parsed = write(run)
    merged = read_statistics([run.folder])
    grids = make_grids([run.folder], merged, {})
    assert len(grids) > 16
    for grid in grids:
        (shown,) = parsed.all("details", id=grid.name)
        assert grid.title in shown.text
        assert " ".join(grid.caption) in shown.text
        rows = [one for one in parsed.all("tr") if grid.name in one.inside]
        assert len(rows) == len(grid.lines) + 1
        cells = [one.text for one in parsed.all("td") if grid.name in one.inside]
        assert cells == [entry.text for line in grid.lines for entry in line.entries]
        assert [one.attributes["href"] for one in parsed.all("a")].count(f"#{grid.name}") == 1


def test_a_reader_who_does_not_see_finds_headings_captions_and_what_plots_say(run) -> None:
    fill(run)
    finish(run)
    parsed = write(run)
    ids = [one.attributes["id"] for one in parsed.elements if "id" in one.attributes]
    assert [name for name, count in Counter(ids).items() if count > 1] == []
    levels = [int(one.tag[1]) for one in parsed.elements if re.fullmatch(r"h[1-6]", one.tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert len(parsed.all("table")) == len(parsed.all("caption"))
    plots = parsed.all("div", role="img")
    judges, of_scores, of_judges = 2, 4, 3
    assert len(plots) == len(parsed.all("svg")) == judges * (of_scores + 1) + 1 + of_judges
    labels = [one.attributes["aria-label"] for one in plots]
    assert len(set(labels)) == len(labels)
    assert "V-Mem: 0.438" in labels[0]  # 0, ½, 1, 0, ½, 1, 0, ½: 3.5 of 8
    assert all(one.attributes["tabindex"] == "0" for one in parsed.all("div", role="region"))


def test_a_plot_without_data_is_said_to_be_absent_with_the_reason(run) -> None:
    run.add([run.record(n, answer="", cost={}) for n in range(3)])
    finish(run)
    parsed = write(run)
    absent = [one.text for one in parsed.all("figure") if "Not drawn" in one.text]
    for title, reason in {
        "Against v-mem": "only v-mem was run",
        "Against cost": "no system with a valid score has spent tokens",
        "Planted wrong answers": "no judge was given planted answers",
        "asked again": "no judge judged answers more than once",
        "Agreement of two judges": "no two judges judged the same answers",
        "What judges' levels go with": "no judge gave any answer a level",
    }.items():
        assert [text for text in absent if title in text and reason in text], title
    drawn = [one.text for one in parsed.all("figure") if "Not drawn" not in one.text]
    assert len(drawn) == 3
    assert sum("evidence R@12" in text for text in drawn) == 2


def test_an_empty_run_has_a_page_that_says_so(run) -> None:
    finish(run, benchmarks={})
    parsed = write(run)
    (section,) = parsed.all("section", id="validity")
    assert "No cell was run." in section.text
    assert "no cell has a score" in parsed.all("section", id="plots")[0].text
    assert "No question was answered." in parsed.all("section", id="questions")[0].text


def test_what_is_invalid_comes_first_and_has_no_place_in_a_plot(run) -> None:
    records = [run.record(n) for n in range(3)]
    failed = run.record(3, answer="", error="ModelError: no", scores=None)
    lines = [run.judgement(record, 1.0) for record in records]
    run.add([*records, failed], {"strict.gallery": lines})
    run.add([*records, run.record(3)], {"strict.gallery": [*lines, run.judgement(failed, 1.0)]},
            system="bm25")  # fmt: skip
    finish(run)
    parsed = write(run)
    sections = [one for one in parsed.all("section") if one.attributes.get("id")]
    assert [one.attributes["id"] for one in sections] == [
        "validity", "what-ran", "plots", "tables", "questions",
    ]  # fmt: skip
    assert "1 of 2 cells are invalid." in sections[0].text
    assert "mem-gallery.v-mem.small: invalid (1 failed)" in sections[0].text
    by_system = parsed.all("div", role="img")[0].attributes["aria-label"]
    assert "V-Mem: invalid (1 failed)" in by_system
    assert "BM25 alone: 1.000 [1.000, 1.000]" in by_system


def test_the_worst_questions_of_a_cell_are_chosen_and_the_rest_is_counted(run) -> None:
    scores = [1.0] * page.PER_CELL + [0.0] * 3 + [None]
    records = [
        run.record(n) if score is not None else run.record(n, answer="", error="ModelError: no")
        for n, score in enumerate(scores)
    ]
    marked = [(r, s) for r, s in zip(records, scores, strict=True) if s is not None]
    lines = [run.judgement(record, score) for record, score in marked]
    run.add(records, {"strict.gallery": lines})
    other = [run.record(n) for n in range(len(scores))]
    agreed = [run.judgement(record, 0.0 if n == 20 else 1.0) for n, record in enumerate(other)]
    run.add(other, {"strict.gallery": agreed}, system="bm25")
    finish(run)
    parsed = write(run)
    shown = [
        one.attributes["data-kinds"]
        for one in parsed.all("details")
        if one.attributes.get("data-system") == "v-mem"
    ]
    assert shown == ["failed", "wrong disagree", "wrong disagree", "wrong"] + [""] * 16
    (_, section) = parsed.all("section", **{"class": "cell"})
    assert "Shown: 16 right, 3 wrong, 1 failed. Left out: 4 right." in " ".join(
        section.text.split()
    )


def test_pictures_are_inlined_from_the_benchmarks_folder_alone(run, tmp_path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    Image.new("RGB", (900, 600), "teal").save(data / "in.png")
    Image.new("RGB", (9, 6), "teal").save(tmp_path / "out.png")
    (data / "bad.png").write_bytes(b"no picture")
    names = ("in.png", "../out.png", "bad.png", "gone.png", "http://example.org/a.png")
    uris: list[str | None] = [str(data / names[0]), *names[1:], None]
    records = [run.record(n, image=f"IMG_{n}", image_uri=uri) for n, uri in enumerate(uris)]
    run.add(records)
    manifest = run.manifest()
    manifest["plan"]["benchmarks"] = [{"name": "mem-gallery", "data": str(data)}]
    (run.folder.path / "manifest.json").write_text(json.dumps(manifest))
    finish(run)
    parsed = write(run)
    (shown,) = parsed.all("img")
    assert "IMG_0" in shown.attributes["alt"]
    assert shown.attributes["src"].startswith("data:image/jpeg;base64,")
    (section,) = parsed.all("section", id="questions")
    assert f"{len(uris) - 1} pictures have no file that can be shown" in section.text


def test_pictures_are_small_and_bounded(tmp_path, monkeypatch) -> None:
    Image.effect_noise((4000, 3000), 90).save(tmp_path / "a.png")
    pictures = Thumbnails([{"plan": {"benchmarks": [{"name": "b", "data": str(tmp_path)}]}}])
    made = pictures.make("b", "A", "a.png")
    assert made is not None
    data = base64.b64decode(made.partition(",")[2])
    (tmp_path / "small.jpg").write_bytes(data)
    with Image.open(tmp_path / "small.jpg") as small:
        assert small.size == (SIDE, SIDE * 3 / 4)
    monkeypatch.setattr("jobs.report.pictures.MOST_BYTES", len(made) * 2)
    pictures = Thumbnails([{"plan": {"benchmarks": [{"name": "b", "data": str(tmp_path)}]}}])
    assert [pictures.make("b", name, "a.png") for name in "ABC"] == [made, made, None]
    assert list(pictures.beyond) == ["b C"] and not pictures.missing


def test_a_table_as_html_escapes_all_of_it_and_parts_value_interval_and_mark() -> None:
    grid = Grid(
        name="t",
        title="<i>title",
        keys=("<i>key",),
        columns=("<i>column", "b", "c"),
        lines=(
            Line(
                keys=("<i>name",),
                figure="<i>figure",
                entries=(
                    Entry(value=0.5, interval=(0.25, 0.75), mark="<i>mark"),
                    Entry(value="<i>words"),
                    Entry(mark="<i>not run"),
                ),
            ),
        ),
        caption=("<i>caption",),
    )
    parsed = Parsed(str(to_html(grid)))
    assert not parsed.all("i")
    assert [one.text for one in parsed.all("td")] == [
        "0.500 [0.250, 0.750] (<i>mark)", "<i>words", "<i>not run",
    ]  # fmt: skip
    assert [one.text for one in parsed.all("span")] == ["[0.250, 0.750]", "(<i>mark)"]
    assert [one.text for one in parsed.all("th")] == [
        "<i>key", "figure", "<i>column", "b", "c", "<i>name", "<i>figure",
    ]  # fmt: skip
    assert parsed.all("p")[0].text == "<i>caption"


def test_runs_side_by_side_show_each_cell_once(make_run, tmp_path) -> None:
    first, second = make_run("first"), make_run("second")
    for run in (first, second):
        fill(run, systems=("v-mem",))
    fill_alone = [second.record(n) for n in range(2)]
    second.add(fill_alone, {}, system="dense")
    for run in (first, second):
        finish(run)
    report = tmp_path / "both.html"
    folders: list[RunFolder] = [first.folder, second.folder]
    write_tables(folders, tmp_path / "tables", None, report)
    parsed = Parsed(report.read_text(encoding="utf-8"))
    shown = Counter(
        one.attributes["data-system"] for one in parsed.all("details", **{"class": "question"})
    )
    assert shown == {"v-mem": 8, "dense": 2}
    assert "in an earlier run too" in parsed.all("section", id="validity")[0].text
