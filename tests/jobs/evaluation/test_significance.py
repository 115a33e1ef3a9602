"""What a run's lines come to: means, faults, costs, comparisons, and how far judges hold."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.evaluation.records import Timing
from jobs.significance import FILE, SECONDS, summarise_run
from jobs.statistics.comparisons import base_system
from jobs.statistics.error_analysis import evidence_shown
from vmem.errors import InputError

SEED, DRAWS = 7, 500


def summary(run, **more: Any) -> dict[str, Any]:
    return summarise_run(run.folder, run.manifest(**more), SEED, DRAWS)


def only_cell(run, **more: Any) -> dict[str, Any]:
    (cell,) = summary(run, **more)["cells"]
    return cell


def test_a_judges_mean_is_overall_and_by_category_case_and_dialogue(run) -> None:
    records = [
        run.record(0, category="TTL", case="image+text->text"),
        run.record(1, category="TTL"),
        run.record(2, category="VR"),
        run.record(3, category="VR"),
    ]
    scores = [0.0, 0.5, 1.0, 1.0]
    lines = [run.judgement(*pair) for pair in zip(records, scores, strict=True)]
    run.add(records, {"strict.gallery": lines})
    (judged,) = only_cell(run)["judged"]
    score = judged["score"]
    assert score["overall"]["mean"] == sum(scores) / 4
    assert score["overall"]["questions"] == judged["judged"] == 4
    low, high = score["overall"]["by_question"]
    assert 0 <= low < score["overall"]["mean"] < high <= 1
    by_dialogue = {"D0": (0.0 + 1.0) / 2, "D1": (0.5 + 1.0) / 2}
    assert {n: g["mean"] for n, g in score["dialogue"].items()} == by_dialogue
    # Two dialogues of equal size: a resample's mean is between the two.
    assert score["overall"]["by_dialogue"] == [min(by_dialogue.values()), max(by_dialogue.values())]
    assert {n: g["mean"] for n, g in score["category"].items()} == {"TTL": 0.25, "VR": 1.0}
    one = {"mean": 0.0, "questions": 1, "by_question": [0.0, 0.0], "by_dialogue": None}
    assert score["case"]["image+text->text"] == one
    assert score["case_and_category"]["text->text|TTL"]["mean"] == 0.5
    assert judged["levels"] == {"0": 1, "0.5": 1, "1": 2}


def test_what_failed_is_empty_unjudged_or_skipped_makes_the_score_invalid(run) -> None:
    good, empty, unjudged = run.record(0), run.record(1, answer=" \n"), run.record(2)
    failed = run.record(3, answer="", error="ModelTimeoutError: no reply", scores=None)
    lines = [run.judgement(good, 1.0), run.judgement(unjudged, None)]
    run.add([good, empty, unjudged, failed], {"strict.gallery": lines}, expected=6)
    cell = only_cell(run)
    (judged,) = cell["judged"]
    faults = {"failed": 1, "skipped": 2, "unanswered": 1, "unjudged": 1}
    assert judged["invalid"] == cell["invalid"] == faults
    assert not cell["valid"]
    assert cell["lexical"]["invalid"] == {"failed": 1, "skipped": 2, "unanswered": 1}
    # Evidence does not depend on what was answered.
    assert cell["evidence"]["invalid"] == {"failed": 1, "skipped": 2}
    assert cell["errors"] == {"ModelTimeoutError": 1}
    assert (judged["judged"], judged["unjudged"]) == (1, 1)
    # A blank is no 0: the mean is over what was judged.
    assert judged["score"]["overall"]["mean"] == 1.0


def test_a_run_without_a_language_model_has_evidence_alone(run) -> None:
    run.add([run.record(n, answer="", cost={}) for n in range(3)])
    cell = only_cell(run)
    assert cell["valid"]
    assert not cell["answered_by_model"]
    assert cell["lexical"] is None
    assert cell["judged"] == []
    assert cell["evidence"]["scores"]["recall@12"]["overall"]["mean"] == 1.0


def test_empty_answers_of_a_model_are_unanswered_and_not_a_run_without_one(run) -> None:
    run.add([run.record(n, answer="") for n in range(3)])
    assert only_cell(run)["invalid"] == {"unanswered": 3}


def test_adversarial_questions_are_in_no_score(run) -> None:
    records = [run.record(0, category="multi-hop"), run.record(1, category="adversarial")]
    run.add(records, {"strict.locomo": [run.judgement(records[0], 0.5)]}, benchmark="locomo")
    cell = only_cell(run)
    assert cell["valid"]
    assert cell["questions"] == 1
    assert cell["cost"]["answer"]["questions"] == 1


def test_what_was_planned_and_not_run_is_said(run) -> None:
    run.add([run.record(0)])
    run.systems.append("vanilla")
    ours, missing = summary(run)["cells"]
    assert (ours["run"], missing["run"]) == (True, False)
    assert missing["system"] == "vanilla"


def test_warnings_count_what_must_be_known(run) -> None:
    run.add(
        [
            run.record(0, anchor_failures=("keywords: ModelTimeoutError",)),
            run.record(1, dropped_rounds=("r8", "r9")),
            run.record(2, image="D1:IMG_1", notes=("visual: image D1:IMG_1 has no file",)),
            run.record(3, image="D1:IMG_2", image_uri="two.png"),
        ]
    )
    cell = only_cell(run)
    assert cell["valid"]
    assert cell["warnings"] == {
        "anchors_fell_back": 1,
        "contexts_truncated": 1,
        "rounds_dropped": 2,
        "query_images_missing": 1,
        "without_reference": 0,
        "images_without_pixels": 0,
        "truncated_texts": 0,
        "steps_failed": 0,
        "steps_truncated": 0,
        "steps_skipped": 0,
        "notes": {"visual: the image has no file": 1},
    }
    overall = cell["evidence"]["scores"]["recall@12"]["overall"]
    assert overall["lacks"] == {"picture": 1}


def test_steps_of_a_build_that_went_wrong_are_told_and_leave_the_score_valid(run) -> None:
    counts = {"steps": 9, "steps_failed": 2, "steps_truncated": 1, "steps_skipped": 3}
    run.add([run.record(0)], build_counts=counts)
    cell = only_cell(run)
    assert cell["valid"]
    dialogues = cell["dialogues"]
    assert {name: cell["warnings"][name] for name in counts if name != "steps"} == {
        name: count * dialogues for name, count in counts.items() if name != "steps"
    }


def test_lexical_scores_are_means_over_answers(run) -> None:
    run.add([run.record(0), run.record(1, answer="red box", category="VR")])
    scores = only_cell(run)["lexical"]["scores"]
    f1 = 2 * 2 / (2 + 3)  # two words of the three that the reference has without its article
    assert scores["f1"]["overall"]["mean"] == pytest.approx((1 + f1) / 2)
    assert scores["f1"]["category"]["VR"]["mean"] == pytest.approx(f1)
    assert scores["exact"]["overall"]["mean"] == 0.5


def test_costs_are_summed_by_role_and_averaged_over_questions(run) -> None:
    keywords = replace(run.record(0).cost["answer"], prompt_tokens=30, seconds=0.25)
    both = {"answer": run.record(0).cost["answer"], "keywords": keywords}
    first, second = run.record(0, cost=both), run.record(1)
    run.add([first, second], {"strict.gallery": [run.judgement(r, 1.0) for r in (first, second)]})
    cost = only_cell(run)["cost"]
    assert cost["answer"]["roles"]["answer"]["prompt_tokens"] == 2 * 100
    assert cost["answer"]["roles"]["keywords"]["calls"] == 1
    assert cost["answer"]["total"]["tokens"] == 2 * (100 + 10) + (30 + 10)
    assert cost["answer"]["per_question"]["tokens"] == (2 * 110 + 40) / 2
    assert cost["answer"]["per_question"]["seconds"] == (2 * 0.5 + 0.25) / 2
    assert cost["build"]["total"]["tokens"] == 0
    assert cost["build"]["counts"] == {"rounds": 2 * 3}
    assert cost["judge"]["strict.gallery"]["tokens"] == 2 * 55


def test_seconds_of_this_machine_have_a_file_of_their_own(run) -> None:
    cell = "mem-gallery.v-mem.small"
    for number, seconds in enumerate((0.1, 0.2, 0.9)):
        id_ = run.record(number).question_id
        run.folder.timings(cell).append(Timing(question_id=id_, seconds={"search": seconds}))
    run.add([run.record(n) for n in range(3)], build_seconds={"encode": 1.5})
    before = summary(run)
    seconds = json.loads((run.folder.path / SECONDS).read_text(encoding="utf-8"))
    assert seconds == {cell: {"build": {"encode": 2 * 1.5}, "question": {"search": 0.2}}}
    assert "encode" not in json.dumps(before)


def test_wrong_answers_are_told_apart_by_the_evidence_that_was_shown(run) -> None:
    records = [
        run.record(0, gold_rounds=("r1", "r2")),
        run.record(1, gold_rounds=("r1", "r9")),
        run.record(2, gold_rounds=("r8",)),
        run.record(3, gold_rounds=()),
        run.record(4, gold_rounds=("r8",)),
    ]
    assert [evidence_shown(r) for r in records[:4]] == ["all", "part", "none", "no_evidence"]
    lines = [run.judgement(record, 0.0) for record in records[:4]]
    run.add(records, {"strict.gallery": [*lines, run.judgement(records[4], 0.5)]})
    (judged,) = only_cell(run)["judged"]
    assert judged["wrong"]["overall"] == judged["wrong"]["FR"] == {
        "judged": 5, "wrong": 4, "all": 1, "part": 1, "none": 1, "no_evidence": 1,
        "share_with_evidence": 1 / 3,
    }  # fmt: skip


def test_systems_are_compared_with_v_mem_and_each_step_with_the_one_before(run) -> None:
    records = [run.record(n, category=("TTL", "VR")[n // 4]) for n in range(8)]
    for system, score in (("vanilla", 0.0), ("routing", 0.5), ("v-mem", 1.0)):
        lines = [run.judgement(record, score) for record in records]
        run.add(records, {"strict.gallery": lines}, system=system)
    found = {
        (one["system"], one["base"]): one
        for one in summary(run)["comparisons"]
        if one["score"] == "judge:strict:gallery"
    }
    differences = {pair: one["overall"]["difference"] for pair, one in found.items()}
    assert differences == {
        ("vanilla", "v-mem"): -1.0,
        ("routing", "v-mem"): -0.5,
        ("routing", "vanilla"): 0.5,
    }
    test = found["vanilla", "v-mem"]["overall"]["by_question"]
    assert (test["low"], test["high"]) == (-1.0, -1.0)
    # All eight differences have one sign: two of 2^8 sign patterns are as extreme.
    assert 0 < test["p"] < 10 * 2 / 2**8
    for part in found["vanilla", "v-mem"]["category"].values():
        assert part["by_question"]["p_holm"] >= part["by_question"]["p"]


def test_comparisons_are_over_questions_that_both_sides_have(run) -> None:
    records = [run.record(n) for n in range(4)]
    run.add(records, {"strict.gallery": [run.judgement(r, 1.0) for r in records]})
    empty = [replace(records[0], answer=""), *records[1:]]
    run.add(empty, {"strict.gallery": [run.judgement(r, 0.5) for r in records[1:]]}, system="bm25")
    found = {one["score"]: one for one in summary(run)["comparisons"]}
    judged = found["judge:strict:gallery"]
    assert judged["left_out"] == 1
    assert judged["invalid"] == {"unanswered": 1}
    assert judged["overall"]["questions"] == 3
    assert found["recall@12"]["invalid"] == {}


def test_the_base_is_v_mem_or_else_the_first_of_its_kind() -> None:
    assert base_system(["bm25", "v-mem"]) == "v-mem"
    assert base_system(["no-memory", "v-mem-tuned", "bm25"]) == "v-mem-tuned"
    assert base_system(["no-memory"]) is None


def test_planted_answers_are_told_apart_by_the_end_of_their_ids(run) -> None:
    record = run.record(0)
    run.add([record], {"strict.gallery": [run.judgement(record, 1.0)]})
    planted = run.folder.planted("mem-gallery.strict.gallery")
    scores = {"a~vague": 0.0, "b~vague": 0.5, "c~vague": 0.0, "a~specific": 0.0, "b~specific": None}
    for id_, score in scores.items():
        planted.append(run.judgement(record, score, question_id=id_))
    planted.finish([(id_, 0) for id_ in scores])
    (rates,) = summary(run)["honesty"]["planted"]
    assert rates["vague"]["rate"] == 1 / 3
    assert (rates["specific"]["accepted"], rates["specific"]["judged"]) == (0, 1)
    assert rates["unjudged"] == 1


def test_repetitions_give_a_spread_and_the_first_gives_the_score(run) -> None:
    records = [run.record(0), run.record(1)]
    lines = [
        run.judgement(record, score, repetition=repetition)
        for repetition, scores in enumerate([(1.0, 0.0), (1.0, 1.0)])
        for record, score in zip(records, scores, strict=True)
    ]
    run.add(records, {"strict.gallery": lines})
    found = summary(run)
    (spread,) = found["honesty"]["spread"]
    assert spread["spread"]["unsteady"] == 0.5
    assert spread["spread"]["mean"] == 3 / 4
    assert found["cells"][0]["judged"][0]["score"]["overall"]["mean"] == 0.5


def test_two_judges_of_one_kind_have_a_kappa(run) -> None:
    records = [run.record(n) for n in range(4)]
    first, second = (1.0, 1.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0)
    run.add(
        records,
        {
            f"{judge}.gallery": [run.judgement(*pair) for pair in zip(records, scores, strict=True)]
            for judge, scores in (("strict", first), ("mild", second))
        },
    )
    (agreement,) = summary(run)["honesty"]["agreement"]
    observed, expected = 3 / 4, 2 / 4 * 1 / 4 + 2 / 4 * 3 / 4
    assert agreement["kappa"] == pytest.approx((observed - expected) / (1 - expected))
    assert agreement["answers"] == 4


def test_corrected_gold_stands_beside_the_original(run) -> None:
    records = [run.record(0), run.record(1)]
    run.add(
        records,
        {
            "strict.gallery": [run.judgement(record, 0.0) for record in records],
            "strict.gallery.corrected": [run.judgement(records[0], 1.0)],
        },
    )
    references = {records[0].question_id: "a blue bag"}
    corrections = {"mem-gallery": {"count": 1, "in_file": 2, "references": references}}
    cell = only_cell(run, corrections=corrections)
    means = {one["gold"]: one["score"]["overall"]["mean"] for one in cell["judged"]}
    assert means == {"original": 0.0, "corrected": 0.5}
    assert cell["lexical"]["scores"]["exact"]["overall"]["mean"] == 1.0
    assert cell["lexical"]["corrected"]["exact"]["overall"]["mean"] == 0.5


def test_the_same_lines_give_the_same_bytes_and_times_are_not_among_them(run) -> None:
    records = [run.record(n) for n in range(6)]
    run.add(records, {"strict.gallery": [run.judgement(r, 0.5) for r in records]})
    path: Path = run.folder.path / FILE
    summary(run)
    first = path.read_bytes()
    summary(run, started="later", machine={"processors": 96})
    assert path.read_bytes() == first


def test_one_system_more_leaves_the_others_intervals_as_they_are(run) -> None:
    records = [run.record(n) for n in range(6)]
    run.add(records, {"strict.gallery": [run.judgement(r, n / 5) for n, r in enumerate(records)]})
    before = only_cell(run)["judged"]
    run.add(records, system="bm25")
    assert summary(run)["cells"][0]["judged"] == before


def test_a_manifest_without_a_plan_is_refused(run) -> None:
    with pytest.raises(InputError, match="holds no plan"):
        summarise_run(run.folder, {}, SEED, DRAWS)
