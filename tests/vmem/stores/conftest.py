"""Databases that every contract of a store is held by."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from vmem.config import UnitSettings
from vmem.stores.catalogue import Bank, Catalogue


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.services)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database: SQLite's, and PostgreSQL's where services are tested."""
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    return f"sqlite:///{tmp_path / 'new' / 'catalogue.sqlite3'}"


@pytest.fixture
def bank() -> Bank:
    """The record of the bank that is there in every catalogue."""
    return Bank(
        name="demo",
        kind="served",
        text_encoder="minilm-1",
        text_width=384,
        image_encoder="none",
        image_width=0,
        text_collection="demo_text",
        image_collection="demo_image",
        units=UnitSettings(),
    )


@pytest.fixture
def catalogue(url: str, bank: Bank) -> Iterator[Catalogue]:
    """A catalogue with one bank."""
    catalogue = Catalogue(url, busy_timeout_s=10)
    catalogue.ensure_bank(bank)
    yield catalogue
    catalogue.close()
