"""Errors of the service, and what a caller is told of each: a status and a fixed sentence.

Only sentences about what the caller gave are passed on; those about servers, paths and models
stay in the log.
"""

from dataclasses import dataclass

from vmem.errors import (
    AudioError,
    ConfigError,
    DataError,
    EncoderError,
    EncoderMismatchError,
    ImageError,
    InputError,
    ModelError,
    ModelTimeoutError,
    ModelUnavailableError,
    QueryError,
    RoundConflictError,
    StoreBusyError,
    StoreError,
    UnknownMemoryError,
    UnknownRoundError,
    VmemError,
)


class UnavailableError(VmemError):
    """No replica answers now; the same call may succeed later."""


class OverloadedError(VmemError):
    """More requests are under way than the application takes on."""


class AccessError(VmemError):
    """There is no key, or it opens nothing."""


class OriginError(AccessError):
    """A page of another site calls a service that asks for no key."""


class LimitError(VmemError):
    """The request is larger, or its key used more often, than is allowed."""


class HeadersError(LimitError):
    """The request's headers are longer than is allowed."""


class RateError(LimitError):
    """A key, or a caller without one, asks more often than is allowed.

    Attributes:
        retry_after_s: Seconds until it may ask again; set after construction.
    """

    retry_after_s: int = 1


class DrainingError(UnavailableError):
    """This replica is about to end and takes on nothing more."""


class TooSlowError(VmemError):
    """A request took longer than is allowed."""


class RequestError(InputError):
    """A request is not of the form asked for."""


class MediaTypeError(RequestError):
    """A request's body has a content type that the route does not take."""


class UnknownFileError(VmemError):
    """No round of the memory holds a picture or voice message of this digest."""


class UnknownModelError(VmemError):
    """The OpenAI routes know no model of this name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What a caller is told.

    Attributes:
        status: The HTTP status.
        code: A word that a program may rely on.
        sentence: What is said; None passes on the error's own sentence.
    """

    status: int
    code: str
    sentence: str | None = None


PROBLEMS: dict[type[VmemError], Problem] = {
    AccessError: Problem(status=401, code="no_access"),
    OriginError: Problem(status=403, code="foreign_origin"),
    LimitError: Problem(status=413, code="too_large"),
    HeadersError: Problem(status=431, code="headers_too_large"),
    RateError: Problem(status=429, code="rate_limited"),
    DrainingError: Problem(
        status=503, code="draining", sentence="This server is restarting: try again shortly."
    ),
    TooSlowError: Problem(
        status=504, code="timeout", sentence="The service gave no answer in time."
    ),
    RequestError: Problem(status=422, code="invalid_request"),
    MediaTypeError: Problem(status=415, code="unsupported_media_type"),
    UnknownFileError: Problem(
        status=404, code="unknown_file", sentence="There is no such file in this memory."
    ),
    UnknownModelError: Problem(status=404, code="model_not_found"),
    OverloadedError: Problem(
        status=429, code="overloaded", sentence="The service is busy: try again shortly."
    ),
    UnknownMemoryError: Problem(
        status=404, code="unknown_memory", sentence="There is no such memory."
    ),
    UnknownRoundError: Problem(
        status=404, code="unknown_round", sentence="There is no such round in this memory."
    ),
    RoundConflictError: Problem(
        status=409,
        code="round_conflict",
        sentence="A round id is taken by another round: rounds never change, so take a new id.",
    ),
    DataError: Problem(status=422, code="invalid_round"),
    ImageError: Problem(status=422, code="invalid_image"),
    AudioError: Problem(status=422, code="invalid_audio"),
    QueryError: Problem(status=422, code="invalid_query"),
    ModelTimeoutError: Problem(
        status=504, code="model_timeout", sentence="The language model gave no answer in time."
    ),
    ModelUnavailableError: Problem(
        status=503,
        code="model_unavailable",
        sentence="The language model cannot be reached: try again later.",
    ),
    ModelError: Problem(
        status=502, code="model_failed", sentence="The language model gave no usable answer."
    ),
    UnavailableError: Problem(
        status=503, code="unavailable", sentence="The service is recovering: try again shortly."
    ),
    StoreBusyError: Problem(
        status=503, code="store_busy", sentence="The store is busy: try again shortly."
    ),
    EncoderMismatchError: Problem(
        status=500, code="misconfigured", sentence="The service is not set up for this."
    ),
    StoreError: Problem(
        status=503, code="store_unavailable", sentence="The store cannot be reached: try again."
    ),
    EncoderError: Problem(
        status=501, code="not_supported", sentence="This service cannot read voice messages."
    ),
    ConfigError: Problem(
        status=501, code="not_supported", sentence="This service has no language model."
    ),
}
UNEXPECTED = Problem(
    status=500, code="unexpected", sentence="Something failed that should not: it is in our log."
)


def problem_of(error: Exception) -> Problem:
    """The problem of an error's class, or of the nearest class above it."""
    for kind in type(error).__mro__:
        if kind in PROBLEMS:
            return PROBLEMS[kind]
    return UNEXPECTED
