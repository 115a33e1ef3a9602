"""`vmem keys`: who may call the serving application."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from vmem.bank import database_url
from vmem.cli_memory import AsJson, Home, SettingsName
from vmem.config import load_settings, replace
from vmem.show import console, print_json, print_line
from vmem.stores.keys import KeyInfo, KeyStore

keys_app = typer.Typer(help="API keys of the serving application.", no_args_is_help=True)

KeyId = Annotated[str, typer.Argument(metavar="KEY", help="The key's id, as `list` shows it.")]
Tenant = Annotated[str, typer.Argument(metavar="TENANT", help="Whose memories the key opens.")]


@keys_app.command("create")
def create_key(
    tenant: Tenant,
    name: Annotated[str, typer.Option("--name", help="What the key is for.")] = "",
    rate: Annotated[
        int | None,
        typer.Option("--rate", help="Requests a minute; else the application's own limit."),
    ] = None,
    settings: SettingsName = "embedded",
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Make a key and print its secret, this once."""
    with _keys(settings, home) as keys:
        info, secret = keys.create(tenant, name, rate)
    _print_secret(info, secret, as_json)


@keys_app.command("list")
def list_keys(
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only this tenant's.")] = None,
    settings: SettingsName = "embedded",
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """List keys, revoked ones too; no secret can be shown again."""
    with _keys(settings, home) as keys:
        infos = keys.list(tenant)
    if as_json:
        print_json([_values(info) for info in infos])
        return
    table = Table("key", "tenant", "name", "per minute", "created", "rotated", "revoked")
    table.columns[0].no_wrap = True
    table.columns[0].min_width = 16
    for info in infos:
        rate = str(info.rate_per_minute or "")
        moments = (info.created_at, info.rotated_at, info.revoked_at)
        table.add_row(*map(Text, (info.id, info.tenant, info.name, rate, *map(_day, moments))))
    console.print(table)


@keys_app.command("rotate")
def rotate_key(
    key: KeyId, settings: SettingsName = "embedded", home: Home = None, as_json: AsJson = False
) -> None:
    """Give a key another secret and print it, this once; the old one stops at once."""
    with _keys(settings, home) as keys:
        info, secret = keys.rotate(key)
    _print_secret(info, secret, as_json)


@keys_app.command("revoke")
def revoke_key(
    key: KeyId, settings: SettingsName = "embedded", home: Home = None, as_json: AsJson = False
) -> None:
    """Make a key good for nothing, at once and for good."""
    with _keys(settings, home) as keys:
        info = keys.revoke(key)
    if as_json:
        print_json(_values(info))
    else:
        print_line(f"Key {info.id} of tenant {info.tenant} is revoked.")


@contextmanager
def _keys(settings: str, home: Home) -> Iterator[KeyStore]:
    chosen = load_settings(settings)
    keys = KeyStore(database_url(replace(chosen, store={"home": home}) if home else chosen))
    try:
        yield keys
    finally:
        keys.close()


def _print_secret(info: KeyInfo, secret: str, as_json: bool) -> None:
    if as_json:
        print_json({**_values(info), "secret": secret})
        return
    print_line(f"Key {info.id} of tenant {info.tenant}; its secret is not shown again:")
    print_line(secret)


def _values(info: KeyInfo) -> dict[str, str | int | None]:
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in asdict(info).items()
    }


def _day(moment: datetime | None) -> str:
    return f"{moment:%Y-%m-%d %H:%M}" if moment else ""
