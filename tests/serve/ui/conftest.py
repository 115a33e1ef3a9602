"""A test double of the HTTP surface, and a real Chromium to drive the page with.

The double gives scripted answers, with no memory behind them; `serve.schemas` checks the shape of
all that it takes and gives. The question's
words pick what happens: `slow` never stops streaming, `dead` has no model, `broken` breaks off in
mid-answer, `busy` is refused.
"""

import asyncio
import hashlib
import shutil
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel

import serve
import vmem.datasets.sample
from serve.schemas import (
    AnswerRequest,
    Done,
    Failure,
    Memory,
    MemoryPage,
    RoundPage,
    SearchResponse,
    Token,
)
from serve.service import Options
from vmem.datasets.jsonl import read_rounds
from vmem.types import Image, Round, Turn

SAMPLE = Path(vmem.datasets.sample.__file__).parent
CSP = "default-src 'self'; img-src 'self' blob: data:; media-src 'self' blob:"
SIGNALS = ("text_dense", "text_sparse", "caption_dense", "caption_sparse", "visual")
UNKNOWN = {"code": "unknown_memory", "message": "There is no such memory."}
ERASED = 4
NO_ACCESS = {"code": "no_access", "message": "The key opens nothing here: check it."}
NO_MODEL = {
    "code": "model_unavailable",
    "message": "The language model cannot be reached: try again later.",
}


