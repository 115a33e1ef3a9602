"""All settings, frozen and checked; the only reader of YAML files and of the environment.

A YAML file in `configs/` names what differs from the defaults here, which are Table 5's values
with embedded parts. Environment variables override single settings:
`VMEM_STORE__BANK=demo` sets `store.bank`. Secrets are read from the environment only.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from vmem.errors import ConfigError
from vmem.types import Case, Signal

CONFIGS = Path(__file__).resolve().parent.parent / "configs"

EMBEDDED_WINDOW = 4_096
"""Tokens of the embedded model's window that are used where nothing else is set."""

PAPER_SIGNALS: dict[Case, tuple[Signal, ...]] = {
    Case.TEXT_TO_TEXT: (Signal.TEXT_DENSE, Signal.TEXT_SPARSE),
    Case.TEXT_TO_IMAGE: (
        Signal.TEXT_DENSE,
        Signal.TEXT_SPARSE,
        Signal.CAPTION_DENSE,
        Signal.CAPTION_SPARSE,
    ),
    Case.IMAGE_TEXT_TO_TEXT: (Signal.TEXT_DENSE, Signal.TEXT_SPARSE, Signal.VISUAL),
    Case.IMAGE_TEXT_TO_IMAGE: (Signal.VISUAL,),
}


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class UnitSettings(_Section):
    """How rounds become units (section 3.4, Appendix H).

    Attributes:
        fold_captions: Captions also join the text of the turn that shared the image.
        split_long_spans: A span over the encoder's limit becomes several units; else it is
            truncated by the encoder, and counted.
    """

    fold_captions: bool = True
    split_long_spans: bool = False


class LexicalSettings(_Section):
    """BM25 (Robertson and Zaragoza 2009), Lucene's variant.

    Attributes:
        k1: Term frequency saturation.
        b: Document length normalisation.
        stem: English stop words dropped and Snowball stems taken.
        level: Score units, or whole rounds with all their text.
        session_date: The session's date, spelled out, is part of the text searched.
    """

    k1: float = 1.5
    b: float = 0.75
    stem: bool = False
    level: Literal["unit", "round"] = "unit"
    session_date: bool = False


class FusionSettings(_Section):
    """How rankings under several signals become one (Equation 5).

    Attributes:
        method: `rrf` is the paper's; `convex` adds min-max normalised scores by weight.
        rrf_k: The constant κ.
        weights: Per case, the weight of each signal; a signal without one weighs 1.
    """

    method: Literal["rrf", "convex"] = "rrf"
    rrf_k: int = Field(default=60, ge=0)
    weights: Mapping[Case, Mapping[Signal, float]] = Field(default_factory=dict)


class AggregationSettings(_Section):
    """The branch for questions whose evidence is scattered (Appendix B, LoCoMo only)."""

    enabled: bool = False
    top_k: int = Field(default=30, ge=1)


class RetrievalSettings(_Section):
    """Routed retrieval (section 3.3); every toggle that Tables 3 and 11 to 13 need.

    Attributes:
        routing: `narrow` is the paper's rule, `wide` also takes requests to find or show
            images; `uniform` is vanilla: all signals that the query supports, whatever it asks.
        target: `auto` infers the target; `text` and `image` force it.
        signals: The signals J_c of each case.
        filter_window: Text to image: rounds within this distance of an image stay candidates;
            None switches the filter off.
        hypo_caption: Text to image: captions are searched with a generated caption.
        keywords: Image+text to text: the text lane's anchor gains keywords read off the image.
        max_keywords: At most so many.
        on_model_failure: When the model that writes an anchor fails: `fail` gives up the search,
            `query` searches with the query as it is, and a note says why.
        pool: Rounds kept per signal; None keeps all candidates.
        round_score: Under a signal a round scores its best unit (Equation 5), or that plus half
            of its second best.
        level: Rank and return whole rounds, or bare units.
        top_k: Rounds returned (k).
        unit_budget: Units returned at the unit level.
        window: Neighbours on each side of a ranked round (W).
        placement: Where neighbours stand (Table 13).
        merge_overlaps: Windows that overlap become one block.
    """

    routing: Literal["narrow", "wide", "uniform"] = "narrow"
    target: Literal["auto", "text", "image"] = "auto"
    signals: Mapping[Case, tuple[Signal, ...]] = Field(default_factory=lambda: PAPER_SIGNALS)
    filter_window: int | None = Field(default=1, ge=0, le=2)
    hypo_caption: bool = True
    keywords: bool = True
    max_keywords: int = Field(default=8, ge=1)
    on_model_failure: Literal["fail", "query"] = "fail"
    pool: int | None = Field(default=20, ge=1)
    round_score: Literal["best", "best_two"] = "best"
    level: Literal["round", "unit"] = "round"
    top_k: int = Field(default=12, ge=1)
    unit_budget: int = Field(default=12, ge=1)
    window: int = Field(default=1, ge=0)
    placement: Literal["runs", "tail", "none", "interleave"] = "runs"
    merge_overlaps: bool = True
    aggregation: AggregationSettings = AggregationSettings()
    fusion: FusionSettings = FusionSettings()
    lexical: LexicalSettings = LexicalSettings()


