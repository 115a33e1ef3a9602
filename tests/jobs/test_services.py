"""The whole line on a real Milvus server and a real PostgreSQL; encoders are fakes."""

import asyncio
import sys
from pathlib import Path

import pytest

from jobs.build_memory import build_bank
from vmem.bank import Bank
from vmem.config import replace
from vmem.rounds import exchange
from vmem.types import Query

sys.path.insert(0, str(Path(__file__).parent))
from test_build_memory import a_dialogue, fake_settings

pytestmark = [pytest.mark.services, pytest.mark.usefixtures("local_ray")]


def test_a_bank_is_built_searched_and_appended_to(
    tmp_path: Path, milvus_server: str, postgres_url: str
) -> None:
    settings = replace(
        fake_settings(tmp_path / "home"),
        store={"milvus_uri": milvus_server, "database_url": str(postgres_url)},
    )
    dialogue = a_dialogue(tmp_path, "a")
    with Bank(settings) as bank:
        assert build_bank(bank, [dialogue]).encoded == 2 * 12 + 2 + 2
        assert build_bank(bank, [dialogue]).unchanged
        bank.append("a", [exchange("new", session="D2", time="2026-03-03", user="the lighthouse")])
    with Bank(settings) as bank:
        found = asyncio.run(bank.search("a", Query(text="lighthouse")))
        assert found.ranked[0].position == 12
        bank.delete("a")
        assert bank.memories() == []
        for collection in (bank.record.text_collection, bank.record.image_collection):
            assert bank.store.count(collection) == 0
