"""Questions to a memory: search, and answer as a whole or as it is written."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from fastapi import APIRouter, Depends, Request, Response

from serve import examples
from serve.bodies import read_body
from serve.errors import problem_of
from serve.here import CallerDep, HereDep, MemoryDep, TimedRoute, place
from serve.openapi import FAILURES, body, stream_response
from serve.problems import failed
from serve.questions import check_options, to_query
from serve.request_id import REQUEST_ID
from serve.request_schemas import AnswerRequest, SearchRequest
from serve.schemas import AnswerResponse, SearchResponse, Token
from serve.service import Found
from serve.shown import Shown
from serve.streams import EventStream, event
from vmem.errors import ModelError
from vmem.types import Answer

router = APIRouter(prefix="/v1/memories/{memory}", tags=["questions"], route_class=TimedRoute)

FORM_JSON = ("options", "explain", "stream")
Piece = Found | str | Answer


@router.post(
    "/search",
    summary="Search a memory",
    dependencies=[Depends(place("search"))],
    response_model=SearchResponse,
    response_model_exclude_unset=True,
    responses=FAILURES,
    openapi_extra=body(SearchRequest, examples.SEARCH, form=examples.QUESTION_FORM),
)
async def search(
    request: Request, here: HereDep, caller: CallerDep, memory_id: MemoryDep
) -> SearchResponse:
    """The rounds that a question is about, and the context that a model would be given.

    With `explain` also what each signal searched with, its ranking, and the fused list. Where the
    language model that writes anchors is down, the search goes on without and says so in `notes`.
    A form has the fields `query`, `options` (JSON), `explain` and the file part `image`.
    """
    limits = here.settings.limits
    async with read_body(request, SearchRequest, limits, json_fields=FORM_JSON) as (asked, files):
        options = check_options(asked.options, limits)
        query = await to_query(asked.query, asked.image, here.media(memory_id, files), limits)
    found = await here.service.search(memory_id, query, options)
    request.state.case = found.retrieval.route.case.value
    return here.shown(caller, memory_id).search(found, explain=asked.explain)


@router.post(
    "/answer",
    summary="Answer from a memory",
    dependencies=[Depends(place("answer"))],
    response_model=AnswerResponse,
    response_model_exclude_unset=True,
    responses={**stream_response(examples.STREAM), **FAILURES},
    openapi_extra=body(AnswerRequest, examples.ANSWER, form=examples.QUESTION_FORM),
)
async def answer(
    request: Request, here: HereDep, caller: CallerDep, memory_id: MemoryDep
) -> Response | AnswerResponse:
    """An answer with the rounds that it rests on.

    With `stream` as server-sent events: `found` (what a search gives), `token` for each piece,
    and `done`; what fails after the first event ends the stream with an `error` event.
    """
    limits = here.settings.limits
    async with read_body(request, AnswerRequest, limits, json_fields=FORM_JSON) as (asked, files):
        options = check_options(asked.options, limits)
        query = await to_query(asked.query, asked.image, here.media(memory_id, files), limits)
    pieces = here.service.answer(memory_id, query, options)
    shown = here.shown(caller, memory_id)
    if not asked.stream:
        found, said = await whole_answer(pieces, request)
        return shown.answer(found, said, explain=asked.explain)
    first = await first_piece(pieces, request)
    events = _events(first, pieces, shown, explain=asked.explain)
    return EventStream(told_to_the_end(events, request, "error"))


async def whole_answer(
    pieces: AsyncGenerator[Piece, None], request: Request
) -> tuple[Found, Answer]:
    """What was found and the answer, once all of it is there.

    Raises:
        ModelError: The answer does not come to its end.
    """
    found: Found | None = None
    async with aclosing(pieces):
        async for piece in pieces:
            if isinstance(piece, Found):
                found = noted(piece, request)
            elif isinstance(piece, Answer) and found:
                return found, piece
    raise ModelError("the answer did not come to its end")


async def first_piece(pieces: AsyncGenerator[Piece, None], request: Request) -> Found:
    """What was found; the iterator is closed where that fails.

    Raises:
        VmemError: The search failed.
    """
    try:
        first = await anext(pieces)
        if isinstance(first, Found):
            return noted(first, request)
        raise ModelError("the answer began without its search")
    except BaseException:  # also where the task is cancelled: nobody else knows the iterator
        await pieces.aclose()
        raise


def noted(found: Found, request: Request) -> Found:
    """What was found, once its case is noted for the count of requests."""
    request.state.case = found.retrieval.route.case.value
    return found


async def told_to_the_end(
    events: AsyncGenerator[bytes, None], request: Request, name: str | None = None
) -> AsyncGenerator[bytes, None]:
    """Events of a stream; what fails ends it with an event, and is counted by its status.

    Args:
        events: The events.
        request: The request that they answer.
        name: The last event's name, where it fails.
    """
    async with aclosing(events):
        try:
            async for each in events:
                yield each
        # Whatever it is: the status went out long ago, and a reader must hear of it.
        except Exception as error:  # noqa: BLE001
            request.state.failed = problem_of(error).status
            yield event(failed(error, request.state.tenant, REQUEST_ID.get()), name)


async def _events(
    first: Found, pieces: AsyncGenerator[Piece, None], shown: Shown, *, explain: bool
) -> AsyncGenerator[bytes, None]:
    async with aclosing(pieces):
        yield event(_slim(shown.search(first, explain=explain)), "found")
        async for piece in pieces:
            if isinstance(piece, str):
                yield event(Token(text=piece), "token")
            elif isinstance(piece, Answer):
                yield event(shown.done(piece), "done")
                return
    raise ModelError("the answer did not come to its end")


def _slim(response: SearchResponse) -> str:
    return response.model_dump_json(exclude_unset=True)
