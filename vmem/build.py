"""The composition root: names in the settings become adapters."""

from collections.abc import Callable

from vmem.config import EncoderSettings, Settings, replace
from vmem.errors import ConfigError
from vmem.images import read_image
from vmem.memory import EncodedUnits, encode_rounds
from vmem.pipeline import Parts
from vmem.ports import ChatModel, ImageEncoder, TextEncoder
from vmem.prompts import Prompts
from vmem.stores.hot import HotMemory, UnitTable
from vmem.types import Dialogue, Signal


def make_text_encoder(settings: EncoderSettings) -> TextEncoder:
    """φ by its kind.

    Raises:
        ConfigError: The kind encodes no text.
        EncoderError: Its weights cannot be loaded.
    """
    # Encoders bring torch, which takes seconds to import: only who encodes pays for it.
    if settings.kind == "minilm":
        from vmem.encoders.minilm import MiniLM

        return MiniLM(settings)
    if settings.kind == "fake":
        from vmem.encoders.fake import FakeTextEncoder

        return FakeTextEncoder()
    raise ConfigError(f"encoders.text.kind: {settings.kind} is no text encoder")


def make_image_encoder(settings: EncoderSettings) -> ImageEncoder | None:
    """ψ by its kind; None where pictures are not searched.

    Raises:
        ConfigError: The kind encodes no image.
        EncoderError: Its weights cannot be loaded.
    """
    makers: dict[str, Callable[[EncoderSettings], ImageEncoder]] = {
        "efficientnet": _efficientnet,
        "siglip": _siglip,
        "dinov2": _dinov2,
        "fake": _fake_image_encoder,
    }
    if settings.kind == "none":
        return None
    if settings.kind not in makers:
        raise ConfigError(f"encoders.image.kind: {settings.kind} is no image encoder")
    return makers[settings.kind](settings)


def make_chat(settings: Settings) -> ChatModel | None:
    """The backbone; None where the settings name none.

    Raises:
        ConfigError: A server is configured without address or model.
        ModelError: The embedded model cannot be started.
    """
    provider = settings.llm.provider
    if provider == "none":
        return None
    if provider == "openai":
        from vmem.llm.openai_chat import OpenAIChat

        return OpenAIChat(settings.llm)
    if provider == "llama_cpp":
        from vmem.llm.llama_cpp import LlamaCpp

        return LlamaCpp(settings.llm)
    from vmem.llm.fake import FakeChat

    return FakeChat()


def make_parts(settings: Settings) -> Parts:
    """Everything a query runs on."""
    return Parts(
        text_encoder=make_text_encoder(settings.encoders.text),
        image_encoder=make_image_encoder(settings.encoders.image),
        chat=make_chat(settings),
        prompts=Prompts(settings.prompts),
        read_image=read_image,
    )


def without_image_lane(settings: Settings) -> Settings:
    """The settings with no picture encoded or searched; captions stay."""
    signals = {
        case: tuple(signal for signal in active if signal is not Signal.VISUAL)
        for case, active in settings.retrieval.signals.items()
    }
    return replace(
        settings,
        retrieval={"signals": signals},
        encoders={"image": EncoderSettings(kind="none")},
    )


def hot_memory(dialogue: Dialogue, settings: Settings, parts: Parts) -> HotMemory:
    """A dialogue encoded in process, with no store behind it."""
    encoded = encode_rounds(
        dialogue.rounds, settings.units, parts.text_encoder, parts.image_encoder, parts.read_image
    )
    return HotMemory(dialogue.rounds, *unit_tables(encoded), settings.retrieval.lexical)


def unit_tables(encoded: EncodedUnits) -> tuple[UnitTable, UnitTable]:
    """Encoded units as a hot memory holds them: those of the text index, those of the image one."""
    return (
        UnitTable(units=encoded.text, vectors_UD=encoded.text_vectors_UD),
        UnitTable(units=encoded.image, vectors_UD=encoded.image_vectors_IE),
    )


def _efficientnet(settings: EncoderSettings) -> ImageEncoder:
    from vmem.encoders.efficientnet import EfficientNetLite0

    return EfficientNetLite0(settings)


def _siglip(settings: EncoderSettings) -> ImageEncoder:
    from vmem.encoders.siglip import SigLIP

    return SigLIP(settings)


def _dinov2(settings: EncoderSettings) -> ImageEncoder:
    from vmem.encoders.dinov2 import DINOv2

    return DINOv2(settings)


def _fake_image_encoder(settings: EncoderSettings) -> ImageEncoder:  # noqa: ARG001
    from vmem.encoders.fake import FakeImageEncoder

    return FakeImageEncoder()
