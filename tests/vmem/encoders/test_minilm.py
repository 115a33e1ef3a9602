import hashlib
import pickle
import zipfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from vmem.config import EncoderSettings
from vmem.encoders.minilm import MiniLM, packaged_model, unzip_once
from vmem.encoders.weights import packaged_folder
from vmem.errors import EncoderError

AtOnce = Callable[[Sequence[Callable[[], object]]], None]
SETTINGS = EncoderSettings(kind="minilm")
DOG = "Our beagle chased a squirrel through the park this morning."
PUPPY = "A puppy ran after small animals outdoors."
TAX = "The filing deadline for corporate tax returns moved to April."


def test_shape_length_and_type(minilm: MiniLM) -> None:
    vectors = minilm.encode([DOG, PUPPY, TAX, ""])
    assert (minilm.name, minilm.width, minilm.max_tokens) == ("all-MiniLM-L6-v2", 384, 256)
    assert vectors.shape == (4, 384)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_no_text_gives_no_rows(minilm: MiniLM) -> None:
    assert minilm.encode([]).shape == (0, 384)
    assert minilm.count_tokens([]) == []


def test_meaning_is_nearer_than_another_subject(minilm: MiniLM) -> None:
    dog, puppy, tax = minilm.encode([DOG, PUPPY, TAX])
    assert dog @ puppy > dog @ tax + 0.2


def test_one_text_twice_is_bit_identical(minilm: MiniLM) -> None:
    assert minilm.encode([DOG]).tobytes() == minilm.encode([DOG]).tobytes()


def test_companions_move_a_vector_by_rounding_only(minilm: MiniLM) -> None:
    alone = minilm.encode([DOG])[0]
    beside = minilm.encode([TAX, DOG, "word " * 300, "", *[PUPPY] * 20])[1]
    np.testing.assert_allclose(beside, alone, rtol=0, atol=1e-6)


def test_rows_stay_in_the_order_of_the_texts(minilm: MiniLM) -> None:
    texts = [DOG * n for n in (3, 1, 2)] + [TAX] * 9 + [PUPPY]
    one_by_one = np.concatenate([minilm.encode([text]) for text in texts])
    np.testing.assert_allclose(minilm.encode(texts), one_by_one, rtol=0, atol=1e-6)


def test_tokens_are_counted_past_the_limit_and_with_both_marks(minilm: MiniLM) -> None:
    assert minilm.count_tokens(["", "dog", "dog " * 254, "dog " * 255]) == [2, 3, 256, 257]


def test_a_text_is_read_to_the_limit_and_no_further(minilm: MiniLM) -> None:
    full = "dog " * 254
    within, over, shorter = minilm.encode([full, full + "tax law", "dog " * 253 + "tax"])
    np.testing.assert_allclose(over, within, rtol=0, atol=1e-6)
    assert np.abs(shorter - within).max() > 1e-4


def test_threads_may_share_one_encoder_from_its_first_call(at_once: AtOnce) -> None:
    encoder = MiniLM(SETTINGS)
    texts = [f"{DOG} {'again ' * n}" for n in range(0, 400, 50)]
    found: dict[str, np.ndarray] = {}
    counted: dict[str, int] = {}

    def encode(text: str) -> None:
        found[text] = encoder.encode([text])

    def count(text: str) -> None:
        counted[text] = encoder.count_tokens([text])[0]

    at_once([partial(task, text) for text in texts for task in (encode, count)])
    for text in texts:
        assert counted[text] == encoder.count_tokens([text])[0]
        np.testing.assert_array_equal(found[text], encoder.encode([text]))


def test_packaged_weights_need_no_network_and_print_nothing(
    no_network: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    encoder = MiniLM(SETTINGS)
    encoder.encode([DOG] * 100)
    encoder.count_tokens(["dog " * 5000])
    archive = packaged_folder("all_minilm_l6_v2", "embedded") / "model.zip"
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    assert [path.name for path in (tmp_path / "vmem").iterdir()] == [
        f"all-MiniLM-L6-v2-{digest[:12]}"
    ]
    assert capfd.readouterr() == ("", "")


def test_a_folder_may_be_named_and_gives_the_same_vectors(minilm: MiniLM) -> None:
    folder = packaged_model()
    named = MiniLM(EncoderSettings(kind="minilm", model=str(folder)))
    assert named.name == folder.name
    np.testing.assert_array_equal(named.encode([DOG]), minilm.encode([DOG]))


def test_a_model_of_a_hub_out_of_reach_is_one_sentence(no_hub: None) -> None:
    settings = EncoderSettings(kind="minilm", model="sentence-transformers/all-mpnet-base-v2")
    with pytest.raises(EncoderError, match=r"'sentence-transformers/all-mpnet-base-v2'.*HF_HOME"):
        MiniLM(settings)


def test_a_device_that_is_not_there_is_one_sentence() -> None:
    with pytest.raises(EncoderError, match=r"device 'tpu9'.*set cpu"):
        MiniLM(EncoderSettings(kind="minilm", device="tpu9"))


def test_a_package_that_is_not_there_names_its_extra() -> None:
    with pytest.raises(EncoderError, match=r"no_such_weights.*vmem\[embedded\]"):
        packaged_folder("no_such_weights", "embedded")


def test_settings_travel_between_processes() -> None:
    assert pickle.loads(pickle.dumps(SETTINGS)) == SETTINGS


def _zip(path: Path, entries: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w") as zipped:
        for name, content in entries.items():
            zipped.writestr(name, content)
    return path


def test_an_archive_is_unzipped_once(tmp_path: Path) -> None:
    archive = _zip(tmp_path / "model.zip", {"a.txt": "one", "deep/b.txt": "two"})
    folder = unzip_once(archive, tmp_path / "cache" / "model")
    assert (folder / "deep" / "b.txt").read_text() == "two"
    (folder / "a.txt").write_text("kept")
    archive.unlink()
    assert unzip_once(archive, folder) == folder
    assert (folder / "a.txt").read_text() == "kept"


@pytest.mark.parametrize("entry", ["../outside.txt", "/outside.txt", "deep/../../outside.txt"])
def test_an_entry_that_leaves_its_folder_is_refused(tmp_path: Path, entry: str) -> None:
    archive = _zip(tmp_path / "model.zip", {"fine.txt": "x", entry: "y"})
    with pytest.raises(EncoderError, match=r"outside\.txt.*leaves its folder"):
        unzip_once(archive, tmp_path / "cache" / "model")
    assert list((tmp_path / "cache").iterdir()) == []


def test_unzipping_at_once_leaves_one_whole_folder(tmp_path: Path, at_once: AtOnce) -> None:
    entries = {f"{n}.txt": str(n) * 10_000 for n in range(200)}
    archive = _zip(tmp_path / "model.zip", entries)
    folder = tmp_path / "cache" / "model"
    at_once([partial(unzip_once, archive, folder)] * 6)
    assert list(folder.parent.iterdir()) == [folder]
    assert {path.name: path.read_text() for path in folder.iterdir()} == entries
