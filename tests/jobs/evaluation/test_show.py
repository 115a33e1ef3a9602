"""`vmem eval show`: what is shown of a question, how questions are chosen, what is refused."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.evaluation.records import Timing
from jobs.report.question_files import read_questions
from jobs.report.question_view import facts, printable
from jobs.report.questions import State, Wanted
from vmem import cli, show

V_MEM, BM25 = "mem-gallery.v-mem.small", "mem-gallery.bm25.small"
Shown = tuple[int, str, str]


@pytest.fixture
def shown(monkeypatch, capsys) -> Callable[..., Shown]:
    """Runs `vmem eval show` in a wide terminal; exit status, standard output and error."""
    monkeypatch.setattr(show.console, "_width", 400)
    monkeypatch.setattr(show.errors, "_width", 400)

    def run(*words: object) -> Shown:
        monkeypatch.setattr(sys, "argv", ["vmem", "eval", "show", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


@pytest.fixture
def folder(run) -> Path:
    """Two systems over six questions: failed, empty, unjudged, wrong, partly right, right.

    The other system is right about all of them, and its second judge differs over the last.
    """
    records = [
        run.record(0, answer="", error="ModelError: it did not answer", scores=None),
        run.record(1, answer=" "),
        run.record(2),
        run.record(3, category="TR", context_rounds=("r2",)),
        run.record(4, category="TR"),
        run.record(5, category="TR"),
    ]
    scores = [None, 0.25, 0.5, 1.0]
    lines = [run.judgement(r, score) for r, score in zip(records[2:], scores, strict=True)]
    run.add(records, {"strict.gallery": lines})
    right = [run.record(n, category="FR" if n < 3 else "TR") for n in range(6)]
    run.add(
        right,
        {
            "strict.gallery": [run.judgement(record, 1.0) for record in right],
            "kind.gallery": [run.judgement(r, 0.0 if n == 5 else 1.0) for n, r in enumerate(right)],
        },
        system="bm25",
    )
    (run.folder.path / "manifest.json").write_text(json.dumps(run.manifest()))
    return run.folder.path


def ids(done: Shown) -> list[str]:
    status, out, err = done
    assert (status, err) == (0, "")
    return [f"{one['system']} {one['question_id']}" for one in json.loads(out)]


def test_how_each_question_ended(folder, run) -> None:
    states = [seen.state for seen in read_questions(run.folder, Wanted(system="v-mem"))]
    assert states == [
        State.FAILED,
        State.EMPTY,
        State.UNJUDGED,
        State.WRONG,
        State.PARTLY,
        State.RIGHT,
    ]


def test_without_a_judge_evidence_tells_what_was_missed(run) -> None:
    none = {"answer": "", "cost": {}}
    shown = [
        run.record(0, **none),
        run.record(1, **none, context_rounds=("r2",)),
        run.record(2, **none, gold_rounds=(), scores=None),
    ]
    run.add(shown)
    states = [seen.state for seen in read_questions(run.folder)]
    assert states == [State.FOUND, State.MISSED, State.UNSCORED]
    wrong = read_questions(run.folder, Wanted(wrong=True))
    assert [seen.record.question_id for seen in wrong] == ["D1#1"]


def test_filters_narrow_down_and_ways_of_ending_add_up(folder, shown) -> None:
    assert len(ids(shown(folder, "--json"))) == 12
    assert len(ids(shown(folder, "--json", "--system", "bm25"))) == 6
    assert len(ids(shown(folder, "--json", "--cell", V_MEM, "--category", "TR"))) == 3
    assert ids(shown(folder, "--json", "--failed")) == ["v-mem D0#0", "v-mem D1#1", "v-mem D0#2"]
    assert ids(shown(folder, "--json", "--wrong")) == ["v-mem D1#3"]
    disagree = ["v-mem D1#3", "bm25 D1#3", "bm25 D1#5"]
    assert ids(shown(folder, "--json", "--disagree")) == disagree
    both = ids(shown(folder, "--json", "--wrong", "--failed", "--backbone", "small"))
    assert both == ["v-mem D0#0", "v-mem D1#1", "v-mem D0#2", "v-mem D1#3"]
    assert ids(shown(folder, "--json", "--failed", "--category", "TR")) == []
    assert ids(shown(folder, "--json", "--benchmark", "mem-gallery", "--limit", "1")) == [
        "v-mem D0#0"
    ]


def test_who_disagrees_is_said(folder, run) -> None:
    seen = list(read_questions(run.folder, Wanted(disagree=True)))
    by_id = {(one.cell.system, one.record.question_id): one.disagreements for one in seen}
    assert by_id == {
        ("bm25", "D1#3"): ("right here, wrong by v-mem",),
        ("bm25", "D1#5"): ("strict (gallery) says right, kind (gallery) wrong",),
        ("v-mem", "D1#3"): ("wrong here, right by bm25",),
    }


def test_a_judge_that_changes_its_mind_disagrees_with_itself(run) -> None:
    record = run.record(0)
    lines = [run.judgement(record, score, repetition=n) for n, score in enumerate([1.0, 0.0])]
    run.add([record], {"strict.gallery": lines})
    (seen,) = read_questions(run.folder)
    assert seen.state is State.RIGHT
    assert seen.disagreements == ("strict (gallery) says both right and wrong when asked again",)


def test_a_line_for_each_question_and_how_many_are_left_out(folder, shown) -> None:
    status, out, err = shown(folder, "--system", "v-mem", "--limit", 4)
    assert status == 0
    assert out.startswith(f"{V_MEM}\n")
    for number, state in enumerate(("failed", "empty answer", "not judged", "wrong")):
        (line,) = [line for line in out.splitlines() if f"D{number % 2}#{number} " in line]
        assert f" {state} " in line
        assert "Where was it?" in line
    assert "D0#4" not in out
    assert err == "2 more are left out: give --limit, or narrow down\n"
    assert "it did not answer" in out


def test_a_question_in_full_by_each_system(folder, shown) -> None:
    status, out, err = shown(folder, "--question", "D1#3")
    assert (status, err) == (0, "")
    text = " ".join(out.split())
    for said in (
        f"D1#3 TR {V_MEM} wrong",
        f"D1#3 TR {BM25} right",
        "question Where was it?",
        "gold answer in the red box",
        "gold evidence r1: NOT in the context, rank 1",
        "gold evidence r1: in the context, rank 1",
        "route text->text",
        "answer in the red box",
        "judge strict (gallery) level 0.25, score 0.25: (no reason)",
        "tokens answer: 1 call, 100 + 10 tokens, 0.50 s",
        "disagreement wrong here, right by bm25",
    ):
        assert said in text, said
    assert shown(folder, "--full", "--wrong")[1].count("gold evidence") == 1


def test_all_of_a_question_is_told(run) -> None:
    record = run.record(
        0,
        image="IMG_7",
        image_uri="pics/7.jpg",
        gold_rounds=("r1", "r9"),
        dropped_rounds=("r4", "r5"),
        context="[2026-03-02]\nUser: hello",
        context_words=2,
        hypo_caption="a red box",
        keywords=("box", "red"),
        query_caption="a box",
        notes=("no keywords: the model cannot see",),
        anchor_failures=("keywords: ModelError",),
    )
    run.add([record], {"strict.gallery": [run.judgement(record, 1.0, level=0.75, reason="close")]})
    timings = run.folder.timings("mem-gallery.v-mem.small")
    timings.append(Timing(question_id=record.question_id, seconds={"route": 0.5}))
    timings.finish([record.question_id])
    (seen,) = read_questions(run.folder)
    told = dict(facts(seen))
    assert told["picture"] == "IMG_7 (pics/7.jpg)"
    assert told["gold evidence"].splitlines() == [
        "r1: in the context, rank 1",
        "r9: NOT in the context, not ranked",
    ]
    assert told["hypothetical caption"] == "a red box"
    assert told["image keywords"] == "box, red"
    assert told["picture described as"] == "a box"
    assert told["not done"] == "no keywords: the model cannot see"
    assert told["anchors that failed"] == "keywords: ModelError"
    assert told["context"].splitlines() == [
        "2 rounds, 2 words; 2 did not fit: r4, r5",
        "[2026-03-02]",
        "User: hello",
    ]
    assert told["judge strict (gallery)"] == "level 0.75, score 1: close"
    assert told["seconds here"] == "route 0.500"


def test_corrected_gold_is_told_beside_the_original(run) -> None:
    record = run.record(0)
    lines = {"strict.gallery": [run.judgement(record, 0.0)]}
    lines["strict.gallery.corrected"] = [run.judgement(record, 1.0)]
    run.add([record], lines)
    corrections = {"mem-gallery": {"references": {record.question_id: "in the blue box"}}}
    manifest = run.manifest(corrections=corrections)
    (run.folder.path / "manifest.json").write_text(json.dumps(manifest))
    (seen,) = read_questions(run.folder)
    assert dict(facts(seen))["corrected gold answer"] == "in the blue box"
    assert seen.state is State.WRONG
    assert seen.disagreements == ()
    assert [verdict.gold for verdict in seen.verdicts] == ["original", "corrected"]
    assert dict(facts(seen))["judge strict (gallery, corrected gold)"].startswith("level 1")


def test_nothing_in_a_text_steers_the_terminal(run, shown) -> None:
    hostile = "\x1b[2J\x1b]0;title\x07[bold]red[/] \u202egnol\u202c \x9b31m :cat:"
    record = run.record(0, question=hostile, answer=hostile, context=hostile)
    run.add([record], {"strict.gallery": [run.judgement(record, 1.0, reason=hostile)]})
    for words in ([], ["--full"]):
        status, out, _ = shown(run.folder.path, *words)
        assert status == 0
        assert not set(out) & set("\x1b\x07\x9b\u202e\u202c")
        assert "[bold]red[/]" in out and ":cat:" in out
    assert printable("a\r\nb\rc\td\x00") == "a\nb\nc\td�"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--system", "x"], "has no system 'x'; it has v-mem, bm25"),
        (["--benchmark", "x"], "has no benchmark 'x'; it has mem-gallery"),
        (["--backbone", "x"], "has no backbone 'x'; it has small"),
        (["--cell", "x.y"], f"has no cell 'x.y'; it has {V_MEM}, {BM25}"),
        (["--category", "x"], "has no category 'x'; it has FR, TR"),
        (["--question", "x"], "has no question 'x' there; one is 'D0#0'"),
        (["--cell", V_MEM, "--system", "bm25"], "has no cell with all of these; it has"),
    ],
)
def test_a_name_that_the_run_has_not_is_refused_with_those_it_has(
    folder, shown, words, said
) -> None:
    status, out, err = shown(folder, *words)
    assert (status, out) == (1, "")
    assert err.startswith(f"error InputError: {folder} {said}")
    assert err.count("\n") == 1


def test_a_folder_without_a_run_is_refused_and_not_made(tmp_path, shown) -> None:
    status, _, err = shown(tmp_path / "none")
    assert status == 1
    assert err.startswith(f"error InputError: {tmp_path / 'none'} is no run: it does not exist")
    assert not (tmp_path / "none").exists()
    status, _, err = shown(tmp_path)
    assert (status, err.count("\n")) == (1, 1)
    assert "has no answers: run its answer stage first" in err


def test_an_unfinished_run_can_be_looked_at_and_a_strange_file_cannot(folder, run, shown) -> None:
    (folder / "answers" / f"{V_MEM}.jsonl").rename(folder / "answers" / f"{V_MEM}.partial.jsonl")
    assert len(ids(shown(folder, "--json", "--cell", V_MEM))) == 6
    (folder / "answers" / "notes.jsonl").write_text("{}\n")
    status, _, err = shown(folder)
    assert status == 1
    assert "notes.jsonl is no file of answers" in err


def test_a_plans_order_of_systems_and_judges_holds(folder, run) -> None:
    plan = run.manifest()["plan"] | {"judges": [{"name": "kind"}, {"name": "strict"}]}
    (folder / "manifest.json").write_text(json.dumps({"plan": plan}))
    seen = list(read_questions(run.folder))
    assert [one.cell.system for one in seen[::6]] == ["v-mem", "bm25"]  # by name: bm25 first
    last = seen[-1]
    assert [verdict.judge for verdict in last.verdicts] == ["kind", "strict"]
    assert last.state is State.WRONG


def test_nothing_of_a_kind_is_said(run, shown) -> None:
    record = run.record(0)
    run.add([record], {"strict.gallery": [run.judgement(record, 1.0)]})
    status, out, _ = shown(run.folder.path, "--failed")
    assert (status, out) == (0, f"{run.folder.path}: no question is of this kind.\n")
