"""What the OpenAPI description says beyond what FastAPI reads off the routes.

Bodies are read by `serve.bodies`, before which FastAPI must not read them; so their schemas and
examples are put in here.
"""

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from serve.examples import Examples
from serve.schemas import Failure

Responses = dict[int | str, dict[str, Any]]

REF = "#/components/schemas/{model}"
_BODIES: set[type[BaseModel]] = set()


def _failure(description: str, code: str, message: str) -> dict[str, Any]:
    error = {"code": code, "message": message, "type": "...", "param": None, "request_id": "..."}
    content = {"application/json": {"example": {"error": error}}}
    return {"model": Failure, "description": description, "content": content}


FAILURES: Responses = {
    401: _failure("No key, or one that opens nothing.", "no_access", "This key opens nothing."),
    404: _failure("No such memory, round or file.", "unknown_memory", "There is no such memory."),
    409: _failure(
        "A round id is taken.", "round_conflict", "A round id is taken by another round."
    ),
    413: _failure("Too large.", "too_large", "The body is over 33,554,432 bytes."),
    415: _failure(
        "Another content type.", "unsupported_media_type", "This route takes application/json."
    ),
    422: _failure("Not usable as it is.", "invalid_request", "query is missing."),
    429: _failure(
        "Too much at once, or too often; Retry-After says when to come back.",
        "overloaded",
        "The service is busy: try again shortly.",
    ),
    503: _failure(
        "A part does not answer now.",
        "unavailable",
        "The service is recovering: try again shortly.",
    ),
    504: _failure("Not in time.", "timeout", "The service gave no answer in time."),
}


def body(
    model: type[BaseModel], examples: Examples, form: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """A route's `openapi_extra` for a JSON body, and a form where it takes one too.

    Args:
        model: The JSON body.
        examples: Bodies that work.
        form: The form's fields, each with what it may hold.
    """
    _BODIES.add(model)
    content: dict[str, Any] = {
        "application/json": {
            "schema": {"$ref": REF.format(model=model.__name__)},
            "examples": examples,
        }
    }
    if form:
        content["multipart/form-data"] = _form(form)
    return {"requestBody": {"required": True, "content": content}}


def form_body(form: Mapping[str, str]) -> dict[str, Any]:
    """A route's `openapi_extra` for a form alone."""
    return {"requestBody": {"required": True, "content": {"multipart/form-data": _form(form)}}}


def stream_response(example: str) -> Responses:
    """That a route may also answer as server-sent events."""
    return {200: {"content": {"text/event-stream": {"example": example}}}}


def file_response(content_type: str) -> dict[str, Any]:
    """That a route answers with a file."""
    content = {content_type: {"schema": {"type": "string", "format": "binary"}}}
    return {"description": "The file.", "content": content}


def describe(app: FastAPI, description: str) -> dict[str, Any]:
    """The whole description, with the schemas of the bodies."""
    if app.openapi_schema:
        return app.openapi_schema
    document = get_openapi(
        title=app.title, version=app.version, description=description, routes=app.routes
    )
    models = sorted(_BODIES, key=lambda model: model.__name__)
    _, schemas = models_json_schema([(model, "validation") for model in models], ref_template=REF)
    components = document.setdefault("components", {}).setdefault("schemas", {})
    components.update(schemas["$defs"])
    app.openapi_schema = document
    return document


def _form(form: Mapping[str, str]) -> dict[str, Any]:
    properties = {
        name: {"type": "string", "format": "binary"}
        if example.startswith("(a ")
        else {"type": "string"}
        for name, example in form.items()
    }
    return {"schema": {"type": "object", "properties": properties}, "example": dict(form)}
