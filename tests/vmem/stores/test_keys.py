"""API keys in SQLite and in PostgreSQL."""

import hmac
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa

from vmem.errors import DataError, StoreError
from vmem.stores import keys as module
from vmem.stores.catalogue import Catalogue
from vmem.stores.keys import KeyStore, check_tenant
from vmem.stores.tables import API_KEYS


@pytest.fixture
def keys(url: str) -> Iterator[KeyStore]:
    keys = KeyStore(url)
    yield keys
    keys.close()


def test_a_key_is_found_by_its_secret_alone(keys: KeyStore) -> None:
    before = datetime.now(UTC)
    info, secret = keys.create("acme", "the app", rate_per_minute=60)
    assert secret.startswith(f"vmem_{info.id}_")
    assert (info.tenant, info.name, info.rate_per_minute) == ("acme", "the app", 60)
    assert (info.rotated_at, info.revoked_at) == (None, None)
    assert before - timedelta(seconds=1) <= info.created_at <= datetime.now(UTC)
    assert keys.find(secret) == info
    other, other_secret = keys.create("acme")
    assert keys.find(other_secret) == other
    assert other.rate_per_minute is None


def test_what_is_no_secret_opens_nothing(keys: KeyStore) -> None:
    info, secret = keys.create("acme")
    _, other = keys.create("acme")
    stem = f"vmem_{info.id}_"
    unknown = f"vmem_{'0' * 16}_{secret.removeprefix(stem)}"
    wrong = [f"{stem}{other[-43:]}", secret[:-1], f"{secret}x", f" {secret}", secret.upper()]
    for guess in [*wrong, unknown, "", info.id, stem, "vmem__", "\ud83d", "é" * 9, "x" * 10**5]:
        assert keys.find(guess) is None


def test_every_guess_is_compared_in_constant_time(
    keys: KeyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[str] = []

    def compare(given: str, held: str) -> bool:
        compared.append(held)
        return hmac.compare_digest(given, held)

    monkeypatch.setattr(module, "hmac", SimpleNamespace(compare_digest=compare))
    _, secret = keys.create("acme")
    for guess in (secret, f"{secret[:-1]}x", f"vmem_{'0' * 16}_{'x' * 43}", "nonsense"):
        keys.find(guess)
    assert len(compared) == 4
    assert compared[2:] == ["0" * 64] * 2


def test_only_a_digest_is_kept(keys: KeyStore) -> None:
    info, secret = keys.create("acme", "the app")
    with keys._database.reading("look") as connection:
        row: dict[str, Any] = dict(connection.execute(sa.select(API_KEYS)).mappings().one())
    assert secret[-43:] not in str(row)
    assert row["digest"] not in repr(info)
    assert len(row["digest"]) == 64


def test_a_rotated_key_has_another_secret_at_once(keys: KeyStore) -> None:
    info, old = keys.create("acme", "the app", rate_per_minute=5)
    rotated, new = keys.rotate(info.id)
    assert rotated.rotated_at is not None
    assert keys.find(old) is None
    assert keys.find(new) == rotated
    assert (rotated.id, rotated.tenant, rotated.name, rotated.rate_per_minute) == (
        *(info.id, "acme", "the app", 5),
    )


def test_a_revoked_key_is_good_for_nothing_and_stays_in_the_list(keys: KeyStore) -> None:
    info, secret = keys.create("acme")
    revoked = keys.revoke(info.id)
    assert revoked.revoked_at is not None
    assert keys.find(secret) is None
    assert keys.revoke(info.id) == revoked
    with pytest.raises(StoreError, match=f"key {info.id} is revoked; create another one"):
        keys.rotate(info.id)
    assert keys.list() == (revoked,)


def test_keys_are_listed_by_tenant_in_order(keys: KeyStore, url: str) -> None:
    made = [keys.create(tenant)[0] for tenant in ("b", "a", "b")]
    again = KeyStore(url)
    assert again.list() == tuple(made)
    assert again.list("b") == (made[0], made[2])
    assert again.list("nobody") == ()
    again.close()


def test_an_unknown_key_is_told(keys: KeyStore) -> None:
    for change in (keys.rotate, keys.revoke):
        with pytest.raises(StoreError, match="there is no key 'nope'"):
            change("nope")


@pytest.mark.parametrize("tenant", ["a", "0", "acme-2", "x" * 32])
def test_names_of_tenants(tenant: str) -> None:
    assert check_tenant(tenant) == tenant


@pytest.mark.parametrize("tenant", ["", "A", "-a", "a/b", "a b", "a_b", "é", "x" * 33, "a\n", "a."])
def test_names_of_no_tenants(keys: KeyStore, tenant: str) -> None:
    with pytest.raises(DataError, match="cannot name a tenant"):
        keys.create(tenant)
    assert keys.list() == ()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"name": "x" * 201}, "a key's name"),
        ({"name": "a\x1b[2J"}, "a key's name"),
        ({"rate_per_minute": 0}, "a key's rate"),
        ({"rate_per_minute": 10**10}, "a key's rate"),
    ],
)
def test_a_key_that_cannot_be_kept_is_refused(
    keys: KeyStore, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(DataError, match=told):
        keys.create("acme", **changes)


def test_keys_share_the_catalogues_database(keys: KeyStore, url: str) -> None:
    keys.create("acme")
    catalogue = Catalogue(url)
    assert catalogue.banks() == []
    catalogue.close()
