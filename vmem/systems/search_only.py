"""Systems where nothing answers: what they find is all that can be scored."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from vmem.errors import ConfigError
from vmem.oracle import refuse_oracle
from vmem.ports import BuildCost, MemorySystem, Oracle, System
from vmem.types import Answer, Dialogue, Query, Retrieval


@runtime_checkable
class Searching(Protocol):
    """A memory that finds evidence without answering."""

    async def search(self, query: Query) -> Retrieval:
        """What an answer would rest on.

        Raises:
            VmemError: The question cannot be searched with, and is to be counted as failed.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOnly:
    """A system whose answers are empty.

    Attributes:
        system: The system that searches.
    """

    system: System

    @property
    def name(self) -> str:
        """The row's name."""
        return self.system.name

    async def build(self, dialogue: Dialogue) -> MemorySystem:
        """Take in a dialogue.

        Raises:
            ConfigError: The system cannot search without a language model.
            VmemError: As the system's `build`.
        """
        memory = await self.system.build(dialogue)
        if not isinstance(memory, Searching):
            raise ConfigError(f"system {self.name!r} finds nothing without a language model")
        return SearchOnlyMemory(name=self.name, cost=memory.cost, memory=memory)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOnlyMemory:
    """A dialogue that is searched, and about which nothing is said.

    Attributes:
        name: The row's name.
        cost: What building it took.
        memory: What is searched.
    """

    name: str
    cost: BuildCost
    memory: Searching

    async def answer(self, query: Query, oracle: Oracle | None = None) -> Answer:
        """What was found, with an empty text and no prompt.

        Raises:
            ConfigError: An oracle is given.
            VmemError: As `Searching.search`.
        """
        refuse_oracle(self.name, oracle)
        found = await self.memory.search(query)
        return Answer(text="", retrieval=found, prompt="", usage=(), seconds=found.seconds)
