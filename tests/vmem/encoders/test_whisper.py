import importlib.util
import shutil
import subprocess
import sys
import wave
from pathlib import Path

import pytest

from vmem.audio import MAX_BYTES
from vmem.encoders.whisper import Whisper
from vmem.errors import AudioError, EncoderError

SPOKEN = (
    "the quick brown fox jumps over the lazy dog",
    "please remind me to water the plants in the kitchen on monday morning",
)
WORD_ERROR_RATE = 0.3  # a synthetic voice and the smallest model: 3 of 22 words were wrong


@pytest.fixture(scope="module")
def whisper(tmp_path_factory: pytest.TempPathFactory) -> Whisper:
    if importlib.util.find_spec("faster_whisper") is None:
        pytest.skip("the audio extra is not installed")
    return Whisper(threads=1)


def _silence(path: Path, seconds: int) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(bytes(2 * 16_000 * seconds))
    return path


def _word_errors(reference: list[str], found: list[str]) -> int:
    row = list(range(len(found) + 1))
    for i, word in enumerate(reference, start=1):
        above, row = row, [i]
        for j, other in enumerate(found, start=1):
            row.append(min(above[j] + 1, row[-1] + 1, above[j - 1] + (word != other)))
    return row[-1]


def test_word_errors_are_counted() -> None:
    assert _word_errors(["a", "b", "c"], ["a", "x", "c", "d"]) == 1 + 1
    assert _word_errors(["a", "b", "c"], []) == 3


def test_spoken_words_are_found(whisper: Whisper, tmp_path: Path) -> None:
    voice = shutil.which("espeak-ng")
    if voice is None:
        pytest.skip("espeak-ng, which speaks the test's sentences, is not installed")
    errors = 0
    for text in SPOKEN:
        file = tmp_path / "spoken.wav"
        subprocess.run([voice, "-v", "en-us", "-s", "140", "-w", file, text], check=True)
        found = "".join(c for c in whisper.transcribe(str(file)).lower() if c.isalnum() or c == " ")
        errors += _word_errors(text.split(), found.split())
    assert errors <= WORD_ERROR_RATE * sum(len(text.split()) for text in SPOKEN)


def test_silence_holds_no_words(whisper: Whisper, tmp_path: Path) -> None:
    assert whisper.transcribe(str(_silence(tmp_path / "silence.wav", 3))) == ""
    assert whisper.transcribe(str(_silence(tmp_path / "empty.wav", 0))) == ""


def test_a_missing_file_is_one_sentence(whisper: Whisper, tmp_path: Path) -> None:
    with pytest.raises(AudioError, match=r"gone\.wav' does not exist"):
        whisper.transcribe(str(tmp_path / "gone.wav"))


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("empty.wav", b"", "is no WAV"),
        ("text.wav", b"only words", "is no WAV"),
        ("list.m3u8", b"#EXTM3U\n#EXTINF:1,\n/etc/hostname\n", "is no WAV"),
        ("cut.wav", b"RIFF\x00\x00\x00\x00WAVEfmt ", "is damaged or holds no sound"),
        ("noise.ogg", b"OggS" + b"\x07\xd1" * 999, "is damaged or holds no sound"),
        ("noise.mp3", b"\xff\xfb" + b"\x07\xd1" * 999, "is damaged or holds no sound"),
    ],
)
def test_what_is_no_audio_is_one_sentence(
    whisper: Whisper, tmp_path: Path, name: str, content: bytes, problem: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(AudioError, match=rf"{name}' {problem}"):
        whisper.transcribe(str(tmp_path / name))


def test_a_video_without_sound_is_one_sentence(whisper: Whisper, tmp_path: Path) -> None:
    import av

    with av.open(str(tmp_path / "mute.mp4"), "w") as container:
        stream = container.add_stream("mpeg4", rate=5)
        stream.width = stream.height = 64
        stream.pix_fmt = "yuv420p"
        container.mux(stream.encode(av.VideoFrame(64, 64, "yuv420p")))
        container.mux(stream.encode())
    with pytest.raises(AudioError, match=r"mute\.mp4' is damaged or holds no sound"):
        whisper.transcribe(str(tmp_path / "mute.mp4"))


def test_a_long_file_is_refused_before_it_is_decoded(whisper: Whisper, tmp_path: Path) -> None:
    path = _silence(tmp_path / "long.wav", 1)
    with path.open("ab") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(AudioError, match=r"long\.wav' is longer than 20 MiB"):
        whisper.transcribe(str(path))


def test_no_file_outside_the_root_is_read(tmp_path: Path) -> None:
    if importlib.util.find_spec("faster_whisper") is None:
        pytest.skip("the audio extra is not installed")
    outside = _silence(tmp_path / "outside.wav", 1)
    inside = tmp_path / "inside"
    inside.mkdir()
    _silence(inside / "inside.wav", 1)
    bounded = Whisper(root=inside, threads=1)
    assert bounded.transcribe("inside.wav") == ""
    with pytest.raises(AudioError, match="outside"):
        bounded.transcribe(str(outside))


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faster_whisper", None)
    with pytest.raises(EncoderError, match=r"vmem\[audio\]"):
        Whisper()
