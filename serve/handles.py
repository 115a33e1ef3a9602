"""Models and replicas behind Serve handles: streams that end with their reader, and failures."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any, TypeVar

from ray.exceptions import RayError, RayTaskError
from ray.serve.exceptions import BackPressureError, RayServeException
from ray.serve.handle import DeploymentHandle, DeploymentResponseGenerator

from vmem.errors import ModelError, ModelTimeoutError, ModelUnavailableError, VmemError

T = TypeVar("T")

CHECK_S = 3.0
"""Seconds in which a replica must say that it is well."""
RAY_FAILURES = (TimeoutError, RayError, RayServeException)
"""What a call through a handle raises, its time limit among it."""


async def read(
    replies: DeploymentResponseGenerator[T], deadline: float | None = None
) -> AsyncGenerator[T, None]:
    """What a replica yields; its work ends when nobody reads on.

    Args:
        replies: The call.
        deadline: The event loop's time at which the last item must be there; None sets none.

    Raises:
        TimeoutError, RayError, RayServeException: The call failed, perhaps after some items.
    """
    try:
        while True:
            # Never around a yield: the reader would be what is cancelled.
            async with asyncio.timeout_at(deadline):
                try:
                    item = await anext(replies)
                except StopAsyncIteration:
                    return
            yield item
    finally:
        with suppress(*RAY_FAILURES):  # where the call never began, its failure comes again
            replies.cancel()  # type: ignore[no-untyped-call]


async def check_replica(handle: DeploymentHandle[Any], where: str) -> None:
    """Ask a replica of a model whether it is well.

    Raises:
        ModelUnavailableError: None says so.
    """
    try:
        async with asyncio.timeout(CHECK_S):
            await handle.check_health.remote()
    except RAY_FAILURES as error:
        raise ModelUnavailableError(f"{where} is down: {kind_of(error)}") from error


def model_error(error: Exception, where: str, timeout_s: float) -> VmemError:
    """A model's failed call as one of our errors.

    Args:
        error: One of `RAY_FAILURES`.
        where: The model, as the sentence starts.
        timeout_s: Seconds that it had.
    """
    if isinstance(error, TimeoutError):
        return ModelTimeoutError(
            f"{where} gave no reply within {timeout_s:g} s: raise llm.timeout_s"
        )
    if isinstance(error, BackPressureError):
        return ModelUnavailableError(f"{where} has more requests than it takes")
    if isinstance(error, RayTaskError):
        if isinstance(error.cause, VmemError):
            return error.cause
        # A dead engine's replica is replaced; any other fault is the request's.
        kind = kind_of(error)
        if not kind.startswith("Engine"):
            return ModelError(f"{where} failed: {kind}")
    return ModelUnavailableError(f"{where} is down: {kind_of(error)}")


def kind_of(error: Exception) -> str:
    """The class of an error, or of the one that a replica raised."""
    cause = error.cause if isinstance(error, RayTaskError) else error
    return type(cause).__name__
