"""Errors as a caller sees them: one shape, a fixed word, one sentence, nothing of the inside."""

import logging
from collections.abc import Mapping
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from serve.errors import (
    UNEXPECTED,
    AccessError,
    DrainingError,
    LimitError,
    OverloadedError,
    Problem,
    RateError,
    problem_of,
)
from serve.request_id import REQUEST_ID
from serve.schemas import ErrorBody, Failure
from vmem.errors import VmemError

log = logging.getLogger("vmem.serve")

TYPES: Mapping[int, str] = {
    401: "authentication_error",
    404: "not_found_error",
    409: "conflict_error",
    429: "rate_limit_error",
}
"""OpenAI's word for the kind of an error, by status; other 4xx are `invalid_request_error`."""

RETRY_S = 1
"""Seconds that a caller is asked to wait where nothing says how long it takes."""


def problem_response(
    problem: Problem, sentence: str, request_id: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """A problem as a response.

    Args:
        problem: The status and the word.
        sentence: What is said where the problem has no sentence of its own.
        request_id: The request's id.
        headers: Further headers.
    """
    body = problem_body(problem, sentence, request_id)
    return JSONResponse(body.model_dump(), status_code=problem.status, headers=dict(headers or {}))


def problem_body(problem: Problem, sentence: str, request_id: str) -> Failure:
    """A problem as the body of a response or of a stream's event."""
    fallback = "server_error" if problem.status >= 500 else "invalid_request_error"
    return Failure(
        error=ErrorBody(
            code=problem.code,
            message=problem.sentence or sentence,
            type=TYPES.get(problem.status, fallback),
            request_id=request_id,
        )
    )


def told(error: VmemError, tenant: str, request_id: str) -> Failure:
    """One of our errors as its body; the log keeps what a caller is not told."""
    problem = problem_of(error)
    if problem.status >= 500:
        log.warning("%s: %s", type(error).__name__, error, extra={"event": problem.code})
    return problem_body(problem, own_sentence(str(error), tenant), request_id)


def failed(error: Exception, tenant: str, request_id: str) -> Failure:
    """Any error as the last event of a stream: its status went out long ago."""
    if isinstance(error, VmemError):
        return told(error, tenant, request_id)
    log.error("a stream failed", exc_info=error, extra={"event": "failed"})
    return problem_body(UNEXPECTED, "", request_id)


def own_sentence(sentence: str, tenant: str) -> str:
    """A sentence with memories named as their owner names them, without the tenant."""
    return sentence.replace(f"{tenant}/", "") if tenant else sentence


def first_complaint(error: ValidationError | RequestValidationError, prefix: str = "") -> str:
    """What is wrong, in one sentence that names the field and repeats nothing of the input."""
    # Where a value may be of two forms each complains; the one that got furthest knows why.
    first = max(error.errors(), key=lambda one: len(one["loc"]))
    where = [str(part) for part in first["loc"] if _is_field(part)]
    if isinstance(error, RequestValidationError):
        where = where[1:]
    field = ".".join([part for part in (prefix, *where) if part])[:200]
    match first["type"]:
        case "json_invalid":
            return f"{prefix or 'The body'} is not valid JSON."
        case "missing":
            return f"{field} is missing."
        case "extra_forbidden":
            return f"{field} is no field of this request."
        case "value_error":
            return f"{field or 'The body'}: {first['ctx']['error']}."
        case _:
            return f"{field or 'The body'}: {first['msg'].rstrip('.')}."


def add_problems(app: FastAPI, retry_after_s: int) -> None:
    """Let every error of the app end as a problem.

    Args:
        app: The app.
        retry_after_s: Seconds that a caller who was refused for load is asked to wait.
    """

    async def ours(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, VmemError)
        tenant, request_id = _of(request)
        body = told(error, tenant, request_id)
        status = problem_of(error).status
        headers = _headers(error, status, retry_after_s)
        _count(request, error)
        return JSONResponse(body.model_dump(), status_code=status, headers=headers)

    async def invalid(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        problem = Problem(status=422, code="invalid_request")
        return problem_response(problem, first_complaint(error), _of(request)[1])

    async def framework(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        status = HTTPStatus(error.status_code)
        problem = Problem(status=status, code=status.name.lower())
        return problem_response(problem, _sentence(status), _of(request)[1], error.headers)

    app.add_exception_handler(VmemError, ours)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, framework)


def _of(request: Request) -> tuple[str, str]:
    return getattr(request.state, "tenant", ""), REQUEST_ID.get()


def _headers(error: VmemError, status: int, retry_after_s: int) -> dict[str, str]:
    if isinstance(error, AccessError):
        return {"www-authenticate": 'Bearer realm="vmem"'}
    headers = {}
    if status in {429, 503}:
        wait_s = error.retry_after_s if isinstance(error, RateError) else retry_after_s
        headers["retry-after"] = str(wait_s)
    if isinstance(error, DrainingError | LimitError) and not isinstance(error, RateError):
        headers["connection"] = "close"  # the rest of the body is not read
    return headers


def _count(request: Request, error: VmemError) -> None:
    reasons: tuple[tuple[type[VmemError], str], ...] = (
        (RateError, "rate"),
        (OverloadedError, "overloaded"),
        (DrainingError, "draining"),
        (LimitError, "too_large"),
        (AccessError, "no_access"),
    )
    reason = next((word for kind, word in reasons if isinstance(error, kind)), None)
    if reason:
        request.app.state.here.metrics.rejected(reason)


def _sentence(status: HTTPStatus) -> str:
    match status:
        case HTTPStatus.NOT_FOUND:
            return "There is nothing at this path."
        case HTTPStatus.METHOD_NOT_ALLOWED:
            return "This path does not take this method."
        case HTTPStatus.BAD_REQUEST:
            return "The body is not what its content type says."
        case _:
            return f"{status.phrase}."


def _is_field(part: object) -> bool:
    # pydantic also names the form of a union that it tried: a class or a tagged validator
    return isinstance(part, int) or (isinstance(part, str) and part.islower() and "[" not in part)
