"""Writes the two models of configs/serve/vllm-cpu.yaml from packages alone (`make models-cpu`).

SmolLM2-135M-Instruct is the packaged GGUF file turned into Hugging Face's layout, which vLLM loads.
The other is a Qwen2.5-VL of two layers with random weights: it runs the whole vision path, and what
it says means nothing.
"""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vmem.errors import ModelError
from vmem.llm.llama_cpp import packaged_model

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SMOLLM2 = "smollm2-135m-instruct"
TINY_VL = "tiny-random-qwen2.5-vl"
WINDOW = 8_192
_VISION_TOKENS = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
_PATCH, _MERGE = 14, 2
_LAYER = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2}

_TEMPLATE = """\
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% if message.content is string %}{{ message.content }}{% else %}
{%- for part in message.content -%}
{%- if part.type == 'text' %}{{ part.text }}
{%- else %}<|vision_start|><|image_pad|><|vision_end|>{% endif -%}
{%- endfor -%}
{%- endif %}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif -%}"""


def write_smollm2(folder: Path) -> Path:
    """Turn the packaged GGUF file into a folder in Hugging Face's layout, in bfloat16.

    Args:
        folder: Where the model's own folder is made.

    Raises:
        ModelError: The package that holds the file is missing.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    source = packaged_model()
    where: dict[str, Any] = {
        "pretrained_model_name_or_path": source.parent,
        "gguf_file": source.name,
    }
    target = folder / SMOLLM2
    model = AutoModelForCausalLM.from_pretrained(
        **where, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
    )
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(**where).save_pretrained(target)
    _split_digits(target / "tokenizer.json")
    return target


def write_tiny_vl(folder: Path, smollm2: Path) -> Path:
    """Make a Qwen2.5-VL of two layers with random weights, the same on every run.

    Args:
        folder: Where the model's own folder is made.
        smollm2: SmolLM2's folder, whose tokenizer it takes over.
    """
    import torch
    from transformers import AutoTokenizer, Qwen2_5_VLForConditionalGeneration

    target = folder / TINY_VL
    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    tokenizer.add_special_tokens({"additional_special_tokens": list(_VISION_TOKENS)})
    tokenizer.chat_template = _TEMPLATE
    torch.manual_seed(0)
    config = _tiny_config(tokenizer)
    model: Any = Qwen2_5_VLForConditionalGeneration(config)
    model.to(torch.bfloat16)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)
    for name, kind in (
        ("preprocessor_config", {"image_processor_type": "Qwen2VLImageProcessor"}),
        ("video_preprocessor_config", {"video_processor_type": "Qwen2VLVideoProcessor"}),
    ):
        (target / f"{name}.json").write_text(json.dumps(_PICTURES | kind), encoding="utf-8")
    return target


_PICTURES: dict[str, Any] = {
    "processor_class": "Qwen2_5_VLProcessor",
    "patch_size": _PATCH,
    "merge_size": _MERGE,
    "temporal_patch_size": 2,
    "min_pixels": 4 * (_PATCH * _MERGE) ** 2,
    "max_pixels": 256 * (_PATCH * _MERGE) ** 2,  # at most 256 tokens a picture
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
}


def _tiny_config(tokenizer: "PreTrainedTokenizerBase") -> Any:  # noqa: ANN401
    from transformers import Qwen2_5_VLConfig

    ids: Any = {token: tokenizer.convert_tokens_to_ids(token) for token in _VISION_TOKENS}
    width = 128
    half = width // _LAYER["num_attention_heads"] // 2
    return Qwen2_5_VLConfig(
        text_config={
            **_LAYER,
            "vocab_size": -(-len(tokenizer) // 64) * 64,
            "hidden_size": width,
            "intermediate_size": 2 * width,
            "max_position_embeddings": WINDOW,
            "tie_word_embeddings": False,  # tied random ones would only repeat the last token
            "bos_token_id": tokenizer.bos_token_id,
            "eos_token_id": tokenizer.eos_token_id,
            # time, height and width share the frequencies of a head
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e6,
                "mrope_section": [half // 4, half * 3 // 8, half * 3 // 8],
            },
        },
        vision_config={
            "depth": 2,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_heads": 2,
            "patch_size": _PATCH,
            "spatial_merge_size": _MERGE,
            "window_size": 8 * _PATCH,
            "fullatt_block_indexes": [1],
            "out_hidden_size": width,
        },
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=False,
    )


def _split_digits(path: Path) -> None:
    """Put back the step that a GGUF file does not carry: SmolLM2 reads each digit by itself."""
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    digits = {"type": "Digits", "individual_digits": True}
    steps = tokenizer["pre_tokenizer"]
    steps = steps["pretokenizers"] if steps["type"] == "Sequence" else [steps]
    if digits not in steps:
        tokenizer["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [digits, *steps]}
        path.write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")


def main() -> None:
    """Write both below the folder that the command line names."""
    folder = Path(sys.argv[1])
    try:
        smollm2 = write_smollm2(folder)
        tiny = write_tiny_vl(folder, smollm2)
    except (ImportError, ModelError) as error:
        sys.exit(f"models-cpu: {error}: run `make setup-vllm`")
    sys.stdout.write(f"{smollm2}\n{tiny}\n")


if __name__ == "__main__":
    main()
