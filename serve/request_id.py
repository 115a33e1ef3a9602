"""One request id from the caller through every log line (`x-request-id`)."""

import logging
import re
import uuid
from contextvars import ContextVar

REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
"""The id of the request that the running code works for; empty outside of one."""

_GOOD = re.compile(r"[A-Za-z0-9._-]{1,128}")


def new_request_id(given: str) -> str:
    """The caller's id where it is one, else a new one."""
    return given if _GOOD.fullmatch(given) else uuid.uuid4().hex


class WithRequestId(logging.Filter):
    """Gives every record the id of the request that it belongs to, as `request_id`."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the id; let every record through."""
        record.request_id = REQUEST_ID.get()
        return True