class AnswerSettings(_Section):
    """The answer call (Appendix C).

    Attributes:
        context_tokens: The context's budget; the lowest-ranked rounds go first.
        max_tokens: Length of the answer at most.
        query_caption: Where the attached-image note's description comes from; `dataset` uses
            the benchmark's caption and is labelled wherever its scores appear.
        sees_pixels: A backbone that sees also gets the query's image and the images found.
        temperature: Sampling temperature of every call.
    """

    context_tokens: int = Field(default=16_000, ge=64)
    max_tokens: int = Field(default=256, ge=1)
    query_caption: Literal["generated", "dataset", "none"] = "generated"
    sees_pixels: bool = False
    temperature: float = Field(default=0.0, ge=0)


class EncoderSettings(_Section):
    """One encoder.

    Attributes:
        kind: The adapter.
        model: A hub name or a folder; None takes the packaged weights.
        pretrained: open_clip's tag of the weights, where it has one.
        device: A torch device.
        batch_size: Texts or images a forward pass.
        threads: CPU threads of torch; 0 leaves torch's choice, and in a build the machine's cores
            by the number of actors.
    """

    kind: Literal["minilm", "efficientnet", "siglip", "dinov2", "fake", "none"]
    model: str | None = None
    pretrained: str | None = None
    device: str = "cpu"
    batch_size: int = Field(default=64, ge=1)
    threads: int = Field(default=0, ge=0)


class Encoders(_Section):
    """The encoder pair of a bank: φ for text, ψ for images."""

    text: EncoderSettings = EncoderSettings(kind="minilm", batch_size=16)
    image: EncoderSettings = EncoderSettings(kind="efficientnet", batch_size=16)


class StoreSettings(_Section):
    """Where memories live.

    Attributes:
        home: Folder of the embedded store; everything below is inside it unless it is set.
        bank: The bank (a pair of collections with one encoder pair) to work in.
        milvus_uri: A Milvus server; None is Milvus Lite in `home`.
        milvus_token: Its token (environment only).
        database_url: SQLAlchemy URL of the catalogue and round log; None is SQLite in `home`.
        images_url: fsspec URL of the image folder; None is a folder in `home`.
        exact_limit: Memories of up to so many units are searched exactly in process, larger
            ones by Milvus.
        hot_units: Memories are kept in process up to so many units in all; those that were not
            searched for longest go first.
    """

    home: Path = Path(".vmem")
    bank: str = Field(default="default", pattern=r"^[A-Za-z][A-Za-z0-9_]{0,62}$")
    milvus_uri: str | None = None
    milvus_token: SecretStr = SecretStr("")
    database_url: SecretStr | None = None
    images_url: str | None = None
    exact_limit: int = Field(default=50_000, ge=0)
    hot_units: int = Field(default=2_000_000, ge=0)


class ModelSettings(_Section):
    """The backbone: one model for anchors and answers (Table 5).

    Attributes:
        provider: `openai` is any OpenAI-compatible server, `llama_cpp` the embedded model,
            `none` retrieval without a model, `fake` a scripted model for tests.
        base_url: The server's address, up to and with `/v1`.
        model: The model's name there; for `llama_cpp` a GGUF file, None is the packaged one.
        api_key: The server's key (environment only).
        sees_images: The model takes images.
        context_window: Tokens that the model holds; a context is cut to fit it. None is unknown,
            and 4,096 for the embedded model.
        timeout_s: Seconds for the whole reply to one call; each try has as many.
        anchor_timeout_s: Seconds for a call that writes an anchor, all its tries together; None
            sets no bound of its own.
        attempts: Tries of a call that may succeed later.
        threads: CPU threads of the embedded model.
        tokenizer: A folder with the model's tokenizer.json, or its hub name: tokens are counted
            exactly then, else estimated. The embedded model counts by itself.
    """

    provider: Literal["openai", "llama_cpp", "none", "fake"] = "llama_cpp"
    base_url: str | None = None
    model: str | None = None
    api_key: SecretStr = SecretStr("")
    sees_images: bool = False
    context_window: int | None = Field(default=None, ge=256)
    timeout_s: float = Field(default=120.0, gt=0)
    anchor_timeout_s: float | None = Field(default=None, gt=0)
    attempts: int = Field(default=5, ge=1)
    threads: int = Field(default=2, ge=1)
    tokenizer: str | None = None

    @property
    def window(self) -> int | None:
        """Tokens that the model is known to hold."""
        if self.context_window is None and self.provider == "llama_cpp":
            return EMBEDDED_WINDOW
        return self.context_window


