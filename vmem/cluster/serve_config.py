"""A Serve config read as Ray reads it, but for keys that mean nothing: those are refused.

Ray drops an unknown key in silence, so that a misspelt limit is no limit at all.
"""

import difflib
import importlib
from collections.abc import Iterator, Mapping
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from ray.serve.schema import ServeDeploySchema

from serve.settings import ServeSettings, load_serve_settings
from vmem.config import first_fault
from vmem.errors import ConfigError

BUILD = "serve.app:build"


def read_serve_config(text: str, where: str) -> dict[str, ServeSettings]:
    """The settings of each application of ours in a Serve config.

    Args:
        text: The config, as `serveConfigV2` or a file for `serve deploy` holds it.
        where: What to call it in errors.

    Returns:
        By the application's name.

    Raises:
        ConfigError: It is no YAML, a key is unknown, a value does not fit, an application cannot be
            imported, or its args are no settings.
    """
    values = _mapping(text, where)
    for path, key, known in _unknown(values, ServeDeploySchema, ""):
        close = difflib.get_close_matches(key, known, n=1)
        hint = f": did you mean {close[0]}?" if close else f"; known here: {', '.join(known)}"
        raise ConfigError(f"{where}: Serve knows no key {path}{key}{hint}")
    try:
        schema = ServeDeploySchema(**values)
    except ValidationError as error:
        raise ConfigError(f"{where}: {first_fault(error)}") from error
    return {app.name: _settings(app.import_path, app.args, where) for app in schema.applications}


def _mapping(text: str, where: str) -> dict[str, Any]:
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{where} cannot be read as YAML: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{where} must hold a mapping: proxy_location, http_options, ...")
    return values


def _unknown(
    values: Mapping[str, Any], schema: type[BaseModel], path: str
) -> Iterator[tuple[str, str, list[str]]]:
    """Keys that a schema has not: where they stand, they themselves, and what is known there."""
    known = {name: field.alias or name for name, field in schema.model_fields.items()}
    for key, value in values.items():
        if key not in known and key not in known.values():
            yield path, key, sorted(known)
            continue
        inner = _schema_of(schema.model_fields[key].annotation) if key in known else None
        items = value if isinstance(value, list) else [value]
        for number, item in enumerate(items) if inner else ():
            if isinstance(item, Mapping):
                at = f"{path}{key}.{number}." if isinstance(value, list) else f"{path}{key}."
                yield from _unknown(item, inner or schema, at)


def _schema_of(annotation: object) -> type[BaseModel] | None:
    """The model that an annotation holds, alone or in a list or union."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for each in get_args(annotation) if (found := _schema_of(each))), None)


def _settings(import_path: str, args: Mapping[str, Any], where: str) -> ServeSettings:
    module, _, name = import_path.partition(":")
    try:
        if not callable(getattr(importlib.import_module(module), name)):
            raise ConfigError(f"{where}: import_path {import_path} is no function")
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"{where}: import_path {import_path} cannot be imported; ours is {BUILD}"
        ) from error
    given = args["config"] if set(args) == {"config"} else args
    try:
        return load_serve_settings(given)
    except ConfigError as error:
        raise ConfigError(f"{where}, args of {import_path}: {error}") from error
