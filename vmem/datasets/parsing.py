"""JSON of others to checked objects, and what is wrong with it in one sentence."""

import re
from datetime import datetime
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AfterValidator, TypeAdapter, ValidationError

from vmem.errors import DataError

T = TypeVar("T")


def _check_time(text: str) -> str:
    try:
        # It would also read week dates and dates without dashes, which do not sort as texts.
        if re.match(r"\d{4}-\d{2}-\d{2}(T|$)", text):
            datetime.fromisoformat(text)
            return text
    except ValueError:
        pass
    raise ValueError(f"{text!r} is no date like 2023-05-08 or 2023-05-08T13:56")


IsoTime = Annotated[str, AfterValidator(_check_time)]
"""A date, or a date and time, in ISO 8601; kept as the source gave it."""


def read_text(path: Path) -> str:
    """A UTF-8 file, with or without a byte order mark.

    Raises:
        DataError: It is missing, a folder or not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text; save it as UTF-8") from error


def parse_json(adapter: TypeAdapter[T], text: str, where: str) -> T:
    """A JSON text as what the adapter describes.

    Args:
        adapter: The shape asked for.
        text: The JSON.
        where: File and line, for the error.

    Raises:
        DataError: It is not JSON, or of another shape.
    """
    try:
        return adapter.validate_json(text)
    except ValidationError as error:
        raise DataError(f"{where}{_complaint(error)}") from error


def _complaint(error: ValidationError) -> str:
    # Where a value may be of two types, each complains; the one that got furthest knows why.
    first = max(error.errors(), key=lambda one: len(one["loc"]))
    field = ".".join(str(part) for part in first["loc"] if "[" not in str(part))
    at = f": {field}" if field else ""
    match first["type"]:
        case "json_invalid":
            return f" is not JSON ({first['ctx']['error']})"
        case "missing":
            return f"{at} is missing"
        case "extra_forbidden":
            return f"{at} is no field of this format"
        case "value_error":
            return f"{at}: {first['ctx']['error']}"
        case _:
            return f"{at}: {first['msg'][0].lower()}{first['msg'][1:]}"
