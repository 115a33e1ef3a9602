"""Finding and loading the weights of encoders: packaged ones, folders, and those of a hub."""

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from transformers.utils import logging as transformers_logging

from vmem.config import EncoderSettings
from vmem.errors import EncoderError


def packaged_folder(module: str, extra: str) -> Path:
    """The folder of an installed package that carries weights; the package is not imported.

    Args:
        module: The package's importable name.
        extra: The extra of vmem that installs it.

    Raises:
        EncoderError: It is not installed.
    """
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise EncoderError(f"the package {module} is not installed: pip install 'vmem[{extra}]'")
    return Path(spec.origin).parent


def torch_device(settings: EncoderSettings) -> torch.device:
    """The device asked for, known to work; torch's CPU threads are set as a side effect.

    Raises:
        EncoderError: torch has no such device here.
    """
    if settings.threads > 0:
        torch.set_num_threads(settings.threads)
    try:
        device = torch.device(settings.device)
        torch.empty(1, device=device)
    # torch says AssertionError where it was built without the device.
    except (RuntimeError, AssertionError) as error:
        reason = _first_line(error)
        raise EncoderError(
            f"the encoder's device {settings.device!r} cannot be used here ({reason}): set cpu, "
            "or a device that this torch has"
        ) from error
    return device


@contextmanager
def loading(model: str) -> Iterator[None]:
    """Load weights without progress bars, and turn what a hub or a folder lacks into one sentence.

    Args:
        model: The hub name or folder, as the message names it.

    Raises:
        EncoderError: The weights are not there, or do not fit the model's description.
    """
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:
        raise EncoderError(
            f"the encoder's weights {model!r} cannot be loaded ({_first_line(error)}): fetch them "
            "once where the hub can be reached and share its cache (HF_HOME), or set `model` to a "
            "folder that holds them"
        ) from error
    finally:
        if shown:
            transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
