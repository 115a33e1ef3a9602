"""Reading a request's body: JSON, or a multipart form with the same fields and file parts."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.datastructures import FormData, Headers, UploadFile

from serve.errors import LimitError, MediaTypeError, RequestError
from serve.limits import check_json
from serve.problems import first_complaint
from serve.settings import LimitSettings

M = TypeVar("M", bound=BaseModel)

FORM_FIELDS = 32
FORM_FILES = 1_000
JSON = "application/json"
FORM = "multipart/form-data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """The file parts of a form, by name; none in a JSON request."""

    parts: Mapping[str, UploadFile] = field(default_factory=dict)

    async def read(self, name: str, where: str, max_bytes: int) -> bytes:
        """A part's bytes.

        Raises:
            RequestError: There is no such part.
            LimitError: It is longer than allowed.
        """
        part = self.parts.get(name)
        if part is None:
            raise RequestError(f"{where} names a file part that the form does not have.")
        data = await part.read(max_bytes + 1)
        if len(data) > max_bytes:
            raise LimitError(f"{where} is over {max_bytes // 2**20} MiB.")
        return data


async def read_json(request: Request, model: type[M], limits: LimitSettings) -> M:
    """A JSON body.

    Raises:
        MediaTypeError: The body is something else.
        RequestError: It is not JSON, or not of the form asked for.
        LimitError: It is too long.
    """
    if _content_type(request) != JSON:
        raise MediaTypeError(f"This route takes {JSON}.")
    return parse_json(await request.body(), model, limits)


@asynccontextmanager
async def read_body(
    request: Request, model: type[M], limits: LimitSettings, *, json_fields: Sequence[str] = ()
) -> AsyncIterator[tuple[M, Files]]:
    """A body of either kind, for a with-block in which its file parts can be read.

    A form's file part `image` stands for the field `image`, its other parts for themselves.

    Args:
        request: The request.
        model: What the body is.
        limits: Longest body and deepest nesting.
        json_fields: Fields of a form that hold JSON.

    Raises:
        MediaTypeError, RequestError, LimitError: As `read_json`.
    """
    if _content_type(request) != FORM:
        if _content_type(request) != JSON:
            raise MediaTypeError(f"This route takes {JSON} or {FORM}.")
        yield parse_json(await request.body(), model, limits), Files()
        return
    async with open_form(request, limits) as form:
        fields, files = _split(form)
        values: dict[str, Any] = {}
        for name, text in fields.items():
            values[name] = _json_value(name, text, limits) if name in json_fields else text
        if "image" in files and "image" in model.model_fields:
            values["image"] = {"file": "image", "caption": values.pop("caption", "")}
        yield _validated(model, _unwrapped(values)), Files(parts=files)


@asynccontextmanager
async def open_form(request: Request, limits: LimitSettings) -> AsyncIterator[FormData]:
    """A multipart form, whose files are closed after the with-block.

    Raises:
        MediaTypeError: The body is no such form.
        LimitError: It is too long.
    """
    content_type = request.headers.get("content-type", "").lower()
    if _content_type(request) != FORM:
        raise MediaTypeError(f"This route takes {FORM}.")
    # Some of Python's codecs take time that grows with the square of the text.
    if "charset" in content_type and "utf-8" not in content_type:
        raise MediaTypeError("A form is read as UTF-8.")
    async with request.form(
        max_files=FORM_FILES, max_fields=FORM_FIELDS, max_part_size=limits.body_bytes
    ) as form:
        yield form


def parse_json(data: bytes, model: type[M], limits: LimitSettings, where: str = "") -> M:
    """JSON as a model.

    Raises:
        RequestError: It is not JSON, nested too deeply, or not of the form asked for.
    """
    check_json(data, limits.json_depth, where or "The body")
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        raise RequestError(first_complaint(error, where)) from error


def _json_value(name: str, text: str, limits: LimitSettings) -> object:
    check_json(text.encode(), limits.json_depth, name)
    try:
        return json.loads(text)
    except ValueError as error:
        raise RequestError(f"{name} is not valid JSON.") from error


def _validated(model: type[M], values: dict[str, Any]) -> M:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise RequestError(first_complaint(error)) from error


def _unwrapped(values: dict[str, Any]) -> dict[str, Any]:
    """The field `rounds` of a form may hold the list, or the whole JSON body."""
    rounds = values.get("rounds")
    return rounds if isinstance(rounds, dict) and len(values) == 1 else values


def _split(form: FormData) -> tuple[dict[str, str], dict[str, UploadFile]]:
    fields: dict[str, str] = {}
    files: dict[str, UploadFile] = {}
    for name, value in form.multi_items():
        if name in fields or name in files:
            raise RequestError(f"The form has two parts named {name[:80]!r}.")
        if isinstance(value, str):
            fields[name] = value
        else:
            files[name] = value
    return fields, files


def _content_type(request: Request) -> str:
    return Headers(scope=request.scope).get("content-type", "").partition(";")[0].strip().lower()
