"""The page before the whole application: Ray, real encoders, an embedded Milvus and llama.cpp."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

import vmem.datasets.sample
from vmem.config import CONFIGS, read_mapping

pytestmark = [
    pytest.mark.browser,
    pytest.mark.cluster,
    pytest.mark.timeout(600),
]
CAT = Path(vmem.datasets.sample.__file__).parent / "images" / "query_cat.jpg"
QUESTION = "Which cat is this, and where does it sleep?"
SCREENS = {
    f"{name}-{'dark' if dark else 'light'}": (size, dark)
    for name, size in (("desktop", (1360, 860)), ("phone", (360, 780)))
    for dark in (False, True)
}
COUNT_PIECES = """
    const answer = document.querySelector(".answer");
    window.pieces = 0;
    new MutationObserver((changes) => {
        if (answer.hasAttribute("aria-busy")) window.pieces += changes.length;
    }).observe(answer, { childList: true });
"""

CUT_OFF = """
    const question = document.querySelector("#question");
    return question.scrollHeight - question.clientHeight;
"""


@pytest.fixture
def url(
    tmp_path: Path,
    serve_process: Callable[[Path, dict[str, Any]], Any],
    sample_rounds: list[dict[str, Any]],
) -> str:
    """The address of an application that remembers the sample."""
    from serve.launch import free_port

    settings = read_mapping(CONFIGS / "serve" / "embedded.yaml")
    settings["memory"]["store"] = {"home": str(tmp_path)}
    settings["http"]["port"] = free_port()
    _, url = serve_process(tmp_path, settings)
    sent = {"rounds": sample_rounds}
    reply = httpx.post(f"{url}/v1/memories/sample/rounds", json=sent, timeout=240)
    assert reply.status_code == 200, reply.text
    return str(url)


def test_a_question_with_a_picture_is_answered(open_page: Callable[..., Any], url: str) -> None:
    page = open_page(url, timeout_s=240)
    page.open("sample")
    page.one(".round")
    _look_at_sessions(page)

    page.all("#picture")[0].send_keys(str(CAT))
    page.one("#question").send_keys(QUESTION)
    page.one("#submit").click()
    page.one(".answer")
    page.run(COUNT_PIECES)
    page.until(lambda: page.text("#outcome .status").startswith("Answered"), "the answer")
    assert page.one(".answer").text
    assert page.run("return window.pieces") > 1

    assert "A question with a picture" in page.one(".route").text
    lanes = [lane.text for lane in page.all(".lane caption strong")]
    assert "Texts by meaning" in lanes
    assert page.all(".lane .round-link")
    fused = page.all(".fused-table tbody tr")
    cited = [each.text for each in page.all(".citation .round-id")]
    assert 0 < len(cited) <= len(fused)
    assert page.text(".fused-table .round-link") == cited[0]
    left_out = page.all(".left-out .tag")
    assert 0 < len(left_out) < len(cited)
    assert page.text(".unsent").startswith(f"{len(left_out)} of the {len(cited)} rounds")
    page.one(".context summary").click()
    shown = page.text("li:not(.left-out) > .citation .words")
    assert shown in page.text(".context pre")
    page.one(".costs summary").click()
    assert "tokens by role" in page.one(".costs").text.lower()
    _look_at_the_outcome(page)


def _look_at_sessions(page: Any) -> None:
    figure = "document.querySelectorAll('.round figure')[3]"
    for name, (size, dark) in SCREENS.items():
        page.show_on(size, dark=dark)
        page.run(f"{figure}.closest('.round').scrollIntoView()")
        page.until(lambda: page.run(f"return {figure}.querySelector('img').naturalWidth"))
        page.take(f"ray-sessions-{name}")
    page.show_on((1360, 860), dark=False)


def _look_at_the_outcome(page: Any) -> None:
    for name, (size, dark) in SCREENS.items():
        page.show_on(size, dark=dark)
        page.until(lambda: page.run(CUT_OFF) <= 0, "the whole question")
        for part in ("asked", "route", "lanes", "fused", "context", "costs"):
            page.run("document.querySelector(arguments[0]).scrollIntoView()", f"#outcome .{part}")
            page.take(f"ray-{part}-{name}")