class PromptSettings(_Section):
    """Where prompts come from: a file of the same name in `dir` replaces one of ours."""

    dir: Path | None = None


class BuildSettings(_Section):
    """The Ray Data build.

    Attributes:
        text_actors: Text encoder actors.
        image_actors: Image encoder actors.
        cpus: Logical CPUs an encoder actor takes.
        gpus: GPUs an encoder actor takes (a fraction shares one).
        batch_rows: Units a batch carries through the job.
        address: A Ray cluster; None starts a local one.
    """

    text_actors: int = Field(default=1, ge=1)
    image_actors: int = Field(default=1, ge=1)
    cpus: float = Field(default=1.0, ge=0)
    gpus: float = Field(default=0.0, ge=0)
    batch_rows: int = Field(default=512, ge=1)
    address: str | None = None


class Settings(BaseSettings):
    """Everything that can be set, by section."""

    model_config = SettingsConfigDict(
        env_prefix="VMEM_", env_nested_delimiter="__", frozen=True, extra="forbid"
    )

    name: str = "embedded"
    units: UnitSettings = UnitSettings()
    retrieval: RetrievalSettings = RetrievalSettings()
    answer: AnswerSettings = AnswerSettings()
    encoders: Encoders = Encoders()
    store: StoreSettings = StoreSettings()
    llm: ModelSettings = ModelSettings()
    prompts: PromptSettings = PromptSettings()
    build: BuildSettings = BuildSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment overrides what a file says."""
        return env_settings, init_settings


def load_settings(source: str | Path | None = None) -> Settings:
    """Read settings from a file, or from `configs/<name>.yaml`, under the environment's overrides.

    Args:
        source: A YAML file, the name of one in `configs/`, or None for the defaults.

    Raises:
        ConfigError: The file is missing or not YAML, a key is unknown, a value does not fit.
    """
    path = None if source is None else settings_file(source, CONFIGS)
    try:
        return Settings(**(read_mapping(path) if path else {}))
    except ValidationError as error:
        raise ConfigError(_sentence(error, path)) from error


def replace(settings: Settings, **sections: Mapping[str, Any]) -> Settings:
    """Settings with single values of sections changed, checked anew.

    Raises:
        ConfigError: A key is unknown or a value does not fit.
    """
    values = {name: getattr(settings, name) for name in type(settings).model_fields}
    for name, changes in sections.items():
        section = values[name]
        try:
            values[name] = type(section)(**{**dict(section), **changes})
        except ValidationError as error:
            raise ConfigError(_sentence(error, None, name)) from error
    return settings.model_copy(update=values)


def settings_file(source: str | Path, folder: Path) -> Path:
    """The YAML file itself, or the one of that name in a folder.

    Raises:
        ConfigError: The folder has none of that name.
    """
    path = Path(source)
    if path.suffix in {".yaml", ".yml"}:
        return path
    named = folder / f"{source}.yaml"
    if not named.is_file():
        known = ", ".join(sorted(file.stem for file in folder.glob("*.yaml")))
        raise ConfigError(
            f"no settings named {str(source)!r}; known: {known}, or give a .yaml file"
        )
    return named


def read_mapping(path: Path) -> dict[str, Any]:
    """What a YAML file of settings holds.

    Raises:
        ConfigError: It is missing, not YAML, or holds no mapping.
    """
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} cannot be read as YAML: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path} must hold a mapping of settings")
    return values


def secret_variable(name: str) -> SecretStr:
    """A secret of the environment; empty where there is none."""
    return SecretStr(os.environ.get(name, ""))


def first_fault(error: ValidationError, section: str = "", listed_in: str = "") -> str:
    """The first setting that is unknown or does not fit, by its path.

    Args:
        error: What pydantic found.
        section: What the path starts with.
        listed_in: The file that lists all settings.
    """
    first = error.errors()[0]
    where = ".".join(part for part in (section, *map(str, first["loc"])) if part)
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    if first["type"] == "extra_forbidden":
        listed = f"; {listed_in} lists all" if listed_in else ""
        return f"there is no setting {where}{more}{listed}"
    return f"setting {where}: {first['msg']}{more}"


def _sentence(error: ValidationError, path: Path | None, section: str = "") -> str:
    return (f"{path}: " if path else "") + first_fault(error, section, "vmem/config.py")
