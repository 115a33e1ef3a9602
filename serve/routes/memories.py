"""Memories: create, list, get, delete."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from serve import examples
from serve.bodies import read_json
from serve.here import CallerDep, HereDep, MemoryDep, TimedRoute, place
from serve.openapi import FAILURES, body
from serve.request_schemas import NAME, CreateRequest
from serve.schemas import Memory, MemoryPage
from serve.shown import show_memory
from vmem.errors import UnknownMemoryError

router = APIRouter(prefix="/v1/memories", tags=["memories"], route_class=TimedRoute)

Limit = Annotated[int, Query(ge=1, le=10_000, description="Most items of the page.")]


@router.post(
    "",
    summary="Make an empty memory",
    dependencies=[Depends(place("append"))],
    status_code=201,
    response_model=Memory,
    responses={200: {"model": Memory, "description": "It was there already."}, **FAILURES},
    openapi_extra=body(CreateRequest, examples.CREATE),
)
async def create(request: Request, response: Response, here: HereDep, caller: CallerDep) -> Memory:
    """Make an empty memory; one that is there already is left as it is (200)."""
    asked = await read_json(request, CreateRequest, here.settings.limits)
    memory_id = caller.new_memory_id(asked.id)
    try:
        info = await here.service.memory(memory_id)
        response.status_code = 200
    except UnknownMemoryError:
        info = await here.service.create(memory_id)
    return show_memory(info, caller)


@router.get(
    "",
    summary="List memories",
    dependencies=[Depends(place("read"))],
    response_model=MemoryPage,
    responses=FAILURES,
)
async def list_memories(
    here: HereDep,
    caller: CallerDep,
    after: Annotated[str, Query(pattern=f"^$|{NAME}", description="`next` of the last page.")] = "",
    limit: Limit = 100,
) -> MemoryPage:
    """The caller's memories by id, a page at a time (at most `limits.page_items` of them)."""
    limit = min(limit, here.settings.limits.page_items)
    start = caller.memory_id(after) if after else ""
    infos = await here.service.memories(caller.prefix, start, limit + 1)
    own = [info for info in infos if caller.owns(info.id)]
    page = [show_memory(info, caller) for info in own[:limit]]
    return MemoryPage(memories=page, next=page[-1].id if len(own) > limit else None)


@router.get(
    "/{memory}",
    summary="One memory",
    dependencies=[Depends(place("read"))],
    response_model=Memory,
    responses=FAILURES,
)
async def get(here: HereDep, caller: CallerDep, memory_id: MemoryDep) -> Memory:
    """How many rounds and pictures it holds, and its version."""
    return show_memory(await here.service.memory(memory_id), caller)


@router.delete(
    "/{memory}",
    summary="Erase a memory",
    dependencies=[Depends(place("append"))],
    status_code=204,
    responses=FAILURES,
)
async def delete(here: HereDep, memory_id: MemoryDep) -> None:
    """Erase a memory: its texts, vectors and index, and the files that no other memory holds."""
    await here.service.delete(memory_id)
