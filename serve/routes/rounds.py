"""Rounds of a memory: append, list, get, erase; and their pictures and voice messages."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from serve import examples
from serve.bodies import read_body
from serve.errors import UnknownFileError
from serve.here import CallerDep, HereDep, MemoryDep, TimedRoute, place
from serve.media import VOICES, picture_type
from serve.openapi import FAILURES, body, file_response
from serve.request_schemas import AppendRequest
from serve.rounds_in import append as append_rounds
from serve.rounds_in import to_rounds
from serve.routes.memories import Limit
from serve.schemas import AppendResponse, RoundOut, RoundPage, VersionResponse
from vmem.audio import audio_suffix
from vmem.errors import ImageError

router = APIRouter(prefix="/v1/memories/{memory}", route_class=TimedRoute)

LAST = 2**31 - 1
"""Largest position that a database of ours compares with."""
FILE_HEADERS = {
    "cache-control": "private, max-age=31536000, immutable",
    "content-security-policy": "default-src 'none'; sandbox",
}

RoundPath = Annotated[str, Path(min_length=1, max_length=200)]
DigestPath = Annotated[str, Path(pattern="^[0-9a-f]{64}$")]


@router.post(
    "/rounds",
    tags=["rounds"],
    summary="Append rounds",
    dependencies=[Depends(place("append"))],
    response_model=AppendResponse,
    responses=FAILURES,
    openapi_extra=body(AppendRequest, examples.APPEND, form=examples.APPEND_FORM),
)
async def append(request: Request, here: HereDep, caller: CallerDep, memory: str) -> AppendResponse:
    """Add rounds at the end of a memory, all or none; a memory that is missing is made.

    The same round again, by id and content, is no change; another round of its id is a conflict
    (409). When this answers, the rounds are found by the next search. A form has the field
    `rounds` (this JSON) and file parts, which pictures and voice messages name by `file`.
    """
    memory_id = caller.new_memory_id(memory)
    limits = here.settings.limits
    async with read_body(request, AppendRequest, limits, json_fields=["rounds"]) as (asked, files):
        rounds = await to_rounds(asked.rounds, here.media(memory_id, files), limits)
    done = await append_rounds(here.service, memory_id, asked.rounds, rounds)
    return AppendResponse.of(done)


@router.get(
    "/rounds",
    tags=["rounds"],
    summary="List rounds",
    dependencies=[Depends(place("read"))],
    response_model=RoundPage,
    responses=FAILURES,
)
async def list_rounds(
    here: HereDep,
    caller: CallerDep,
    memory_id: MemoryDep,
    after: Annotated[int, Query(ge=-1, le=LAST, description="`next` of the last page.")] = -1,
    limit: Limit = 100,
) -> RoundPage:
    """Rounds by position, a page at a time; erased ones are left out and keep their positions."""
    limit = min(limit, here.settings.limits.page_items)
    rounds = await here.service.rounds(memory_id, after, limit + 1)
    shown = here.shown(caller, memory_id)
    page = [shown.round(round_) for round_ in rounds[:limit]]
    return RoundPage(rounds=page, next=page[-1].position if len(rounds) > limit else None)


@router.get(
    "/rounds/{round_id:path}",
    tags=["rounds"],
    summary="One round",
    dependencies=[Depends(place("read"))],
    response_model=RoundOut,
    responses=FAILURES,
)
async def get_round(
    here: HereDep, caller: CallerDep, memory_id: MemoryDep, round_id: RoundPath
) -> RoundOut:
    """A round with links to its files."""
    round_ = await here.service.round(memory_id, round_id)
    return here.shown(caller, memory_id).round(round_)


@router.delete(
    "/rounds/{round_id:path}",
    tags=["rounds"],
    summary="Erase a round",
    dependencies=[Depends(place("append"))],
    response_model=VersionResponse,
    responses=FAILURES,
)
async def erase_round(here: HereDep, memory_id: MemoryDep, round_id: RoundPath) -> VersionResponse:
    """Erase a round: text, vectors, index, and the files that nothing else holds.

    Its position stays empty and its id stays taken: the rounds beside it keep their positions,
    and a search that shows one of them with its neighbours shows nothing in its place.
    """
    return VersionResponse(version=await here.service.erase_round(memory_id, round_id))


@router.get(
    "/images/{digest}",
    tags=["files"],
    summary="A picture",
    dependencies=[Depends(place("read"))],
    response_class=Response,
    responses={200: file_response("image/*"), **FAILURES},
)
async def image(here: HereDep, memory_id: MemoryDep, digest: DigestPath) -> Response:
    """A picture that a round of the memory holds, with the type that its bytes have."""
    data = await here.file(memory_id, digest)
    try:
        content_type = picture_type(data)
    except ImageError as error:
        raise UnknownFileError("the file is no picture") from error
    return _file(data, content_type, digest)


@router.get(
    "/audio/{digest}",
    tags=["files"],
    summary="A voice message",
    dependencies=[Depends(place("read"))],
    response_class=Response,
    responses={200: file_response("audio/*"), **FAILURES},
)
async def voice(here: HereDep, memory_id: MemoryDep, digest: DigestPath) -> Response:
    """A voice message that a round of the memory holds, with the type that its bytes have."""
    data = await here.file(memory_id, digest)
    suffix = audio_suffix(data)
    if suffix is None:
        raise UnknownFileError("the file is no voice message")
    return _file(data, VOICES[suffix], digest)


def _file(data: bytes, content_type: str, digest: str) -> Response:
    name = f"{digest[:16]}.{content_type.partition('/')[2]}"
    headers = {**FILE_HEADERS, "content-disposition": f'inline; filename="{name}"'}
    return Response(data, media_type=content_type, headers=headers)
