"""The prompts of Appendix C, in words of our own: one file a text, one method a prompt.

A file holds `$placeholders` (a literal dollar is `$$`). What is filled in is data: it stands
between tags, which it cannot close, and braces or dollars in it mean nothing.
"""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from string import Template

from vmem.config import PromptSettings
from vmem.errors import ConfigError

NOT_FOUND = "Information not found"
"""What an answer says when the context holds no answer; the benchmark's references say it too."""

FOLDER = Path(__file__).parent

_REQUIRED: Mapping[str, frozenset[str]] = {
    "answer": frozenset({"context", "question"}),
    "conflict": frozenset({"context", "question"}),
    "hypo_caption": frozenset({"question"}),
    "keywords": frozenset({"question"}),
    "attached_image": frozenset(),
}
_OPTIONAL: Mapping[str, frozenset[str]] = {
    "answer": frozenset({"not_found"}),
    "keywords": frozenset({"max_keywords"}),
    "attached_image": frozenset({"query_caption", "image_id", "caption", "not_found"}),
}
_TAG = re.compile(r"<(/?(?:conversation|question)>)", re.IGNORECASE)


class Prompts:
    """The texts that a run uses.

    Args:
        settings: `dir` names a folder whose files replace ours of the same name.

    Raises:
        ConfigError: The folder is missing, or one of its files is no prompt of ours, cannot be
            read, or has a placeholder too many or too few.
    """

    def __init__(self, settings: PromptSettings) -> None:
        _check_folder(settings.dir)
        self._texts = {
            name: load_prompt(name, settings.dir, required, _OPTIONAL.get(name, frozenset()))
            for name, required in _REQUIRED.items()
        }

    def answer_prompt(self, context: str, question: str) -> str:
        """Answer from the context alone (the default answer prompt)."""
        return self._fill("answer", context=context, question=question, not_found=NOT_FOUND)

    def conflict_prompt(self, context: str, question: str) -> str:
        """Yes or No, for questions about a contradiction."""
        return self._fill("conflict", context=context, question=question)

    def hypo_caption_prompt(self, question: str) -> str:
        """The caption that the image sought would have (text -> image)."""
        return self._fill("hypo_caption", question=question)

    def keywords_prompt(self, question: str, max_keywords: int) -> str:
        """Search terms and a description, as JSON, off the query's image (image+text -> text)."""
        return self._fill("keywords", question=question, max_keywords=str(max_keywords))

    def attached_image_note(
        self, query_caption: str | None, image_id: str | None = None, caption: str | None = None
    ) -> str:
        """What the context says of the query's image; a line whose value is missing is left out.

        Args:
            query_caption: What the picture shows.
            image_id: The stored image that it matches best.
            caption: That image's caption.
        """
        values = {
            "query_caption": query_caption,
            "image_id": image_id,
            "caption": caption,
            "not_found": NOT_FOUND,
        }
        known = {name: " ".join(value.split()) for name, value in values.items() if value}
        lines = [
            line
            for line in self._texts["attached_image"].splitlines()
            if set(Template(line).get_identifiers()) <= known.keys()
        ]
        return Template("\n".join(lines)).substitute(known)

    def hashes(self) -> dict[str, str]:
        """SHA-256 in hex of each text, by its file's stem, for a run's manifest."""
        return {name: _sha256(text) for name, text in self._texts.items()}

    def _fill(self, name: str, **values: str) -> str:
        fenced = {key: _TAG.sub(r"&lt;\1", value) for key, value in values.items()}
        return Template(self._texts[name]).substitute(fenced)


def hashes_of(settings: PromptSettings, prefix: str) -> dict[str, str]:
    """SHA-256 in hex of each text whose file's name begins so, by its stem, for a run's manifest.

    Raises:
        ConfigError: One cannot be read.
    """
    names = sorted(path.stem for path in FOLDER.glob(f"{prefix}*.txt"))
    return {name: _sha256(_read(_path(name, settings.dir))) for name in names}


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _check_folder(folder: Path | None) -> None:
    if folder is None:
        return
    if not folder.is_dir():
        raise ConfigError(f"prompts.dir: {folder} is no folder")
    # Ours are listed from the disk, so that prompts of other rooms kept here count as known.
    known = {path.name for path in FOLDER.glob("*.txt")}
    for path in sorted(folder.glob("*.txt")):
        if path.name not in known:
            raise ConfigError(f"{path} replaces no prompt; those are {', '.join(sorted(known))}")


def load_prompt(
    name: str, folder: Path | None, required: frozenset[str], optional: frozenset[str] = frozenset()
) -> str:
    """A prompt's text: ours, or that of the folder's file of the same name.

    Args:
        name: The file's stem.
        folder: Where a user's prompts are, or None.
        required: The placeholders that it must hold.
        optional: Those that it may hold besides.

    Raises:
        ConfigError: It cannot be read, or has a placeholder too many or too few.
    """
    path = _path(name, folder)
    text = _read(path)
    template = Template(text)
    if not template.is_valid():
        raise ConfigError(
            f"prompt {path} has a $ that starts no placeholder; write $$ for a dollar"
        )
    found = set(template.get_identifiers())
    allowed = required | optional
    if unknown := sorted(found - allowed):
        names = ", ".join(f"${each}" for each in sorted(allowed))
        raise ConfigError(f"prompt {path} has the unknown placeholder ${unknown[0]}; use {names}")
    if missing := sorted(required - found):
        raise ConfigError(f"prompt {path} lacks the placeholder ${missing[0]}")
    return text


def _path(name: str, folder: Path | None) -> Path:
    path = FOLDER / f"{name}.txt"
    return folder / path.name if folder and (folder / path.name).is_file() else path


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"prompt {path} cannot be read as UTF-8 text: {error}") from error
