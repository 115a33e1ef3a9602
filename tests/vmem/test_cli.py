"""What the command prints and how it ends; encoders and backbone are fakes."""

import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer
from PIL import Image as Pillow

from jobs import build_memory
from vmem import cli, cli_data
from vmem.datasets.fetch import LOCOMO_URL, fetch

COMMANDS = ["build", "append", "search", "ask", "memories", "delete", "export", "import", "serve"]
KEYS = [("keys", name) for name in ("create", "list", "rotate", "revoke")]
EVAL = [("eval", name) for name in ("retrieval", "run", "tables", "show", "compare", "cost")]
CLUSTER = [("cluster", name) for name in ("plan", "check")]
GROUPED = [*EVAL, ("data", "check"), ("data", "fetch"), *KEYS, *CLUSTER]
RECORD = {"question_id", "case", "ranked_rounds", "context_rounds", "context_words", "error"}


def line(id_: str, user: str, *images: dict[str, str], **more: Any) -> dict[str, Any]:
    day = {"session": "D1", "time": "2026-03-02T10:00"}
    return {"id": id_, **day, "user": user, "assistant": f"noted {id_}", "images": images} | more


def jsonl(*lines: dict[str, Any]) -> bytes:
    return "".join(f"{json.dumps(each)}\n" for each in lines).encode()


