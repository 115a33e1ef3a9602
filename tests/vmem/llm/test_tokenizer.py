from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from vmem.config import ModelSettings
from vmem.errors import ConfigError
from vmem.llm.openai_chat import OpenAIChat
from vmem.llm.tokenizer import token_counter
from vmem.tokens import estimate_tokens


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tokenizer of words and marks that adds one at the start and stops at three."""
    tokenizer = Tokenizer(WordLevel({"[UNK]": 0, "[CLS]": 1, "dog": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A", special_tokens=[("[CLS]", 1)])
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=3)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


@pytest.mark.parametrize(("text", "count"), [("", 0), ("dog", 1), ("a dog, a cat!", 6)])
def test_a_texts_own_tokens_are_counted_and_all_of_them(
    folder: Path, text: str, count: int
) -> None:
    assert token_counter(ModelSettings(tokenizer=str(folder)))(text) == count
    settings = ModelSettings(base_url="http://a/v1", model="m", tokenizer=str(folder))
    assert OpenAIChat(settings).count_tokens(text) == count


def test_without_a_tokenizer_tokens_are_estimated() -> None:
    assert token_counter(ModelSettings())("a dog") == estimate_tokens("a dog") == 2


@pytest.mark.parametrize("content", [None, "{", '{"model": 1}'])
def test_what_is_no_tokenizer_is_named(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"llm\.tokenizer: .* holds no tokenizer\.json"):
        token_counter(ModelSettings(tokenizer=str(tmp_path)))


def test_a_name_that_the_hub_does_not_give_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ConfigError, match=r"llm\.tokenizer: nobody/nothing holds no"):
        token_counter(ModelSettings(tokenizer="nobody/nothing"))
