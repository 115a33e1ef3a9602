"""A memory as a whole: export to a zip file, import from one."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from fastapi import APIRouter, Depends, Request
from fastapi.responses import StreamingResponse
from starlette.datastructures import UploadFile

from serve import examples
from serve.archive import pack, unpack
from serve.bodies import open_form
from serve.errors import RequestError
from serve.here import CallerDep, HereDep, MemoryDep, TimedRoute, place
from serve.openapi import FAILURES, file_response, form_body
from serve.schemas import AppendResponse
from vmem.types import Round

router = APIRouter(prefix="/v1/memories/{memory}", tags=["archives"], route_class=TimedRoute)

PAGE = 200


@router.get(
    "/export",
    summary="Export a memory",
    dependencies=[Depends(place("search"))],
    response_class=StreamingResponse,
    responses={200: file_response("application/zip"), **FAILURES},
)
async def export(here: HereDep, caller: CallerDep, memory_id: MemoryDep) -> StreamingResponse:
    """All rounds and files as a zip file, which the import and `vmem import` read."""
    await here.service.memory(memory_id)
    name = caller.name(memory_id)

    async def page(after: int) -> tuple[Round, ...]:
        return await here.service.rounds(memory_id, after, PAGE)

    async def file(digest: str) -> bytes:
        return await here.file(memory_id, digest)

    async def pieces() -> AsyncGenerator[bytes, None]:
        async with aclosing(pack(name, page, file)) as packed:
            async for piece in packed:
                yield piece

    headers = {"content-disposition": f'attachment; filename="{name}.zip"'}
    return StreamingResponse(pieces(), media_type="application/zip", headers=headers)


@router.post(
    "/import",
    summary="Import a memory",
    dependencies=[Depends(place("append"))],
    response_model=AppendResponse,
    responses=FAILURES,
    openapi_extra=form_body(examples.ARCHIVE_FORM),
)
async def import_(
    request: Request, here: HereDep, caller: CallerDep, memory: str
) -> AppendResponse:
    """Append the rounds of an export (the form's file part `archive`), all or none.

    Rounds that the memory holds already are no change. Nothing in the archive may name a place
    outside of it.
    """
    memory_id = caller.new_memory_id(memory)
    limits = here.settings.limits
    async with open_form(request, limits) as form:
        archive = form.get("archive")
        if not isinstance(archive, UploadFile):
            raise RequestError("The form has no file part named archive.")
        rounds = await unpack(archive.file, limits.body_bytes)
    done = await here.service.append(memory_id, rounds)
    return AppendResponse.of(done)