def picture(path: Path, colour: tuple[int, int, int]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Pillow.new("RGB", (24, 24), colour).save(path)
    return path


@pytest.fixture
def rounds(tmp_path: Path) -> Path:
    """Five rounds, two of which share a picture."""
    picture(tmp_path / "pics/kite.png", (200, 20, 20))
    picture(tmp_path / "pics/boat.png", (20, 20, 200))
    lines = [
        line("r1", "the harbour opens at nine"),
        line("r2", "my kite", {"path": "pics/kite.png", "caption": "a red kite", "id": "KITE"}),
        line("r3", "lunch was [soup] :cat:"),
        line("r4", "my boat", {"path": "pics/boat.png", "caption": "a blue boat", "id": "BOAT"}),
        line("r5", "the lighthouse is striped"),
    ]
    path = tmp_path / "trip.jsonl"
    path.write_bytes(jsonl(*lines))
    return path


@pytest.fixture
def trip(vmem: Any, fakes: Path, rounds: Path) -> str:
    """The name of a memory with those rounds."""
    assert vmem("append", "trip", rounds, "-s", fakes).returncode == 0
    return "trip"


def test_the_command_stands_alone() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "vmem.cli", "search", "trip", " ", "--home", "/dev/null/x"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("error ConfigError: store.home /dev/null/x cannot be created")
    assert done.stderr.count("\n") == 1


def test_help_lists_every_command(vmem: Any) -> None:
    done = vmem("--help")
    assert done.returncode == 0
    found = re.findall(r"^│ ([a-z]+) ", done.stdout, re.MULTILINE)
    assert found == [*COMMANDS, "eval", "data", "keys", "cluster"]


@pytest.mark.parametrize("words", [*((name,) for name in COMMANDS), *GROUPED], ids="-".join)
def test_help_tells_of_every_parameter(vmem: Any, words: tuple[str, ...]) -> None:
    done = vmem(*words, "--help")
    assert done.returncode == 0
    assert f"Usage: vmem {' '.join(words)}" in done.stdout
    command: Any = typer.main.get_command(cli.app)
    for word in words:
        command = command.commands[word]
    assert command.help.endswith(".")
    for parameter in command.params:
        assert parameter.help.strip(), f"{parameter.name} has no help"
        is_option = parameter.param_type_name == "option"
        assert (parameter.opts[0] if is_option else f" {parameter.metavar} ") in done.stdout
        assert is_option or parameter.metavar.isupper()


def test_a_bare_command_shows_help_and_fails(vmem: Any) -> None:
    assert vmem().returncode == 2
    assert vmem("data").returncode == 2


def test_append_counts_what_is_new(vmem: Any, fakes: Path, rounds: Path) -> None:
    first = vmem("append", "trip", rounds, "-s", fakes, "--json")
    assert (first.returncode, first.stderr) == (0, "")
    counts = {"memory": "trip", "added": 5, "unchanged": 0, "version": 1}
    assert json.loads(first.stdout) == counts
    again = vmem("append", "trip", rounds, "-s", fakes, "--json")
    assert json.loads(again.stdout) == counts | {"added": 0, "unchanged": 5}
    shown = vmem("append", "trip", rounds, "-s", fakes)
    assert re.search(r"unchanged\W+5\b", shown.stdout)


def test_append_reads_standard_input(vmem: Any, fakes: Path) -> None:
    lines = b"\xef\xbb\xbf" + jsonl(line("a", "one"), line("b", "two")) + b"\n"
    done = vmem("append", "trip", "-", "-s", fakes, "--json", stdin=lines)
    assert json.loads(done.stdout)["added"] == 2
    more = vmem("append", "trip", "-", "-s", fakes, "--json", stdin=jsonl(line("c", "three")))
    assert json.loads(more.stdout) == {"memory": "trip", "added": 1, "unchanged": 0, "version": 2}


@pytest.mark.parametrize("as_file", [True, False])
def test_append_does_not_mix_dialogues(
    vmem: Any, fakes: Path, tmp_path: Path, as_file: bool
) -> None:
    lines = jsonl(line("a", "one", dialogue="left"), line("a", "two", dialogue="right"))
    path = tmp_path / "both.jsonl"
    path.write_bytes(lines)
    done = vmem("append", "trip", path if as_file else "-", "-s", fakes, stdin=lines)
    assert done.returncode == 1
    assert "holds 2 dialogues, left and right among them: append each to a" in done.stderr
    assert "no memory yet" in vmem("memories", "-s", fakes).stdout


def test_search_as_json(vmem: Any, fakes: Path, trip: str) -> None:
    done = vmem("search", trip, "when does the harbour open?", "-s", fakes, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found.keys() == {"route", "anchors", "rounds", "context", "seconds"}
    assert found["route"]["case"] == "text->text"
    best = found["rounds"][0]
    assert best["round"] == "r1"
    assert best["ranks"] == {"text_dense": 1, "text_sparse": 1}
    assert best["score"] == pytest.approx(2 / 61)
    assert best["text"].startswith("User: the harbour opens at nine")
    assert found["context"]["rounds"] == ["r1", "r2", "r3", "r4", "r5"]
    assert found["context"]["words"] == len(found["context"]["text"].split())


def test_search_shows_rounds_as_they_were_said(vmem: Any, fakes: Path, trip: str) -> None:
    done = vmem("search", trip, "[soup] :cat:", "-s", fakes)
    (first,) = re.findall(r"^ *1 .*$", done.stdout, re.MULTILINE)
    assert "r3" in first
    assert "lunch was [soup] :cat:" in first
    assert "text_dense" not in done.stdout


def test_explaining_shows_route_anchors_and_ranks(vmem: Any, fakes: Path, trip: str) -> None:
    question = "Which picture shows a boat?"
    done = vmem("search", trip, question, "--explain", "-s", fakes)
    assert done.returncode == 0
    flat = " ".join(done.stdout.split())
    assert "text->image (no picture is attached; “Which picture” asks for an image)" in flat
    assert f"← {question}" in flat
    assert "note hypothetical caption off: no language model is configured" in flat
    assert re.search(r"text +text +caption +caption", flat)
    assert re.search(r"^ *1 +r4 +2026-03-02 +\d+ +\d+ +1 +1 ", done.stdout, re.MULTILINE)
    assert re.search(r"context: \d+ blocks, \d+ rounds, \d+ words, \d+ tokens", flat)


def test_search_with_a_picture_and_a_forced_target(
    vmem: Any, fakes: Path, trip: str, tmp_path: Path
) -> None:
    other = picture(tmp_path / "other.png", (20, 20, 200))
    done = vmem(
        "search", trip, "this", "--image", other, "--target", "image", "-s", fakes, "--json"
    )
    found = json.loads(done.stdout)
    assert found["route"]["case"] == "image+text->image"
    assert found["anchors"]["by_signal"] == {"visual": "the picture other.png"}
    assert found["rounds"][0]["images"] == ["BOAT"]


def test_search_lets_the_model_write_anchors_only_where_asked(
    vmem: Any, fakes: Path, trip: str
) -> None:
    words = ["search", trip, "Which picture shows a boat?", "-s", fakes, "--json"]
    assert json.loads(vmem(*words).stdout)["anchors"]["hypo_caption"] is None
    written = json.loads(vmem(*words, "--llm").stdout)["anchors"]
    assert written["hypo_caption"].startswith("fake hypo_caption")
    assert written["by_signal"]["caption_dense"] == written["hypo_caption"]


def test_ask_as_json(vmem: Any, fakes: Path, trip: str) -> None:
    done = vmem("ask", trip, "when does the harbour open?", "-s", fakes, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    assert answer["answer"].startswith("fake answer")
    assert [(usage["role"], usage["calls"]) for usage in answer["usage"]] == [("answer", 1)]
    assert answer["rounds"][0]["round"] == "r1"
    assert "answer" in answer["seconds"]


def test_ask_names_its_sources(vmem: Any, fakes: Path, trip: str) -> None:
    done = vmem("ask", trip, "harbour", "-s", fakes)
    assert "fake answer" in done.stdout
    assert re.search(r"from rounds r1, ", done.stdout)
    assert "text_dense" not in done.stdout
    assert "text_dense" in vmem("ask", trip, "harbour", "-s", fakes, "--explain").stdout


def test_memories_are_listed_with_counts_and_encoders(vmem: Any, fakes: Path, trip: str) -> None:
    shown = vmem("memories", "-s", fakes).stdout
    assert re.search(r"default +trip +5 +2 +1 +fake-text-32", shown)
    (bank,) = json.loads(vmem("memories", "-s", fakes, "--json").stdout)
    assert (bank["name"], bank["text_encoder"], bank["text_width"]) == (
        "default",
        "fake-text-32",
        32,
    )
    assert bank["units"] == {"fold_captions": True, "split_long_spans": False}
    (memory,) = bank["memories"]
    assert (memory["id"], memory["rounds"], memory["images"]) == ("trip", 5, 2)


def test_an_empty_store_says_how_to_begin(vmem: Any, fakes: Path) -> None:
    assert (
        "There is no memory yet: see `vmem append --help`." in vmem("memories", "-s", fakes).stdout
    )
    assert json.loads(vmem("memories", "-s", fakes, "--json").stdout) == []


def test_an_unknown_bank_is_not_an_empty_one(vmem: Any, fakes: Path, trip: str) -> None:
    done = vmem("memories", "--bank", "other", "-s", fakes)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error StoreError: there is no bank other; known: default\n"


@pytest.mark.parametrize("reply", [b"n\n", b"\n", b""])
def test_delete_asks_first(vmem: Any, fakes: Path, trip: str, reply: bytes) -> None:
    done = vmem("delete", trip, "-s", fakes, stdin=reply)
    assert done.returncode == 1
    assert "Erase memory trip with its 5 rounds? [y/N]" in done.stdout
    assert "Aborted" in done.stderr
    assert json.loads(vmem("memories", "-s", fakes, "--json").stdout)[0]["memories"]


@pytest.mark.parametrize(("options", "reply"), [([], b"y\n"), (["--yes"], b"")])
def test_delete_erases_what_it_says(
    vmem: Any, fakes: Path, trip: str, tmp_path: Path, options: list[str], reply: bytes
) -> None:
    assert list((tmp_path / "home/images").rglob("*.png"))
    done = vmem("delete", trip, *options, "-s", fakes, stdin=reply)
    assert done.returncode == 0
    assert done.stdout.endswith("Memory trip and its 5 rounds are erased.\n")
    assert json.loads(vmem("memories", "-s", fakes, "--json").stdout)[0]["memories"] == []
    assert not list((tmp_path / "home/images").rglob("*.png"))


def test_an_export_comes_back_whole(
    vmem: Any, fakes: Path, trip: str, tmp_path: Path, settings_file: Any
) -> None:
    folder, elsewhere = tmp_path / "a long [name] for a folder" / ("x" * 80), tmp_path / "new"
    done = vmem("export", trip, "--out", folder, "-s", fakes)
    assert (done.returncode, done.stdout) == (0, f"5 rounds of trip are in {folder}.\n")
    elsewhere.mkdir()
    other = settings_file(elsewhere, elsewhere / "home")
    said = vmem("import", "copy", folder, "-s", other).stdout
    assert said == "5 rounds added to copy, 0 were there.\n"
    assert vmem("import", "copy", folder, "-s", other).stdout == (
        "0 rounds added to copy, 5 were there.\n"
    )
    question = ["harbour boat kite", "--json", "-s"]
    original = json.loads(vmem("search", trip, *question, fakes).stdout)
    copied = json.loads(vmem("search", "copy", *question, other).stdout)
    assert copied["rounds"] == original["rounds"]
    assert copied["context"] == original["context"]
    assert vmem("export", "copy", "--out", tmp_path / "again", "-s", other).returncode == 0
    lines = (folder / "rounds.jsonl").read_text().replace('"trip"', '"copy"')
    assert (tmp_path / "again/rounds.jsonl").read_text() == lines


def test_an_export_does_not_overwrite(vmem: Any, fakes: Path, trip: str, tmp_path: Path) -> None:
    vmem("export", trip, "--out", tmp_path / "out", "-s", fakes)
    done = vmem("export", trip, "--out", tmp_path / "out", "-s", fakes)
    assert done.returncode == 1
    assert "out holds an export already: choose another folder" in done.stderr


def gallery(folder: Path, *questions: dict[str, Any]) -> Path:
    """A benchmark of two small dialogues in Mem-Gallery's format."""
    for name, colour in (("Pets", (200, 20, 20)), ("Boats", (20, 20, 200))):
        picture(folder / f"image/{name}/D1_IMG_001.png", colour)
        spoken: list[dict[str, Any]] = [
            {"round": f"D1:{n}", "user": f"{name} word{n}", "assistant": f"noted word{n}"}
            for n in range(1, 6)
        ]
        spoken[2] |= {
            "image_id": ["D1:IMG_001"],
            "input_image": [f"../image/{name}/D1_IMG_001.png"],
            "image_caption": [f"a picture of {name}"],
        }
        session = {"session_id": "D1", "date": "2024-06-17", "dialogues": spoken}
        asked = [
            {"point": "FR", "question": "what is word4?", "answer": "it", "clue": ["D1:4"]},
            {"point": "VS", "question": f"Which picture shows {name}?", "answer": "it",
             "clue": ["D1:3"]},
            *questions,
        ]  # fmt: skip
        content = {"multi_session_dialogues": [session], "human-annotated QAs": asked}
        (folder / "dialog").mkdir(exist_ok=True)
        (folder / f"dialog/{name}.json").write_text(json.dumps(content))
    return folder


def locomo(folder: Path) -> Path:
    conversation = {
        "speaker_a": "Ann",
        "speaker_b": "Bob",
        "session_1_date_time": "8 May, 2023",
        "session_1": [
            {"speaker": speaker, "dia_id": f"D1:{n}", "text": f"text {n}"}
            for n, speaker in enumerate(("Ann", "Bob", "Ann"), 1)
        ],
    }
    question = {"question": "Which text?", "category": 1, "answer": 7, "evidence": ["D1:2; D1:9"]}
    sample = {"sample_id": "conv-1", "conversation": conversation, "qa": [question]}
    (folder / "locomo10.json").write_text(json.dumps([sample]))
    return folder


def test_data_check_counts_a_benchmark(vmem: Any, tmp_path: Path) -> None:
    where = ["--benchmark", "locomo", "--data", locomo(tmp_path)]
    done = vmem("data", "check", *where, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    counts = {key: report[key] for key in ("dialogues", "rounds", "turns", "questions")}
    assert counts == {"dialogues": 1, "rounds": 2, "turns": 3, "questions": 1}
    assert report["issues"] == {
        "answer is a number": 1,
        "evidence misspelt": 1,
        "evidence not in dialogue": 1,
    }
    shown = vmem("data", "check", *where).stdout
    assert shown.startswith(f"locomo in {tmp_path}\n")
    assert re.search(r"evidence misspelt\W+1\b", shown)


def test_data_check_counts_pictures(vmem: Any, tmp_path: Path) -> None:
    where = ["--benchmark", "mem-gallery", "--data", gallery(tmp_path)]
    (tmp_path / "image/Pets/D1_IMG_001.png").unlink()
    report = json.loads(vmem("data", "check", *where, "--json").stdout)
    assert (report["dialogues"], report["rounds"], report["questions"]) == (2, 10, 4)
    assert (report["images"], report["images_missing"]) == (2, 1)


def served(content: bytes, asked: list[str], status: int = 200) -> Any:
    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        return httpx.Response(status, content=content)

    return partial(fetch, transport=httpx.MockTransport(answer), backoff_s=0)


def test_data_fetch_brings_a_benchmark_that_can_be_checked(
    vmem: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    (tmp_path / "there").mkdir()
    content = (locomo(tmp_path / "there") / "locomo10.json").read_bytes()
    monkeypatch.setattr(cli_data, "fetch", served(content, asked))
    folder = tmp_path / "new" / "here"
    done = vmem("data", "fetch", "--benchmark", "locomo", "--data", folder)
    assert done.returncode == 0
    assert asked == [LOCOMO_URL]
    assert done.stdout == (
        f"locomo is in {folder}; look at it with"
        f" `vmem data check --benchmark locomo --data {folder}`.\n"
    )
    assert "100%" in done.stderr or f"{len(content)}/{len(content)}" in done.stderr
    check = vmem("data", "check", "--benchmark", "locomo", "--data", folder, "--json")
    assert json.loads(check.stdout)["questions"] == 1


@pytest.mark.parametrize(
    ("name", "status", "said"),
    [
        ("locomo", 404, "answers 404); without internet access, put its files into"),
        ("photobench", 200, "'photobench' cannot be downloaded; known: locomo, mem-gallery"),
    ],
)
def test_data_fetch_says_what_to_do_without_it(
    vmem: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, status: int, said: str
) -> None:
    monkeypatch.setattr(cli_data, "fetch", served(b"", [], status))
    done = vmem("data", "fetch", "--benchmark", name, "--data", tmp_path / "new")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1].startswith("error DataError: ")
    assert said in done.stderr


def evaluate(vmem: Any, fakes: Path, data: Path, *options: object) -> Any:
    where = ["--benchmark", "mem-gallery", "--data", data, "--out", data / "run.jsonl"]
    fake = ["--settings", fakes, "--encoders", "settings"]
    return vmem("eval", "retrieval", *where, *fake, *options)


def test_eval_writes_one_record_a_question(vmem: Any, fakes: Path, tmp_path: Path) -> None:
    done = evaluate(vmem, fakes, gallery(tmp_path), "--json")
    assert done.returncode == 0
    assert "failed" not in done.stderr
    records = [json.loads(each) for each in (tmp_path / "run.jsonl").read_text().splitlines()]
    assert [record["question_id"] for record in records] == [
        "Boats#0",
        "Boats#1",
        "Pets#0",
        "Pets#1",
    ]
    assert all(record.keys() == RECORD for record in records)
    assert [record["case"] for record in records] == ["text->text", "text->image"] * 2
    assert [record["ranked_rounds"][0] for record in records] == [["D1:4"], ["D1:3"]] * 2
    assert {len(record["context_rounds"]) for record in records} == {5}
    assert {record["error"] for record in records} == {None}
    report = json.loads(done.stdout)
    assert report["run"] == {
        "benchmark": "mem-gallery",
        "settings": "fakes",
        "encoders": ["fake", "fake"],
    }
    assert (report["failed"], report["overall"]["questions"]) == (0, 4)
    assert report["overall"]["scores"]["recall@1"][0]["mean"] == 1.0


def test_eval_prints_scores_and_missing_pictures(vmem: Any, fakes: Path, tmp_path: Path) -> None:
    gallery(tmp_path)
    (tmp_path / "image/Pets/D1_IMG_001.png").unlink()
    done = evaluate(vmem, fakes, tmp_path)
    assert done.returncode == 0
    assert re.search(r"recall@1\b.* 1\.000 .*\[1\.000, 1\.000\]", done.stdout)
    assert "1 images have no file here: only their captions were searched." in done.stdout


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_failed_question_makes_the_run_invalid(
    vmem: Any, fakes: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    empty = {"point": "FR", "question": " ", "answer": "it", "clue": ["D1:1"]}
    done = evaluate(vmem, fakes, gallery(tmp_path, empty), *options)
    assert done.returncode == 1
    assert "2 questions failed: these scores are invalid" in done.stderr
    records = [json.loads(each) for each in (tmp_path / "run.jsonl").read_text().splitlines()]
    failed = [record for record in records if record["error"]]
    assert [record["question_id"] for record in failed] == ["Boats#2", "Pets#2"]
    assert all(record.keys() == RECORD for record in records)
    assert failed[0]["error"] == "QueryError: the query is empty: write a question"
    assert (failed[0]["case"], failed[0]["ranked_rounds"]) == (None, [])
    if options:
        assert json.loads(done.stdout)["failed"] == 2


def test_eval_knows_before_it_starts_that_it_cannot_write(
    vmem: Any, fakes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmem.cli_eval.evaluate", lambda *_, **__: pytest.fail("it ran"))
    done = evaluate(vmem, fakes, gallery(tmp_path), "--out", tmp_path / "none/run.jsonl")
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(
        r"error InputError: \S*/none/run\.jsonl cannot be written: .*\n", done.stderr
    )


def test_eval_of_an_unknown_dialogue_lists_the_known(
    vmem: Any, fakes: Path, tmp_path: Path
) -> None:
    done = evaluate(vmem, fakes, gallery(tmp_path), "--dialogue", "Cars")
    assert done.returncode == 1
    assert "no dialogue is named 'Cars'; there are Boats, Pets" in done.stderr
    alone = evaluate(vmem, fakes, tmp_path, "--dialogue", "Boats", "--json")
    assert json.loads(alone.stdout)["overall"]["questions"] == 2


def test_build_prints_its_report(
    vmem: Any, fakes: Path, rounds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = build_memory.BuildReport(
        bank="mine", dialogues=1, rounds=5, text_units=1200, image_units=2, without_pixels=0,
        truncated=0, encoded=0, kept=0, unchanged=True, seconds=1.25, encode_seconds=0.0,
    )  # fmt: skip
    given: list[Any] = []

    def build(bank: Any, dialogues: Any, progress: Any) -> build_memory.BuildReport:
        given.append((bank.settings.store.bank, [len(d.rounds) for d in dialogues]))
        progress("text units", 1, 2)
        return report

    monkeypatch.setattr(build_memory, "build_bank", build)
    done = vmem("build", "--rounds", rounds, "--bank", "mine", "-s", fakes, "--json")
    assert json.loads(done.stdout) == report.as_dict()
    assert "text units" in done.stderr
    shown = vmem("build", "--rounds", rounds, "--bank", "mine", "-s", fakes).stdout
    assert re.search(r"unchanged\W+yes\b", shown)
    assert re.search(r"text_units\W+1,200\b", shown)
    assert given == [("mine", [5])] * 2


@pytest.mark.parametrize(
    "words",
    [
        ["build"],
        ["build", "--benchmark", "locomo"],
        ["build", "--rounds", "a.jsonl", "--benchmark", "locomo", "--data", "."],
    ],
)
def test_build_says_what_it_needs(vmem: Any, words: list[str]) -> None:
    done = vmem(*words)
    assert done.returncode == 1
    assert done.stderr == ("error InputError: give either --benchmark with --data, or --rounds\n")


@pytest.mark.parametrize(
    "words",
    [
        ["bogus"],
        ["search", "trip"],
        ["search", "trip", "x", "--target", "sound"],
        ["data", "check"],
    ],
)
def test_a_wrong_command_line_is_told_on_standard_error(vmem: Any, words: list[str]) -> None:
    done = vmem(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Usage: vmem" in done.stderr
    assert "Traceback" not in done.stderr
