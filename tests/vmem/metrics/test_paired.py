import numpy as np
import pytest

from vmem.errors import InputError
from vmem.metrics.paired import PairedComparison, compare_categories, compare_paired
from vmem.metrics.permutation import cluster_sign_flip, holm, sign_flip
from vmem.metrics.significance import bootstrap_mean, cluster_bootstrap_mean

DRAWS = 1_000


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def scores(gain: float, questions: int = 60) -> tuple[dict[str, float], dict[str, float]]:
    """Two systems' scores of questions over six dialogues, the first better by `gain`."""
    source = np.random.default_rng(1)
    second = {f"d{n % 6}#{n:02}": float(source.random()) for n in range(questions)}
    first = {name: value + gain + source.normal(0, 0.1) for name, value in second.items()}
    return first, second


def dialogue_of(questions: dict[str, float]) -> dict[str, str]:
    return {name: name.partition("#")[0] for name in questions}


def compared(
    first: dict[str, float], second: dict[str, float], draws: int = DRAWS
) -> PairedComparison:
    return compare_paired(first, second, dialogue_of(first), rng(), draws)


def test_a_planted_gain_is_found() -> None:
    first, second = scores(gain=0.2)
    result = compared(first, second)
    assert (result.questions, result.dialogues) == (60, 6)
    assert result.difference == pytest.approx(np.mean([first[q] - second[q] for q in first]))
    assert result.by_dialogue is not None
    for test in (result.by_question, result.by_dialogue):
        assert 0 < test.low < 0.2 < test.high < 0.3
        assert test.p_holm is None
    assert result.by_question.p == 1 / (DRAWS + 1)
    assert result.by_dialogue.p < 0.05


def test_it_is_made_of_the_four_parts_in_turn() -> None:
    first, second = scores(gain=0.02)
    result = compared(first, second)
    names = sorted(first)
    difference_N = [first[name] - second[name] for name in names]
    dialogue_N = [dialogue_of(first)[name] for name in names]
    source = rng()
    interval = bootstrap_mean(difference_N, source, DRAWS)
    p = sign_flip(difference_N, source, DRAWS)
    clustered = cluster_bootstrap_mean(difference_N, dialogue_N, source, DRAWS)
    clustered_p = cluster_sign_flip(difference_N, dialogue_N, source, DRAWS)
    assert result.by_dialogue is not None
    assert (result.by_question.low, result.by_question.high) == (interval.low, interval.high)
    assert (result.by_dialogue.low, result.by_dialogue.high) == (clustered.low, clustered.high)
    assert (result.by_question.p, result.by_dialogue.p) == (p, clustered_p)


def test_a_system_against_itself_differs_by_nothing() -> None:
    first, _ = scores(gain=0)
    result = compared(first, first)
    assert (result.difference, result.by_question.low, result.by_question.high) == (0, 0, 0)
    assert result.by_question.p == 1


def test_pairing_removes_what_the_questions_have_in_common() -> None:
    first, second = scores(gain=0.1)
    result = compared(first, second)
    width = result.by_question.high - result.by_question.low
    alone = bootstrap_mean(list(first.values()), rng(), DRAWS)
    assert width < 0.5 * (alone.high - alone.low)


def test_swapping_the_systems_mirrors_the_result() -> None:
    first, second = scores(gain=0.02)
    forth, back = compared(first, second), compared(second, first)
    assert forth.difference == pytest.approx(-back.difference)
    assert forth.by_question.low == pytest.approx(-back.by_question.high)
    assert forth.by_question.p == back.by_question.p


def test_the_order_of_questions_does_not_matter() -> None:
    first, second = scores(gain=0.02)
    assert compared(dict(reversed(first.items())), second) == compared(first, second)


def test_one_dialogue_says_nothing_about_others() -> None:
    first, second = scores(gain=0.2)
    result = compare_paired(first, second, dict.fromkeys(first, "d0"), rng(), DRAWS)
    assert result.dialogues == 1
    assert result.by_dialogue is None


def test_categories_are_compared_apart_and_corrected_together() -> None:
    first, second = scores(gain=0.03)
    category_of = {name: "VR" if int(name[-2:]) < 20 else "FR" for name in first}
    result = compare_categories(first, second, dialogue_of(first), category_of, rng(), DRAWS)
    assert {name: part.questions for name, part in result.items()} == {"FR": 40, "VR": 20}
    p_values = {name: part.by_question.p for name, part in result.items()}
    assert {name: part.by_question.p_holm for name, part in result.items()} == holm(p_values)
    clustered = {name: part.by_dialogue for name, part in result.items()}
    assert all(test is not None for test in clustered.values())
    by_dialogue = {name: test.p for name, test in clustered.items() if test}
    assert {name: test.p_holm for name, test in clustered.items() if test} == holm(by_dialogue)
    mean = sum(part.difference * part.questions for part in result.values()) / 60
    assert mean == pytest.approx(compared(first, second).difference)


def test_a_category_of_one_dialogue_is_left_out_of_the_family_by_dialogue() -> None:
    first, second = scores(gain=0.03)
    category_of = {name: "VR" if name.startswith("d0") else "FR" for name in first}
    result = compare_categories(first, second, dialogue_of(first), category_of, rng(), DRAWS)
    assert result["VR"].by_dialogue is None
    assert result["FR"].by_dialogue is not None
    assert result["FR"].by_dialogue.p_holm == result["FR"].by_dialogue.p


def test_unequal_questions_are_refused_with_an_example() -> None:
    first, second = scores(gain=0)
    del first["d3#03"], first["d4#04"], second["d0#00"]
    with pytest.raises(InputError, match=r"1 only the first did, 2 only the second.*d0#00"):
        compared(first, second)


def test_no_questions_a_missing_score_and_an_unknown_dialogue_are_refused() -> None:
    first, second = scores(gain=0)
    with pytest.raises(InputError, match="no question"):
        compared({}, {})
    with pytest.raises(InputError, match=r"1 questions have no dialogue, such as d5#59"):
        known = {name: "d" for name in first if name != "d5#59"}
        compare_paired(first, second, known, rng(), DRAWS)
    with pytest.raises(InputError, match="60 questions have no category"):
        compare_categories(first, second, dialogue_of(first), {}, rng(), DRAWS)
    with pytest.raises(InputError, match="d2#02 has a score that is not finite"):
        compared(first, second | {"d2#02": float("nan")})
