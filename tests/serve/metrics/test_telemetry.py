"""What replicas tell their metrics, with doubles of Ray's that remember."""

from typing import Any

import pytest

from serve.telemetry import OTHER, ApiMetrics, RetrieverMetrics, WriterMetrics
from vmem.types import Anchors, Answer, Case, Context, Failure, Query, Retrieval, Route, Usage

LABELS = {"route", "case", "status", "reason", "kind", "encoder", "stage", "role", "code"} | {
    "outcome",
    "what",
}
"""None of them says which memory, tenant, key or request."""


def _route(case: Case = Case.TEXT_TO_IMAGE) -> Route:
    return Route(case=case, counts_images=False, aggregates=False, asks_conflict=False, reason="")


def _retrieval(**anchors: Any) -> Retrieval:
    return Retrieval(
        query=Query(text="which tent?"),
        route=_route(),
        anchors=Anchors(by_signal={}, **anchors),
        ranked=(),
        context=Context(blocks=(), found=()),
        seconds={"route": 0.001, "search": 0.02},
    )


def _answer(completion_tokens: int) -> Answer:
    caption = Usage(role="hypo_caption", prompt_tokens=7, completion_tokens=5)
    reply = Usage(role="answer", prompt_tokens=100, completion_tokens=completion_tokens)
    return Answer(
        text="green", retrieval=_retrieval(usage=(caption,)), prompt="", usage=(caption, reply)
    )


def test_names_and_labels_are_those_that_are_promised(recorded: Any) -> None:
    ApiMetrics()
    RetrieverMetrics()
    WriterMetrics()
    assert len(recorded.kinds) == 27
    assert all(name.startswith("vmem_") for name in recorded.kinds)
    assert {label for _, labels in recorded.kinds.values() for label in labels} == LABELS
    for name, (kind, _) in recorded.kinds.items():
        assert not name.endswith(("_total", "_count", "_sum", "_bucket")), kind


def test_a_flood_of_label_values_ends_in_one(recorded: Any) -> None:
    metrics = ApiMetrics()
    for number in range(500):
        metrics.request(f"/guess/{number}", f"case {number}", 200, 0.1)
        metrics.rejected(f"reason {number}")
    metrics.request("/guess/0", Case.TEXT_TO_TEXT, 200, 0.1)
    routes = {labels["route"] for _, labels in recorded.of("vmem_requests")}
    assert len(routes) == 64 + 1
    assert recorded.total("vmem_requests", route=OTHER) == 500 - 64
    assert {labels["case"] for _, labels in recorded.of("vmem_requests")} == {OTHER, "text->text"}
    assert recorded.total("vmem_rejections", reason=OTHER) == 500 - 16


def test_refusals_do_not_make_the_service_look_fast(recorded: Any) -> None:
    metrics = ApiMetrics()
    for status in (200, 404, 429, 504):
        metrics.request("/v1/memories", "", status, float(status))
    assert [value for value, _ in recorded.of("vmem_request_seconds")] == [200.0, 504.0]
    assert recorded.total("vmem_requests") == 4
    assert recorded.total("vmem_requests", status="429") == 1


@pytest.mark.usefixtures("each_set_told")
def test_running_totals_become_increments(recorded: Any) -> None:
    metrics = RetrieverMetrics()
    metrics.cache(hits=0, misses=1, extensions=0, memories=1, units=10)
    metrics.cache(hits=3, misses=1, extensions=2, memories=2, units=30)
    metrics.cache(hits=3, misses=1, extensions=2, memories=2, units=30)
    assert recorded.total("vmem_cache_lookups", outcome="hit") == 3
    assert recorded.total("vmem_cache_lookups", outcome="miss") == 1
    assert recorded.total("vmem_cache_lookups", outcome="extension") == 2
    metrics.cache(hits=2, misses=0, extensions=0, memories=0, units=0)  # the bank was opened anew
    assert recorded.total("vmem_cache_lookups", outcome="hit") == 3 + 2
    assert recorded.of("vmem_hot_units")[-1] == (0, {})


def test_a_search_tells_stages_case_and_tokens(recorded: Any) -> None:
    metrics = RetrieverMetrics()
    usage = (Usage(role="hypo_caption", prompt_tokens=7, completion_tokens=0),)
    metrics.retrieved(_retrieval(usage=usage))
    case = {"case": "text->image"}
    assert recorded.of("vmem_stage_seconds") == [
        (0.001, {"stage": "route", **case}),
        (0.02, {"stage": "search", **case}),
    ]
    assert recorded.of("vmem_searches") == [(1, case)]
    assert recorded.of("vmem_degraded_searches") == []
    assert recorded.of("vmem_tokens") == [(7, {"role": "hypo_caption", "kind": "prompt"})]