@dataclass(kw_only=True)
class Script:
    """What the double serves, and what it was asked.

    Attributes:
        memories: Rounds by memory.
        key: The one key that opens it, or None where none is asked for.
        asked: Every search and answer: its fields, and the attached picture's bytes or None.
        sent: The context of every search and answer.
        url: Where it is served.
    """

    memories: Mapping[str, list[Round]]
    key: str | None = None
    asked: list[tuple[dict[str, Any], bytes | None]] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def site() -> Iterator[Script]:
    """The double under way, with four memories; a round of `sample` is erased."""
    rounds = sample_rounds()
    script = Script(
        memories={
            "empty": [],
            "hostile": hostile_rounds(),
            "long": [replace(rounds[n % len(rounds)], id=f"L{n}", position=n) for n in range(300)],
            "sample": [round_ for round_ in rounds if round_.position != ERASED],
        }
    )
    config = uvicorn.Config(
        scripted_app(script), port=0, log_level="error", ws="none", lifespan="off"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    script.url = f"http://127.0.0.1:{port}"
    yield script
    server.should_exit = server.force_exit = True
    thread.join()


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


def hostile_rounds() -> list[Round]:
    """Rounds that would set a flag in the page if any text of them ever ran."""
    flag = "window.pwned = true"
    markup = f'<script>{flag}</script><img src="x" onerror="{flag}"><svg onload="{flag}">'
    image = Image(id=markup[:40], caption=markup)
    turns = [
        Turn(source_id=name, speaker=speaker, text=markup, images=(image,), transcript=markup)
        for name, speaker in (("H:1", "user"), (f"H:2{markup}", f"<b onclick='{flag}'>x</b>"))
    ]
    return [
        Round(
            id=turn.source_id,
            position=position,
            session=markup,
            time="2026-03-02T09:10",
            turns=(turn,),
        )
        for position, turn in enumerate(turns)
    ]


def sample_rounds() -> list[Round]:
    """The sample conversation."""
    return list(read_rounds(SAMPLE / "rounds.jsonl", SAMPLE)[0].rounds)


def scripted_app(script: Script) -> FastAPI:
    """The routes that the page calls, and the page."""
    app = FastAPI()
    pictures: dict[str, bytes] = {}

    @app.middleware("http")
    async def headers(request: Request, call_next: Any) -> Response:
        locked = script.key and request.url.path.startswith("/v1/")
        if locked and request.headers.get("authorization") != f"Bearer {script.key}":
            return problem(401, NO_ACCESS)
        response: Response = await call_next(request)
        response.headers["content-security-policy"] = CSP
        response.headers["x-request-id"] = "scripted-1"
        return response

    @app.get("/v1/memories", response_model=MemoryPage)
    async def memories(after: str = "", limit: int = 100) -> dict[str, Any]:
        names = [name for name in sorted(script.memories) if name > after]
        more = names[limit - 1] if len(names) > limit else None
        return {"memories": [info(script, name) for name in names[:limit]], "next": more}

    @app.get("/v1/memories/{memory}", response_model=Memory)
    async def memory(memory: str) -> Any:
        return info(script, memory) if memory in script.memories else problem(404, UNKNOWN)

    @app.get("/v1/memories/{memory}/rounds", response_model=RoundPage)
    async def rounds(memory: str, after: int = -1, limit: int = 100) -> Any:
        if memory not in script.memories:
            return problem(404, UNKNOWN)
        left = [round_ for round_ in script.memories[memory] if round_.position > after]
        page = [show(round_, memory, pictures) for round_ in left[:limit]]
        more = left[limit - 1].position if len(left) > limit else None
        return {"rounds": page, "next": more}

    @app.get("/v1/memories/{memory}/images/{digest}")
    @app.get("/v1/memories/{memory}/audio/{digest}")
    async def media(memory: str, digest: str) -> Response:
        return Response(pictures[digest], headers={"x-content-type-options": "nosniff"})

    app.mount("/ui", StaticFiles(directory=Path(serve.__file__).parent / "ui", html=True))
    asking_routes(app, script, pictures)
    return app


def asking_routes(app: FastAPI, script: Script, pictures: dict[str, bytes]) -> None:
    """Search and answer."""

    @app.post("/v1/memories/{memory}/search", response_model=SearchResponse)
    async def search(memory: str, request: Request) -> dict[str, Any]:
        fields, image = await read(request)
        script.asked.append((fields, image))
        result = found(script.memories[memory], memory, fields, image, pictures)
        script.sent.append(result["context"]["text"])
        return result

    @app.post("/v1/memories/{memory}/answer")
    async def answer(memory: str, request: Request) -> Response:
        fields, image = await read(request)
        script.asked.append((fields, image))
        if "busy" in fields["query"]:
            return problem(429, {"code": "overloaded", "message": "The service is busy."})
        first = found(script.memories[memory], memory, fields, image, pictures)
        script.sent.append(first["context"]["text"])
        return StreamingResponse(stream(first, fields["query"]), media_type="text/event-stream")


async def stream(first: dict[str, Any], query: str) -> AsyncIterator[str]:
    """The events of one answer; it names the best picture, so that its name becomes a link."""
    yield event("found", SearchResponse.model_validate(first))
    if "dead" in query:
        yield event("error", failure(NO_MODEL))
        return
    pictures = [image["id"] for cited in first["citations"] for image in cited["images"]]
    words = f"The blend is called Lamplighter, as on {(pictures or ['no picture'])[0]}.".split(" ")
    yield ": keep-alive\r\n\r\n"
    while "slow" in query:
        yield event("token", Token(text="and on "))
        await asyncio.sleep(0.05)
    for n, word in enumerate(words):
        yield event("token", Token(text=f" {word}" if n else word))
        await asyncio.sleep(0.02)
        if "broken" in query:
            return
    usage = [
        {"role": "hypo_caption", "prompt_tokens": 212, "completion_tokens": 41, "cached": True},
        {"role": "answer", "prompt_tokens": 1843, "completion_tokens": 12, "cached": False},
    ]
    done = {"answer": " ".join(words), "usage": usage, "model": "scripted"}
    seconds = {**first["seconds"], "answer": 1.84}
    yield event("done", Done(**done, seconds=seconds, request_id="scripted-1"))


def event(name: str, data: BaseModel) -> str:
    """One server-sent event, with the line ends that a server may choose."""
    return f"event: {name}\r\ndata: {data.model_dump_json()}\r\n\r\n"


async def read(request: Request) -> tuple[dict[str, Any], bytes | None]:
    """A search's or answer's fields, from JSON or a form, and its picture."""
    if "multipart" not in request.headers["content-type"]:
        sent = dict(await request.json())
        AnswerRequest.model_validate(sent)
        return sent, None
    async with request.form() as form:
        image: Any = form["image"]
        content = await image.read()
        fields: dict[str, Any] = {k: str(v) for k, v in form.items() if k != "image"}
    fields["options"] = Options.model_validate_json(fields["options"]).model_dump(exclude_none=True)
    return fields, content


def found(
    rounds: list[Round],
    memory: str,
    fields: dict[str, Any],
    image: bytes | None,
    pictures: dict[str, bytes],
) -> dict[str, Any]:
    """A search response: rounds that share words with the question, ranked by how many."""
    words = set(fields["query"].lower().strip("?.").split())
    target = fields["options"].get("target", "auto").replace("auto", "text")
    top_k = fields["options"].get("top_k") or 8
    best = sorted(rounds, key=lambda round_: (-shared(round_, words), round_.position))
    signals = SIGNALS[:2] if target == "text" else SIGNALS[2 if image is None else 0 :]
    ranks = {signal: best[n:][:20] for n, signal in enumerate(signals)}
    ranked = [
        {
            "rank": rank,
            "position": round_.position,
            "round_id": round_.id,
            "score": sum(1 / (60 + rank + n) for n in range(len(signals))),
            "ranks": {s: ranks[s].index(round_) + 1 for s in signals if round_ in ranks[s]},
        }
        for rank, round_ in enumerate(best[:top_k], 1)
    ]
    shown = [show(round_, memory, pictures) for round_ in best[: max(top_k, 20)]]
    text = "\n\n".join(f"[{r.session}, {r.time}]\n{said(r)}" for r in best[:top_k])
    return {
        "request_id": "scripted-1",
        "memory": memory,
        "version": 7,
        "route": {
            "case": f"{'text' if image is None else 'image+text'}->{target}",
            "query_modality": "text" if image is None else "image",
            "target": target,
            "counts_images": False,
            "aggregates": "all" in words,
            "asks_conflict": False,
            "reason": f"{'no' if image is None else 'a'} picture is attached; nothing in the "
            "wording asks for a picture",
        },
        "context": {
            "text": text,
            "tokens": len(text) // 4,
            "words": len(text.split()),
            "note": "",
            "blocks": [],
            "dropped": [],
        },
        "citations": [
            {**item, **show_short(round_, memory, pictures)}
            for item, round_ in zip(ranked, best, strict=False)
        ],
        "notes": ["The attached picture has no caption."] if image else [],
        "seconds": {"anchors": 0.412, "encode": 0.018, "lanes": 0.0006, "assemble": 0.0041},
        "anchors": {
            "by_signal": {s: {"image": "q"} if s == "visual" else fields["query"] for s in signals},
            "hypo_caption": None,
            "keywords": [],
            "query_caption": None,
        },
        "lanes": {
            signal: [
                {"rank": n, "position": r.position, "round_id": r.id}
                for n, r in enumerate(ranks[signal], 1)
            ]
            for signal in signals
        },
        "fused": ranked,
        "usage": [],
        "rounds": shown,
    }


def shared(round_: Round, words: set[str]) -> int:
    """How many of the words are said in the round."""
    return len(words & set(said(round_).lower().split()))


def said(round_: Round) -> str:
    """A round as one text."""
    return "\n".join(f"{turn.speaker}: {turn.text}" for turn in round_.turns)


def show(round_: Round, memory: str, pictures: dict[str, bytes]) -> dict[str, Any]:
    """A round as JSON; its files are kept for the media route."""
    turns = [
        {
            "speaker": turn.speaker,
            "text": turn.text,
            "images": [show_image(image, memory, pictures) for image in turn.images],
            "audio_url": turn.audio and keep(turn.audio, memory, "audio", pictures)[0],
            "transcript": turn.transcript,
        }
        for turn in round_.turns
    ]
    named = {"id": round_.id, "position": round_.position, "session": round_.session}
    return {**named, "time": round_.time, "turns": turns}


def show_short(round_: Round, memory: str, pictures: dict[str, bytes]) -> dict[str, Any]:
    """What a citation tells of a round."""
    images = [show_image(image, memory, pictures) for image in round_.images]
    return {"session": round_.session, "time": round_.time, "images": images, "shown": True}


def show_image(image: Image, memory: str, pictures: dict[str, bytes]) -> dict[str, Any]:
    """A picture as JSON."""
    url, digest = keep(image.uri, memory, "images", pictures) if image.uri else (None, None)
    return {"id": image.id, "caption": image.caption, "url": url, "digest": digest}


def keep(uri: str, memory: str, kind: str, pictures: dict[str, bytes]) -> tuple[str, str]:
    """Keep a file's bytes; its address and digest."""
    content = Path(uri).read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    pictures[digest] = content
    return f"/v1/memories/{memory}/{kind}/{digest}", digest


def info(script: Script, memory: str) -> dict[str, Any]:
    """A memory as JSON."""
    rounds = script.memories[memory]
    images = sum(len(round_.images) for round_ in rounds)
    counts = {"rounds": len(rounds), "erased": 0, "images": images, "version": 7}
    return {"id": memory, **counts, "created_at": "2026-03-02T09:10:00+00:00"}


def failure(error: dict[str, str]) -> Failure:
    """An error of the contract's form."""
    return Failure.model_validate({"error": {**error, "type": "api", "request_id": "scripted-1"}})


def problem(status: int, error: dict[str, str]) -> JSONResponse:
    """It as a response."""
    return JSONResponse(failure(error).model_dump(), status, {"x-request-id": "scripted-1"})
