"""What a failed call to an OpenAI-compatible server means: too long, passing or final."""

import json
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from openai import APIConnectionError, APIError, APIStatusError, APITimeoutError
from tenacity import RetryCallState, wait_exponential, wait_random

from vmem.errors import (
    ModelError,
    ModelFormatError,
    ModelTimeoutError,
    ModelUnavailableError,
    ModelUnusableError,
)

LONGEST_WAIT_S = 120.0
"""A server that asks for a longer pause with Retry-After is not waited for."""

Failure = APIError | TimeoutError | json.JSONDecodeError | UnicodeDecodeError
"""What a call raises."""

_BACKOFF = wait_exponential(multiplier=0.5, max=30.0) + wait_random(0.0, 1.0)
_OVERFLOW = (
    "context_length_exceeded",  # OpenAI
    "exceed_context_size",  # llama.cpp
    "maximum context length",  # vLLM, OpenAI
    "maximum model length",  # vLLM's input processor
    "model's context length",  # SGLang
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentences:
    """One sentence for each way in which calls of one model fail.

    Attributes:
        where: The model and its server, as every sentence starts.
        timeout_s: Seconds that it had.
        key: The key, which no sentence repeats; empty where there is none.
    """

    where: str
    timeout_s: float
    key: str

    def of(self, failure: Failure, role: str) -> ModelError:
        """The error of a failed call for a role."""
        if isinstance(failure, APIError) and is_overflow(failure):
            return self.too_long(role)
        if isinstance(failure, APIStatusError):
            return self.refused(failure.status_code, self._why(failure))
        if isinstance(failure, APITimeoutError | TimeoutError):
            words = f"gave no reply within {self.timeout_s:g} s: raise llm.timeout_s"
            return ModelTimeoutError(f"{self.where} {words}")
        if isinstance(failure, APIConnectionError):
            words = "cannot be reached: check that it runs and that llm.base_url is right"
            return ModelUnavailableError(f"{self.where} {words}")
        if isinstance(failure, APIError):
            return ModelUnavailableError(f"{self.where} broke off: {self._why(failure)}")
        return ModelFormatError(f"{self.where} answered with broken JSON")

    def too_long(self, role: str) -> ModelError:
        """The error of a prompt over the model's window."""
        return ModelError(
            f"the prompt of the {role} call is too long for {self.where}:"
            " lower answer.context_tokens"
        )

    def empty(self, role: str, finish: str | None) -> ModelFormatError:
        """The error of a reply that says nothing."""
        return ModelFormatError(
            f"{self.where} gave an empty reply to the {role} call (finish reason {finish})"
        )

    def refused(self, status: int, why: str) -> ModelError:
        """The error of a request that was answered with an HTTP status, and in what words."""
        if _is_passing(status):
            words = f"keeps refusing (HTTP {status}): try later, or ask less at once"
            return ModelUnavailableError(f"{self.where} {words}")
        if status == 404:
            words = "is not known there: check llm.model, llm.base_url"
            return ModelUnusableError(f"{self.where} {words}")
        if status in {401, 403}:
            mend = "set VMEM_LLM__API_KEY, or the variable that a plan names for it"
            words = f"{self.where} rejects the key (HTTP {status}): {mend}"
            # Where a server moderates requests, 403 is about one of them.
            return ModelUnusableError(words) if status == 401 else ModelError(words)
        return ModelError(f"{self.where} rejects the request (HTTP {status}): {why}")

    def _why(self, error: APIError) -> str:
        """The first line of the server's own words; some servers repeat the key in them."""
        words = error.body.get("message") if isinstance(error.body, dict) else None
        said = str(words or error.message)
        return first_line(said.replace(self.key, "***") if self.key else said)


def first_line(words: str) -> str:
    """What fits into a sentence of a server's words."""
    return (words.splitlines() or [""])[0][:200]


def is_overflow(error: APIError) -> bool:
    """Whether the request was too long; servers say it in words of their own."""
    if isinstance(error, APIStatusError) and error.status_code == 413:
        return True
    return says_overflow(f"{error.code} {error.type} {error.message}")


def says_overflow(words: str) -> bool:
    """Whether a server's words are about a request over the model's window."""
    return any(mark in words.lower() for mark in _OVERFLOW)


def may_pass(error: BaseException) -> bool:
    """Whether to try again, and soon enough to wait for it."""
    if isinstance(error, APIStatusError):
        passing = _is_passing(error.status_code) and not is_overflow(error)
        return passing and _retry_after_s(error) <= LONGEST_WAIT_S
    return isinstance(error, APIConnectionError | TimeoutError)


def pause_s(state: RetryCallState) -> float:
    """Seconds before the next try: growing and jittered, and never less than the server asks."""
    error = state.outcome.exception() if state.outcome else None
    asked = _retry_after_s(error) if isinstance(error, APIStatusError) else 0.0
    return max(_BACKOFF(state), asked)


def _is_passing(status: int) -> bool:
    """Whether the same request may succeed later."""
    return status in {408, 429} or status >= 500


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
