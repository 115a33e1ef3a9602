"""Prompts of the baselines: files of `vmem/prompts/`, filled in so that data stays data."""

import re
from string import Template

from vmem.config import PromptSettings
from vmem.prompts import load_prompt

_OPENED = re.compile(r"^<(\w+)>$", re.MULTILINE)


class Wording:
    """One prompt.

    What is filled in stands between tags of the prompt's, which it cannot open or close.

    Args:
        settings: `dir` names a folder whose files replace ours of the same name.
        name: The file's stem.
        required: The placeholders that it must hold.

    Raises:
        ConfigError: It cannot be read, or has a placeholder too many or too few.
    """

    def __init__(self, settings: PromptSettings, name: str, *required: str) -> None:
        self._template = Template(load_prompt(name, settings.dir, frozenset(required)))
        names = "|".join(sorted(set(_OPENED.findall(self._template.template))))
        self._tag = re.compile(rf"<(/?(?:{names})>)", re.IGNORECASE) if names else None

    def fill(self, **values: str) -> str:
        """The prompt as it is sent."""
        if self._tag is not None:
            values = {key: self._tag.sub(r"&lt;\1", value) for key, value in values.items()}
        return self._template.substitute(values)
