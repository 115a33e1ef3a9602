"""`vmem keys`: what it prints, and that a secret is shown once."""

import json
from pathlib import Path
from typing import Any

from vmem.bank import database_url
from vmem.config import load_settings
from vmem.stores.keys import KeyStore


def test_a_key_is_made_listed_rotated_and_revoked(vmem: Any, fakes: Path) -> None:
    keys = KeyStore(database_url(load_settings(fakes)))
    made = vmem("keys", "create", "acme", "--name", "the app", "--rate", 60, "-s", fakes)
    assert made.returncode == 0
    secret = made.stdout.splitlines()[-1]
    info = keys.find(secret)
    assert info is not None
    assert (info.tenant, info.name, info.rate_per_minute) == ("acme", "the app", 60)
    listed = vmem("keys", "list", "-s", fakes).stdout
    assert info.id in listed
    assert secret[-43:] not in listed
    rotated = vmem("keys", "rotate", info.id, "-s", fakes).stdout.splitlines()[-1]
    assert keys.find(secret) is None
    assert keys.find(rotated) is not None
    revoked = vmem("keys", "revoke", info.id, "-s", fakes)
    assert revoked.stdout == f"Key {info.id} of tenant acme is revoked.\n"
    assert keys.find(rotated) is None
    keys.close()


def test_keys_as_json(vmem: Any, fakes: Path) -> None:
    made = json.loads(vmem("keys", "create", "acme", "-s", fakes, "--json").stdout)
    secret = made.pop("secret")
    assert secret.startswith(f"vmem_{made['id']}_")
    vmem("keys", "create", "other", "-s", fakes)
    assert json.loads(vmem("keys", "list", "--tenant", "acme", "-s", fakes, "--json").stdout) == [
        made
    ]
    rotated = json.loads(vmem("keys", "rotate", made["id"], "-s", fakes, "--json").stdout)
    assert rotated.pop("secret") != secret
    assert rotated == made | {"rotated_at": rotated["rotated_at"]}
    revoked = json.loads(vmem("keys", "revoke", made["id"], "-s", fakes, "--json").stdout)
    assert revoked == rotated | {"revoked_at": revoked["revoked_at"]}
    assert "digest" not in revoked


def test_a_home_of_its_own(vmem: Any, fakes: Path, tmp_path: Path) -> None:
    home = tmp_path / "elsewhere"
    made = vmem("keys", "create", "acme", "-s", fakes, "--home", home, "--json")
    assert made.returncode == 0
    assert json.loads(vmem("keys", "list", "-s", fakes, "--json").stdout) == []
    assert len(json.loads(vmem("keys", "list", "-s", fakes, "--home", home, "--json").stdout)) == 1


def test_what_is_wrong_is_one_sentence(vmem: Any, fakes: Path) -> None:
    for words, told in (
        (("create", "Acme"), "'Acme' cannot name a tenant"),
        (("rotate", "nope"), "there is no key 'nope'"),
        (("revoke", "nope"), "there is no key 'nope'"),
        (("create", "acme", "--rate", "0"), "a key's rate"),
    ):
        ended = vmem("keys", *words, "-s", fakes)
        assert ended.returncode == 1
        assert told in ended.stderr
        assert ended.stderr.count("\n") == 1
        assert ended.stdout == ""
