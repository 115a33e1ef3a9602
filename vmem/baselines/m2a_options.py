"""M2A's hyperparameters."""

from pydantic import Field

from vmem.baselines.m2a_memory import SearchSizes
from vmem.baselines.options import Options


class M2AOptions(Options):
    """Hyperparameters; all defaults are the released code's.

    Attributes:
        chat_calls: The chat agent's call of this number is refused.
        memory_calls: The memory agent's call of this number is refused (its configuration says 5,
            which the code does not read).
        recent: Newest messages that the memory agent sees.
        transcript_tokens: What the chat agent keeps of earlier messages and calls.
        reply_tokens: Length of a reply at most.
        fetched: Messages that a fetch gives at most.
        beginning: Characters of a message that a fetch by day shows.
        dense: Memories by text vectors.
        sparse: Memories by BM25.
        text: Memories of both together.
        images: Memories by a picture.
        text_to_image: Memories by a text among pictures: the paper's third path, which the released
            code prepares (5) and never sends.
        rrf_k: κ.
    """

    chat_calls: int = Field(default=5, ge=1)
    memory_calls: int = Field(default=15, ge=1)
    recent: int = Field(default=5, ge=0)
    transcript_tokens: int = Field(default=8_000, ge=1)
    reply_tokens: int = Field(default=1_200, ge=1)
    fetched: int = Field(default=20, ge=1)
    beginning: int = Field(default=50, ge=1)
    dense: int = Field(default=5, ge=0)
    sparse: int = Field(default=5, ge=0)
    text: int = Field(default=5, ge=1)
    images: int = Field(default=3, ge=0)
    text_to_image: int = Field(default=0, ge=0)
    rrf_k: int = Field(default=60, ge=0)

    @property
    def sizes(self) -> SearchSizes:
        """How much a search of memories gives."""
        return SearchSizes(
            dense=self.dense,
            sparse=self.sparse,
            text=self.text,
            images=self.images,
            text_to_image=self.text_to_image,
            rrf_k=self.rrf_k,
        )
