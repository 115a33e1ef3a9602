"""The nouns of `vmem.types` as the responses show them: bare names, links, no paths."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC
from urllib.parse import quote

from serve.auth import Caller
from serve.schemas import (
    AnchorsOut,
    AnswerResponse,
    BlockOut,
    Citation,
    ContextOut,
    Done,
    FusedItem,
    ImageAnchor,
    LaneItem,
    Memory,
    Picture,
    RoundOut,
    RouteOut,
    SearchResponse,
    TurnOut,
    UsageOut,
)
from serve.service import Found
from vmem.stores.catalogue import MemoryInfo
from vmem.stores.images import stored_digest
from vmem.types import (
    Anchors,
    Answer,
    Case,
    Context,
    Image,
    Modality,
    Retrieval,
    Round,
    Route,
    Signal,
    Turn,
    Usage,
)

_SEEKS_IMAGE = {Case.TEXT_TO_IMAGE, Case.IMAGE_TEXT_TO_IMAGE}


def show_memory(info: MemoryInfo, caller: Caller) -> Memory:
    """A memory under its bare name."""
    return Memory(
        id=caller.name(info.id),
        rounds=info.rounds,
        erased=info.erased,
        images=info.images,
        version=info.version,
        created_at=info.created_at.astimezone(UTC).isoformat(timespec="seconds"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Shows what is in one memory.

    Attributes:
        memory: The memory's bare name.
        public_url: What links start with.
        request_id: The request's id.
        model: The backbone's name.
    """

    memory: str
    public_url: str
    request_id: str
    model: str

    def round(self, round_: Round) -> RoundOut:
        """A round with links to its files."""
        return RoundOut(
            id=round_.id,
            position=round_.position,
            session=round_.session,
            time=round_.time,
            turns=[self._turn(turn) for turn in round_.turns],
        )

    def search(self, found: Found, *, explain: bool) -> SearchResponse:
        """What a search found."""
        retrieval = found.retrieval
        response = SearchResponse(
            request_id=self.request_id,
            memory=self.memory,
            version=found.version,
            route=_route(retrieval.route, retrieval),
            context=_context(retrieval.context, found.rounds),
            citations=self.citations(found),
            notes=list(retrieval.anchors.notes),
            seconds=retrieval.seconds,
        )
        if explain:
            response.anchors = _anchors(retrieval.anchors)
            response.lanes = _lanes(found)
            response.fused = _fused(found)
            response.usage = show_usage(retrieval.anchors.usage)
            response.rounds = [self.round(found.rounds[p]) for p in sorted(found.rounds)]
        return response

    def answer(self, found: Found, answer: Answer, *, explain: bool) -> AnswerResponse:
        """An answer with what it rests on."""
        search = self.search(found, explain=explain)
        return AnswerResponse(
            **{
                **{name: value for name, value in search if name in search.model_fields_set},
                "seconds": answer.seconds,
                "usage": show_usage(answer.usage),
                "answer": answer.text,
                "model": self.model,
                **({"prompt": answer.prompt} if explain else {}),
            }
        )

    def done(self, answer: Answer) -> Done:
        """The last event of a stream."""
        return Done(
            answer=answer.text,
            usage=show_usage(answer.usage),
            model=self.model,
            seconds=answer.seconds,
            request_id=self.request_id,
        )

    def citations(self, found: Found) -> list[Citation]:
        """The rounds found, best first, those that the budget left out among them."""
        context = found.retrieval.context
        scores: dict[int, float] = {}
        for ranked in found.retrieval.ranked:
            scores.setdefault(ranked.position, ranked.score)
        cited = [p for p in (*context.found, *context.dropped) if p in found.rounds]
        shown = set(context.positions)
        return [
            self._citation(rank, found.rounds[p], scores.get(p, 0.0), shown=p in shown)
            for rank, p in enumerate(cited, start=1)
        ]

    def _citation(self, rank: int, round_: Round, score: float, *, shown: bool) -> Citation:
        return Citation(
            rank=rank,
            position=round_.position,
            round_id=round_.id,
            session=round_.session,
            time=round_.time,
            score=score,
            images=[self._picture(image) for image in round_.images],
            shown=shown,
        )

    def _turn(self, turn: Turn) -> TurnOut:
        voice = stored_digest(turn.audio) if turn.audio else None
        return TurnOut(
            speaker=turn.speaker,
            text=turn.text,
            images=[self._picture(image) for image in turn.images],
            audio_url=self._link("audio", voice) if voice else None,
            transcript=turn.transcript,
        )

    def _picture(self, image: Image) -> Picture:
        link = self._link("images", image.digest) if image.digest else None
        return Picture(id=image.id, caption=image.caption, url=link, digest=image.digest)

    def _link(self, kind: str, digest: str) -> str:
        base = self.public_url.rstrip("/")
        return f"{base}/v1/memories/{quote(self.memory, safe='')}/{kind}/{digest}"


def show_usage(usage: Iterable[Usage]) -> list[UsageOut]:
    """What each call of a model cost."""
    return [
        UsageOut(
            role=one.role,
            prompt_tokens=one.prompt_tokens,
            completion_tokens=one.completion_tokens,
            cached=one.cached,
        )
        for one in usage
    ]


def _route(route: Route, retrieval: Retrieval) -> RouteOut:
    return RouteOut(
        case=route.case,
        query_modality=retrieval.query.modality,
        target=Modality.IMAGE if route.case in _SEEKS_IMAGE else Modality.TEXT,
        counts_images=route.counts_images,
        aggregates=route.aggregates,
        asks_conflict=route.asks_conflict,
        reason=route.reason,
    )


def _context(context: Context, rounds: Mapping[int, Round]) -> ContextOut:
    blocks = [
        BlockOut(
            session=block.session,
            time=block.time,
            round_ids=[rounds[p].id for p in block.positions if p in rounds],
            text=block.text,
        )
        for block in context.blocks
    ]
    return ContextOut(
        text=context.text,
        tokens=context.tokens,
        words=context.words,
        note=context.note,
        blocks=blocks,
        dropped=[rounds[p].id for p in context.dropped if p in rounds],
    )


def _anchors(anchors: Anchors) -> AnchorsOut:
    return AnchorsOut(
        by_signal={
            signal: ImageAnchor(image=anchor.id) if isinstance(anchor, Image) else anchor
            for signal, anchor in anchors.by_signal.items()
        },
        hypo_caption=anchors.hypo_caption,
        keywords=list(anchors.keywords),
        query_caption=anchors.query_caption,
    )


def _lanes(found: Found) -> dict[Signal, list[LaneItem]]:
    lanes: dict[Signal, list[LaneItem]] = {}
    for ranked in found.retrieval.ranked:
        for signal, rank in ranked.ranks.items():
            round_id = found.rounds[ranked.position].id
            item = LaneItem(rank=rank, position=ranked.position, round_id=round_id)
            lanes.setdefault(signal, []).append(item)
    return {signal: sorted(items, key=lambda item: item.rank) for signal, items in lanes.items()}


def _fused(found: Found) -> list[FusedItem]:
    return [
        FusedItem(
            rank=rank,
            position=ranked.position,
            round_id=found.rounds[ranked.position].id,
            score=ranked.score,
            ranks=ranked.ranks,
        )
        for rank, ranked in enumerate(found.retrieval.ranked, start=1)
    ]