def test_an_answer_tells_its_own_tokens_once_and_its_speed(recorded: Any) -> None:
    metrics = RetrieverMetrics()
    answer = _answer(completion_tokens=21)
    metrics.retrieved(answer.retrieval)
    metrics.answered(answer, first_token_s=1.0, seconds=3.0)
    assert recorded.total("vmem_tokens", role="hypo_caption") == 7 + 5
    assert recorded.total("vmem_tokens", role="answer", kind="completion") == 21
    assert recorded.of("vmem_answer_tokens_per_second") == [((21 - 1) / (3.0 - 1.0), {})]
    assert recorded.of("vmem_first_token_seconds") == [(1.0, {})]
    assert recorded.of("vmem_answer_seconds") == [(3.0, {})]


@pytest.mark.parametrize(("tokens", "seconds"), [(0, 2.0), (1, 2.0), (5, 1.0)])
def test_an_answer_in_one_piece_has_no_speed(recorded: Any, tokens: int, seconds: float) -> None:
    RetrieverMetrics().answered(_answer(tokens), first_token_s=1.0, seconds=seconds)
    assert recorded.of("vmem_answer_tokens_per_second") == []
    assert recorded.total("vmem_answers") == 1


def test_a_search_without_some_anchors_is_degraded_once(recorded: Any) -> None:
    roles = ("hypo_caption", "keywords")
    failures = tuple(Failure(role=role, error="ModelTimeoutError") for role in roles)
    RetrieverMetrics().retrieved(_retrieval(failures=failures))
    assert recorded.of("vmem_degraded_searches") == [(1, {"case": "text->image"})]
    assert recorded.of("vmem_model_failures") == [
        (1, {"role": role, "code": "ModelTimeoutError"}) for role in roles
    ]


def test_an_anchor_that_is_off_is_no_failure(recorded: Any) -> None:
    note = "image keywords off: the picture is not usable"
    RetrieverMetrics().retrieved(_retrieval(notes=(note,)))
    assert recorded.of("vmem_degraded_searches") == []
    assert recorded.of("vmem_model_failures") == []


@pytest.mark.usefixtures("each_set_told")
def test_calls_are_counted_while_they_last_and_however_they_end(recorded: Any) -> None:
    metrics = WriterMetrics()
    with metrics.call(), pytest.raises(KeyError), metrics.call():
        raise KeyError
    assert [value for value, _ in recorded.of("vmem_queue_length")] == [0, 1, 2, 1, 0]


def test_a_group_of_appends_is_no_batch_of_an_encoder(recorded: Any) -> None:
    metrics = WriterMetrics()
    metrics.encoded("text", 6, 0.01)
    metrics.appended(rounds=3, batch=1, seconds=0.1, units=6)
    assert recorded.of("vmem_encoder_batch_items") == [(6, {"encoder": "text"})]
    assert recorded.of("vmem_append_batch_requests") == [(1, {})]


def test_an_append_that_changes_nothing_counts_as_a_group(recorded: Any) -> None:
    metrics = WriterMetrics()
    metrics.appended(rounds=0, batch=2, seconds=0.1)
    metrics.appended(rounds=3, batch=1, seconds=0.1, units=9)
    assert recorded.total("vmem_appended_rounds") == 3
    assert recorded.total("vmem_appended_units") == 9
    assert [value for value, _ in recorded.of("vmem_append_batch_requests")] == [2, 1]


def test_a_gauge_is_told_with_its_last_values(recorded: Any) -> None:
    import serve.telemetry

    metrics = ApiMetrics()
    metrics.under_way("search", 3)
    metrics.under_way("answer", 1)
    metrics.under_way("search", 2)
    assert recorded.told == []
    for gauge in list(serve.telemetry._KeptGauge._all):
        gauge.tell()
    assert sorted(recorded.told, key=str) == [
        ("vmem_requests_under_way", 1, {"kind": "answer"}),
        ("vmem_requests_under_way", 2, {"kind": "search"}),
    ]


def test_metrics_work_where_no_ray_runs() -> None:
    ApiMetrics().request("/v1/memories", "", 200, 0.1)
    with WriterMetrics().call():
        pass
