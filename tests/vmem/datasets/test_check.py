import json

from vmem.datasets.check import check
from vmem.types import Benchmark, Dialogue, Image, Issue, Query, Question, Round, Turn


def test_everything_is_counted_and_nothing_twice() -> None:
    here, gone = Image(id="a", uri="/a.png"), Image(id="b")
    turns = (
        Turn(source_id="1", speaker="user", images=(here, gone)),
        Turn(source_id="1", speaker="assistant", text="yes"),
    )
    rounds = [
        Round(id=str(n), position=n, session=session, time="2024-01-01", turns=turns[:count])
        for n, (session, count) in enumerate([("s1", 2), ("s1", 1), ("s2", 2)])
    ]
    questions = [
        Question(
            id=f"d#{n}",
            dialogue_id="d",
            query=Query(text="?", image=image),
            reference="",
            category=category,
            evidence=evidence,
        )
        for n, (image, category, evidence) in enumerate(
            [(None, "b", frozenset("1")), (here, "a", frozenset()), (gone, "b", frozenset("1"))]
        )
    ]
    issue = Issue(kind="odd", where="d", detail="")
    report = check(
        Benchmark(
            name="n",
            # The same session name in two dialogues is two sessions.
            dialogues=(
                Dialogue(id="d", rounds=tuple(rounds)),
                Dialogue(id="e", rounds=tuple(rounds[:1])),
            ),
            questions=tuple(questions),
            issues=(issue, issue),
        )
    )
    assert report.as_dict() == {
        "name": "n",
        "dialogues": 2,
        "sessions": 2 + 1,
        "rounds": 3 + 1,
        "turns": 2 + 1 + 2 + 2,
        "images": 4 * 2,
        "images_missing": 4,
        "questions": 3,
        "query_images": 2,
        "query_images_missing": 1,
        "without_evidence": 1,
        "by_category": {"a": 1, "b": 2},
        "issues": {"odd": 2},
    }
    assert json.loads(json.dumps(report.as_dict())) == report.as_dict()
