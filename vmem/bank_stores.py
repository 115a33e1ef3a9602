"""What a bank is open on: the catalogue, the pictures, the indices, and what encodes for them."""

import threading
from dataclasses import replace
from functools import cached_property
from types import TracebackType
from typing import Self

from vmem.bank_index import BankIndex, collections
from vmem.build import make_parts
from vmem.config import Settings
from vmem.errors import ConfigError, StoreError
from vmem.pipeline import Parts
from vmem.ports import Transcriber
from vmem.stores.catalogue import Bank as BankRecord
from vmem.stores.catalogue import Catalogue
from vmem.stores.images import ImageStore
from vmem.stores.media import reader
from vmem.stores.milvus import MilvusStore
from vmem.stores.records import check_same_encoders


class BankStores:
    """The open stores of the bank that the settings name; what is slow opens when first needed.

    Args:
        settings: Store, encoders, retrieval, backbone.
        writes: Whether missing collections, and a missing bank, are made.
        parts: Encoders, backbone and prompts, where they are not those that the settings name.

    Raises:
        ConfigError, StoreError: The catalogue or the image folder cannot be opened.
    """

    def __init__(self, settings: Settings, writes: bool = True, parts: Parts | None = None) -> None:
        self.settings = settings
        self.writes = writes
        self._given_parts = parts
        self.catalogue = Catalogue(database_url(settings))
        self.media = ImageStore(images_url(settings))
        self._opening = threading.Lock()
        self._opened: BankIndex | None = None

    def __enter__(self) -> Self:
        """Open for a with-block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()

    async def close_chat(self) -> None:
        """Stop the backbone, where one was used; its event loop must still run."""
        if "parts" in self.__dict__ and self.parts.chat:
            await self.parts.chat.close()

    def reload(self) -> None:
        """Forget what was read of the bank; a build calls this after its switch."""
        self._opened = None

    def close(self) -> None:
        """Release the stores."""
        if "store" in self.__dict__:
            self.store.close()
        self.catalogue.close()

    def check(self) -> None:
        """Ask every store for an answer.

        Raises:
            StoreError: One cannot be reached.
        """
        self.catalogue.bank(self.settings.store.bank)
        self.store.collections()

    @cached_property
    def parts(self) -> Parts:
        """Encoders, backbone and prompts; loaded when first needed."""
        parts = self._given_parts or make_parts(self.settings)
        return replace(parts, read_image=reader(self.media, parts.read_image))

    @cached_property
    def store(self) -> MilvusStore:
        """The vector store; opened when first needed."""
        uri = self.settings.store.milvus_uri
        if uri:
            return MilvusStore(uri, self.settings.store.milvus_token.get_secret_value())
        return MilvusStore(str(self.settings.store.home / "milvus.db"))

    @property
    def record(self) -> BankRecord:
        """The bank's own record: encoders, collections."""
        return self.index().record

    def index(self) -> BankIndex:
        """The bank's collections as the catalogue names them now: a build may have switched."""
        record = self._record()
        with self._opening:
            if self._opened is None or self._opened.record != record:
                for collection, width in collections(record).values():
                    if self.writes and not self.store.exists(collection):
                        self.store.create(collection, width)
                self._opened = BankIndex(
                    record=record, store=self.store, parts=self.parts, settings=self.settings
                )
            return self._opened

    def stored_record(self) -> BankRecord:
        """The bank's record, for what needs no encoder."""
        name = self.settings.store.bank
        record = self.catalogue.bank(name)
        if record is None:
            raise StoreError(f"there is no bank {name} yet; its writer makes it")
        return record

    def transcribe(self, uri: str) -> str:
        """The words of a voice message, by a model that is loaded when first needed."""
        return self._transcriber.transcribe(uri)

    @cached_property
    def _transcriber(self) -> Transcriber:
        from vmem.encoders.whisper import Whisper

        return Whisper()

    def _record(self) -> BankRecord:
        name = self.settings.store.bank
        text, image = self.parts.text_encoder, self.parts.image_encoder
        asked = BankRecord(
            name=name,
            kind="served",
            text_encoder=text.name,
            text_width=text.width,
            image_encoder=image.name if image else "none",
            image_width=image.width if image else 0,
            text_collection=f"{name}_text",
            image_collection=f"{name}_image",
            units=self.settings.units,
        )
        if self.writes:
            return self.catalogue.ensure_bank(asked)
        record = self.stored_record()
        check_same_encoders(record, asked)
        return record


def database_url(settings: Settings) -> str:
    """The catalogue's SQLAlchemy URL: the one set, or SQLite in `store.home`."""
    if settings.store.database_url:
        return settings.store.database_url.get_secret_value()
    home = settings.store.home
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"store.home {home} cannot be created: {error.strerror}") from error
    return f"sqlite:///{home / 'catalogue.sqlite3'}"


def images_url(settings: Settings) -> str:
    """The image folder's fsspec URL: the one set, or a folder in `store.home`."""
    return settings.store.images_url or str(settings.store.home / "images")
