from pathlib import Path

import pytest

from vmem.datasets import READERS, read_benchmark
from vmem.errors import DataError


@pytest.mark.parametrize("name", sorted(READERS))
def test_each_name_reads_its_folder(shared_data: Path, name: str) -> None:
    benchmark = read_benchmark(name, shared_data / name)
    assert benchmark.name == name
    assert len({dialogue.id for dialogue in benchmark.dialogues}) == len(benchmark.dialogues)
    assert len({question.id for question in benchmark.questions}) == len(benchmark.questions)
    for dialogue in benchmark.dialogues:
        assert [r.position for r in dialogue.rounds] == list(range(len(dialogue.rounds)))
    known = {
        (dialogue.id, source_id)
        for dialogue in benchmark.dialogues
        for round_ in dialogue.rounds
        for source_id in round_.source_ids
    }
    named = {(q.dialogue_id, source_id) for q in benchmark.questions for source_id in q.evidence}
    assert named <= known
    assert named


def test_an_unknown_name_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"'longmem'; known: locomo, mem-gallery, photobench"):
        read_benchmark("longmem", tmp_path)


@pytest.mark.parametrize("name", sorted(READERS))
def test_a_missing_or_empty_folder_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match=f"nowhere does not exist; put the files of {name} there"):
        read_benchmark(name, tmp_path / "nowhere")
    with pytest.raises(DataError, match=str(tmp_path)):
        read_benchmark(name, tmp_path)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"<html>", "is not JSON"),
        (b'[{"sample_id": "x"', "is not JSON"),
        (b"\xff\xfe", "is not UTF-8 text"),
        (b"3", "input should be"),
    ],
)
@pytest.mark.parametrize(
    ("name", "file"), [("locomo", "locomo10.json"), ("mem-gallery", "dialog/a.json")]
)
def test_a_file_of_another_kind_gets_one_sentence(
    tmp_path: Path, name: str, file: str, content: bytes, complaint: str
) -> None:
    (tmp_path / "dialog").mkdir()
    (tmp_path / file).write_bytes(content)
    with pytest.raises(DataError, match=complaint) as caught:
        read_benchmark(name, tmp_path)
    assert str(tmp_path / file) in str(caught.value)
    assert "\n" not in str(caught.value)
