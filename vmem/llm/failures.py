"""What a failed call to an OpenAI-compatible server means: too long, passing or final."""

import time
from email.utils import parsedate_to_datetime

from openai import APIConnectionError, APIStatusError
from tenacity import RetryCallState, wait_exponential, wait_random

LONGEST_WAIT_S = 120.0
"""A server that asks for a longer pause with Retry-After is not waited for."""

_BACKOFF = wait_exponential(multiplier=0.5, max=30.0) + wait_random(0.0, 1.0)
_OVERFLOW = (
    "context_length_exceeded",  # OpenAI
    "exceed_context_size",  # llama.cpp
    "maximum context length",  # vLLM, OpenAI
    "maximum model length",  # vLLM's input processor
    "model's context length",  # SGLang
)


def is_overflow(error: APIStatusError) -> bool:
    """Whether the request was too long; servers say it in words of their own."""
    words = f"{error.code} {error.type} {error.message}".lower()
    return error.status_code == 413 or any(mark in words for mark in _OVERFLOW)


def is_passing(status: int) -> bool:
    """Whether the same request may succeed later."""
    return status in {408, 429} or status >= 500


def may_pass(error: BaseException) -> bool:
    """Whether to try again, and soon enough to wait for it."""
    if isinstance(error, APIStatusError):
        passing = is_passing(error.status_code) and not is_overflow(error)
        return passing and _retry_after_s(error) <= LONGEST_WAIT_S
    return isinstance(error, APIConnectionError)


def pause_s(state: RetryCallState) -> float:
    """Seconds before the next try: growing and jittered, and never less than the server asks."""
    error = state.outcome.exception() if state.outcome else None
    asked = _retry_after_s(error) if isinstance(error, APIStatusError) else 0.0
    return max(_BACKOFF(state), asked)


def _retry_after_s(error: APIStatusError) -> float:
    """Seconds that the server asks for, as a number or as a date; 0 where it asks for none."""
    value = error.response.headers.get("retry-after", "")
    try:
        return float(value)
    except ValueError:
        pass
    try:
        return parsedate_to_datetime(value).timestamp() - time.time()
    except ValueError:
        return 0.0
