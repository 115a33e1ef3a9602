"""How large language models are: parameters, weights by quantisation, keys and values a token."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from serve.models import VllmSettings
from vmem.errors import ConfigError

BYTES_16 = 2
VISION_PARAMETERS = 680_000_000
"""Of Qwen2.5-VL's picture tower, the same in both sizes; it stays in 16 bits when the rest is
quantised, as embeddings do."""
BITS = {"": 16.0, "fp8": 8.0, "awq": 4 + (16 + 4) / 128, "gptq": 4 + (16 + 4) / 128}
"""Bits of a weight by quantisation; 4-bit ones have a scale and a zero point for each 128."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A decoder's numbers, as its `config.json` has them.

    Attributes:
        layers: Of the decoder.
        hidden: Width of the residual stream.
        intermediate: Width of the feed-forward part.
        heads: Query heads.
        kv_heads: Key and value heads.
        head_width: Width of a head.
        vocabulary: Tokens known.
        tied: Embedding and output are one matrix.
        vision_parameters: Of the picture tower.
    """

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_width: int
    vocabulary: int
    tied: bool
    vision_parameters: int = 0

    @property
    def linear_parameters(self) -> int:
        """Of the decoder's layers: attention and a gated feed-forward part; biases left out."""
        attention = 2 * self.hidden * self.head_width * (self.heads + self.kv_heads)
        return self.layers * (attention + 3 * self.hidden * self.intermediate)

    @property
    def kept_parameters(self) -> int:
        """Those that stay in 16 bits: embeddings and the picture tower."""
        return self.vocabulary * self.hidden * (1 if self.tied else 2) + self.vision_parameters

    @property
    def kv_bytes_per_token(self) -> int:
        """Of keys and values in 16 bits."""
        return 2 * self.layers * self.kv_heads * self.head_width * BYTES_16


SHAPES: Mapping[str, ModelShape] = {
    "qwen2.5-vl-7b": ModelShape(
        layers=28, hidden=3584, intermediate=18944, heads=28, kv_heads=4, head_width=128,
        vocabulary=152_064, tied=False, vision_parameters=VISION_PARAMETERS,
    ),
    "qwen2.5-vl-32b": ModelShape(
        layers=64, hidden=5120, intermediate=27648, heads=40, kv_heads=8, head_width=128,
        vocabulary=152_064, tied=False, vision_parameters=VISION_PARAMETERS,
    ),
    "smollm2-135m": ModelShape(
        layers=30, hidden=576, intermediate=1536, heads=9, kv_heads=3, head_width=64,
        vocabulary=49_152, tied=True,
    ),
}  # fmt: skip
"""Models by what their names hold; another is described by its `config.json`."""


def known_shape(model: str) -> ModelShape:
    """A model's numbers by its name.

    Raises:
        ConfigError: It is none of those known here.
    """
    for name, shape in SHAPES.items():
        if name in model.lower():
            return shape
    raise ConfigError(
        f"backbone.vllm.model_source {model}: its size is not known here ({', '.join(SHAPES)} are);"
        " give --model-config with its config.json"
    )


def read_shape(path: Path) -> ModelShape:
    """A model's numbers from its `config.json`.

    Raises:
        ConfigError: The file is missing, or a number is.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        values = values | values.get("text_config", {})
        heads = values["num_attention_heads"]
        return ModelShape(
            layers=values["num_hidden_layers"],
            hidden=values["hidden_size"],
            intermediate=values["intermediate_size"],
            heads=heads,
            kv_heads=values.get("num_key_value_heads") or heads,
            head_width=values.get("head_dim") or values["hidden_size"] // heads,
            vocabulary=values["vocab_size"],
            tied=bool(values.get("tie_word_embeddings")),
            vision_parameters=VISION_PARAMETERS if "vision_config" in values else 0,
        )
    except (OSError, json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} does not describe a model: {error!r}") from error


def quantisation(vllm: VllmSettings) -> str:
    """How weights are quantised: by `engine_kwargs.quantization`, else by the model's name.

    Raises:
        ConfigError: How many bits it takes is not known here.
    """
    named = vllm.engine_kwargs.get("quantization") or ""
    if not named:
        named = next((q for q in BITS if q and q in vllm.model_source.lower()), "")
    for name in BITS:
        if name and name in str(named).lower():
            return name
    if named:
        raise ConfigError(
            f"backbone.vllm.engine_kwargs.quantization {named}: its bits are not known here;"
            f" known: {', '.join(filter(None, BITS))}"
        )
    return ""
