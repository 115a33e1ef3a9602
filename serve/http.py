"""The HTTP application over a `Service`: middleware, routes, errors, docs and the page."""

import logging
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware
from fastapi.staticfiles import StaticFiles

from serve.admission import Admission
from serve.at_proxy import Carried
from serve.auth import Gate, Keys
from serve.here import Here
from serve.limits import Limited, Rates
from serve.observe import ApiMetrics, NoMetrics, Observed
from serve.openapi import describe
from serve.problems import add_problems
from serve.request_id import WithRequestId
from serve.routes import archives, memories, openai, operations, questions, rounds
from serve.service import Service
from serve.settings import ServeSettings

VERSION = "1"
UI = Path(__file__).parent / "ui"
DESCRIPTION = """Long-term memory for assistants whose users mix text and pictures.

Keys: `Authorization: Bearer KEY` or `x-api-key: KEY`; a service that is open on loopback asks for
none. Every response has `x-request-id`, every error
`{"error": {"code", "message", "type", "param", "request_id"}}`.
"""


def make_app(
    service: Service,
    keys: Keys,
    settings: ServeSettings,
    metrics: ApiMetrics | None = None,
    *,
    echo_request_id: bool = True,
) -> FastAPI:
    """The application.

    `app.state.admission` drains it; `app.state.here` holds all parts.

    Args:
        service: The memories.
        keys: Where API keys are looked up.
        settings: The application's settings.
        metrics: Where requests are counted; None counts nothing.
        echo_request_id: Put `x-request-id` on responses; Serve's proxy does that by itself.

    Raises:
        ConfigError: The storage of rates cannot be used.
    """
    counted = metrics or NoMetrics()
    app = FastAPI(
        title="vmem", version=VERSION, docs_url=None, redoc_url=None, openapi_url="/openapi.json"
    )
    app.state.admission = Admission(settings.admission, counted)
    app.state.here = Here(
        service=service,
        settings=settings,
        gate=Gate(keys, settings.http),
        rates=Rates(settings.limits.rate_storage),
        admission=app.state.admission,
        metrics=counted,
        model=_model_name(settings),
    )
    add_problems(app, settings.admission.retry_after_s)
    _add_middleware(app, settings, counted, echo_request_id=echo_request_id)
    for part in (memories, rounds, questions, archives, openai, operations):
        app.include_router(part.router)
    app.mount("/docs/assets", StaticFiles(packages=[("fastapi_offline", "static")]))
    if settings.http.ui:
        app.mount("/ui", StaticFiles(directory=UI, html=True, check_dir=False))

    def openapi() -> dict[str, Any]:
        return describe(app, DESCRIPTION)

    app.openapi = openapi  # type: ignore[method-assign]
    return app


def _add_middleware(
    app: FastAPI, settings: ServeSettings, metrics: ApiMetrics, *, echo_request_id: bool
) -> None:
    """The last one added is the outermost."""
    logger = logging.getLogger("vmem.serve")
    if not any(isinstance(one, WithRequestId) for one in logger.filters):
        logger.addFilter(WithRequestId())
    app.add_middleware(Limited, limits=settings.limits, metrics=metrics)
    app.add_middleware(Carried)
    if settings.http.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.http.cors_origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["authorization", "content-type", "x-api-key", "x-vmem-memory"],
            expose_headers=["x-request-id", "retry-after"],
        )
    app.add_middleware(Observed, metrics=metrics, echo_request_id=echo_request_id)


def _model_name(settings: ServeSettings) -> str:
    """The backbone's name, as answers give it."""
    if settings.backbone.kind == "none":
        return "none"
    llm = settings.memory_settings().llm
    return llm.model or llm.provider
