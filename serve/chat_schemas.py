"""What the OpenAI routes take and give (chat completions, models, embeddings).

Parameters that this service cannot honour are refused unless they ask for nothing: `n` above 1,
tools and functions, log probabilities, `stop`, `top_p`, penalties, `logit_bias`, other response
formats and modalities. Those that change no answer are taken and left aside: `user`, `seed`,
`metadata`, `store`, `service_tier`, `safety_identifier`, `prompt_cache_key`, `parallel_tool_calls`,
`verbosity`.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, FailFast, Field, model_validator

from serve.request_schemas import NAME, Asked
from serve.schemas import Citation, RouteOut
from serve.service import Options

MAX_INPUTS = 256
"""Most texts of one embeddings request."""


class TextPart(Asked):
    """Words of a message."""

    type: Literal["text"]
    text: str


class ImageUrl(Asked):
    """A picture: a `data:` URL, or a web address where the service fetches those."""

    url: str = Field(min_length=1)
    detail: Literal["auto", "low", "high"] = "auto"


class ImagePart(Asked):
    """A picture of a message."""

    type: Literal["image_url"]
    image_url: ImageUrl


Part = Annotated[TextPart | ImagePart, Field(discriminator="type")]


class Message(Asked):
    """One message; of them all, the last of the user is the question."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | tuple[Part, ...]
    name: str | None = Field(default=None, max_length=200)

    @property
    def text(self) -> str:
        """Its words."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content if isinstance(part, TextPart))

    @property
    def pictures(self) -> tuple[ImageUrl, ...]:
        """Its pictures."""
        if isinstance(self.content, str):
            return ()
        return tuple(part.image_url for part in self.content if isinstance(part, ImagePart))


class StreamOptions(Asked):
    """Whether the stream ends with a chunk of the cost."""

    include_usage: bool = False
    include_obfuscation: bool = False


class ChatCompletionRequest(Asked):
    """A question to a memory in OpenAI's form.

    Attributes:
        memory: The memory; the header `x-vmem-memory` does as well.
        remember: Append question and answer to it as a round.
        session: The session of that round; by default today.
        options: As in a search.
    """

    model: str = Field(min_length=1, max_length=200)
    messages: Annotated[tuple[Message, ...], FailFast()] = Field(min_length=1)
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    memory: str | None = Field(default=None, pattern=NAME)
    remember: bool = False
    session: str | None = Field(default=None, max_length=200)
    options: Options = Options()

    n: int | None = None
    stop: str | tuple[str, ...] | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    logit_bias: dict[str, float] | None = None
    response_format: dict[str, Any] | None = None
    modalities: tuple[str, ...] | None = None
    tools: tuple[Any, ...] | None = None
    tool_choice: Any = None
    functions: tuple[Any, ...] | None = None
    function_call: Any = None

    user: str | None = None
    seed: int | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    parallel_tool_calls: bool | None = None
    verbosity: str | None = None

    @model_validator(mode="after")
    def _asks_for_nothing_else(self) -> Self:
        asked = {
            "n": self.n not in {None, 1},
            "stop": bool(self.stop),
            "top_p": self.top_p not in {None, 1.0},
            "presence_penalty": bool(self.presence_penalty),
            "frequency_penalty": bool(self.frequency_penalty),
            "logprobs": bool(self.logprobs) or self.top_logprobs is not None,
            "logit_bias": bool(self.logit_bias),
            "response_format": self.response_format not in (None, {"type": "text"}),
            "modalities": self.modalities not in {None, ("text",)},
            "tools": bool(self.tools) or bool(self.functions),
            "tool_choice": self.tool_choice not in (None, "none", "auto"),
            "function_call": self.function_call not in (None, "none", "auto"),
        }
        unsupported = next((name for name, is_asked in asked.items() if is_asked), None)
        if unsupported:
            raise ValueError(f"this service does not support {unsupported}")
        return self


class ChatMessage(BaseModel):
    """What the model says."""

    role: Literal["assistant"] = "assistant"
    content: str


class Choice(BaseModel):
    """The one answer."""

    index: int = 0
    message: ChatMessage
    finish_reason: Literal["stop"] = "stop"
    logprobs: None = None


class TokenUsage(BaseModel):
    """What all model calls of the request cost: anchors and answer."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Remembered(BaseModel):
    """What the answer rests on, and the round that question and answer became."""

    memory: str
    route: RouteOut
    citations: list[Citation]
    notes: list[str]
    round_id: str | None = None


class ChatCompletion(BaseModel):
    """An answer in OpenAI's form."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[Choice]
    usage: TokenUsage
    vmem: Remembered


class Delta(BaseModel):
    """A piece of the answer."""

    role: Literal["assistant"] | None = None
    content: str | None = None


class ChunkChoice(BaseModel):
    """A piece of the one answer."""

    index: int = 0
    delta: Delta
    finish_reason: Literal["stop"] | None = None


class Chunk(BaseModel):
    """One event of a streamed answer; the last one with a choice carries `vmem`."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: TokenUsage | None = None
    vmem: Remembered | None = None


class Model(BaseModel):
    """A name that `model` may hold."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "vmem"


class ModelList(BaseModel):
    """All such names."""

    object: Literal["list"] = "list"
    data: list[Model]


class EmbeddingsRequest(Asked):
    """Texts to embed with the text encoder φ."""

    model: str = Field(min_length=1, max_length=200)
    input: str | Annotated[tuple[str, ...], Field(min_length=1, max_length=MAX_INPUTS)]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None
    user: str | None = None


class Embedding(BaseModel):
    """A text as a vector of length 1: numbers, or base64 of float32 (little-endian)."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingUsage(BaseModel):
    """The texts' length."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(BaseModel):
    """The vectors in the order of the texts."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage
