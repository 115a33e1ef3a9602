"""For those who run the service: alive, ready, metrics; and the docs page with its files."""

import logging

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse

from serve.here import HereDep, KeyDep, TimedRoute
from serve.schemas import Ready

log = logging.getLogger("vmem.serve")
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

router = APIRouter(tags=["operations"], route_class=TimedRoute)

DOCS = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>vmem: HTTP interface</title>
<link rel="stylesheet" href="/docs/assets/swagger-ui.css">
<link rel="icon" href="data:,">
</head>
<body>
<div id="swagger-ui"></div>
<script src="/docs/assets/swagger-ui-bundle.js"></script>
<script src="/docs/start.js"></script>
</body>
</html>
"""
START = """SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  validatorUrl: null,
  presets: [SwaggerUIBundle.presets.apis, SwaggerUIBundle.SwaggerUIStandalonePreset],
});
"""


@router.get("/livez", summary="Alive", response_model=dict[str, str])
async def livez() -> dict[str, str]:
    """The process answers; also while it finishes its last requests."""
    return {"status": "ok"}


@router.get(
    "/readyz",
    summary="Ready",
    response_model=Ready,
    responses={503: {"model": Ready, "description": "A part does not answer, or it is ending."}},
)
async def readyz(here: HereDep) -> JSONResponse:
    """Encoders, store and backbone answer, and the process is not about to end."""
    readiness = await here.service.readiness()
    parts = {
        name: "ok" if state == "ok" else "unavailable" for name, state in readiness.parts.items()
    }
    for name, state in readiness.parts.items():
        if state != "ok":
            log.warning("%s is not ready: %s", name, state, extra={"event": "not_ready"})
    if here.admission.draining:
        parts["api"] = "draining"
    ready = readiness.ready and not here.admission.draining
    body = Ready(parts=parts)
    return JSONResponse(body.model_dump(), status_code=200 if ready else 503)


async def may_measure(request: Request, here: HereDep, secret: KeyDep) -> None:
    """Ask for a key where the metrics are not open."""
    if not here.settings.http.open_metrics:
        await here.gate.caller(request, secret)


@router.get(
    "/metrics",
    summary="Metrics",
    dependencies=[Depends(may_measure)],
    response_class=Response,
    responses={200: {"content": {METRICS_TYPE: {"example": "# TYPE vmem_requests counter"}}}},
)
async def metrics(here: HereDep) -> Response:
    """What every node of the cluster counts, as Prometheus reads it."""
    return Response(await here.service.metrics(), media_type=METRICS_TYPE)


@router.get("/docs", include_in_schema=False)
async def docs() -> HTMLResponse:
    """The interface, to read and to try."""
    return HTMLResponse(DOCS)


@router.get("/docs/start.js", include_in_schema=False)
async def docs_start() -> Response:
    """The docs page's start; a file, so that the page needs no inline script."""
    return Response(START, media_type="text/javascript")


@router.get("/", include_in_schema=False)
async def root(here: HereDep) -> RedirectResponse:
    """To the page, or to the docs."""
    return RedirectResponse("/ui/" if here.settings.http.ui else "/docs")
