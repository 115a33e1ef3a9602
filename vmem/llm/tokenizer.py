"""Counting a model's tokens exactly, by its own tokenizer and without the model."""

from collections.abc import Callable
from pathlib import Path

from vmem.config import ModelSettings
from vmem.errors import ConfigError
from vmem.tokens import estimate_tokens

FILE = "tokenizer.json"


def token_counter(settings: ModelSettings) -> Callable[[str], int]:
    """Counts a text's tokens, without those of a chat template.

    Args:
        settings: `tokenizer` names a folder that holds tokenizer.json, or a model of the hub;
            where it is None the counter estimates.

    Raises:
        ConfigError: There is no such tokenizer.
    """
    if settings.tokenizer is None:
        return estimate_tokens
    # Not needed by who only estimates.
    from tokenizers import Tokenizer

    path = Path(settings.tokenizer) / FILE
    try:
        if path.parent.is_dir():
            tokenizer = Tokenizer.from_file(str(path))
        else:
            tokenizer = Tokenizer.from_pretrained(settings.tokenizer)
    except Exception as error:  # the library, written in Rust, raises nothing more exact
        raise ConfigError(
            f"llm.tokenizer: {settings.tokenizer} holds no {FILE} that can be read"
            f" ({type(error).__name__}): name a model's folder, or leave it out to estimate"
        ) from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)
