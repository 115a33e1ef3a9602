"""Models and replicas behind Serve handles: streams that end with their reader, and failures."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from grpc.aio import AioRpcError
from ray.exceptions import RayError, RayTaskError
from ray.serve.exceptions import BackPressureError, RayServeException
from ray.serve.handle import DeploymentHandle, DeploymentResponseGenerator

from vmem.errors import ModelError, ModelTimeoutError, ModelUnavailableError, VmemError

T = TypeVar("T")

CHECK_S = 3.0
"""Seconds in which a replica must say that it is well."""
RAY_FAILURES = (TimeoutError, RayError, RayServeException, AioRpcError)
"""What a call through a handle raises, its time limit among it, besides what the replica raised."""


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


@contextmanager
def model_failures(where: str, timeout_s: float) -> Iterator[None]:
    """Tells of a model's failed call as one of our errors.

    Args:
        where: The model, as the sentence starts.
        timeout_s: Seconds that it has.

    Raises:
        VmemError: The call failed.
    """
    try:
        yield
    except VmemError:
        raise
    except Exception as error:  # whatever a replica raised comes as it is
        raise _model_error(error, where, timeout_s) from error


def _model_error(error: Exception, where: str, timeout_s: float) -> VmemError:
    if isinstance(error, TimeoutError):
        return ModelTimeoutError(
            f"{where} gave no reply within {timeout_s:g} s: raise llm.timeout_s"
        )
    if isinstance(error, BackPressureError):
        return ModelUnavailableError(f"{where} has more requests than it takes")
    if isinstance(error, RayTaskError) and isinstance(error.cause, VmemError):
        return error.cause
    kind = kind_of(error)
    raised_there = isinstance(error, RayTaskError) or not isinstance(error, RAY_FAILURES)
    # A dead engine's replica is replaced; any other fault is the request's.
    if raised_there and not kind.startswith("Engine"):
        return ModelError(f"{where} failed: {kind}")
    return ModelUnavailableError(f"{where} is down: {kind}")


def kind_of(error: Exception) -> str:
    """The class of an error, or of the one that a replica raised."""
    cause = error.cause if isinstance(error, RayTaskError) else error
    return type(cause).__name__
