"""Demand: the load of a running gateway as its counters have it, and the parts that it falls on."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gateway.admission.capacity import Load, Part, Shares, calls_a_minute, places, tokens_a_minute
from gateway.observe.exposition import Growth, UnusableMetrics
from gateway.observe.hooks import CacheRead, Made, ModelCall, Stage
from gateway.settings import Settings

#: looks at a gauge from which its mean says something
_ENOUGH_LOOKS = 10
#: bulkheads by the stage that is spent in them, waiting for a place included
_STAGES = {
    "embedding": Stage.EMBED,
    "retrieval": Stage.RETRIEVE,
    "rerank": Stage.RERANK,
    "generation": Stage.GENERATE,
}
BULKHEADS = ("sessions", *_STAGES)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Places of each bulkhead in one of ``processes``, and the limits that all of them share; None for none.

    ``tenant_share`` is the share of questions of the tenant that asks most: his limits meet it.
    """

    bulkheads: Mapping[str, float]
    processes: int
    reserved_tokens: float
    model: "Limits"
    tenant: "Limits"
    tenant_share: float = 1.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Of generations: at once, and calls and tokens a minute."""

    at_once: float | None
    calls: float | None
    tokens: float | None


@dataclass(frozen=True, slots=True)
class Measured:
    """What happened between two readings. ``starts`` are generations begun, those that repeat a failed one
    left out; ``busy`` is the mean number of places in use by bulkhead, where it is known.
    """

    seconds: float
    processes: int
    questions: float
    lost: float
    hits: float
    shared: float
    refused: float
    starts: float
    load: Load
    busy: Mapping[str, float]
    places: Mapping[str, float] = field(default_factory=dict)


def sizes_of(settings: Settings, processes: int) -> Sizes:
    return Sizes(
        bulkheads={
            "sessions": settings.sse_sessions,
            "embedding": settings.embedding_concurrency,
            "retrieval": settings.retrieval_concurrency,
            "rerank": settings.rerank_concurrency,
            "generation": settings.generation_concurrency,
        },
        processes=processes,
        reserved_tokens=settings.model_context_tokens,
        model=Limits(
            settings.model_concurrency,
            settings.model_requests_per_minute,
            settings.model_tokens_per_minute,
        ),
        tenant=Limits(
            settings.quota_concurrency,
            settings.quota_requests_per_minute,
            settings.quota_tokens_per_minute,
        ),
    )


def with_places(sizes: Sizes, found: Mapping[str, float]) -> Sizes:
    return replace(sizes, bulkheads={**sizes.bulkheads, **found})


def parts_of(load: Load, sizes: Sizes) -> list[Part]:
    """Everything that there is only so much of; what nobody visits is left out."""
    shares, pools = load.shares, sizes.processes
    stays = {
        "sessions": (shares.shown, load.held_s),
        "embedding": (shares.made, load.embedding_s),
        "retrieval": (shares.made, load.retrieval_s),
        "rerank": (shares.made, load.rerank_s),
        "generation": (shares.started, load.generation_s),
    }
    parts = [
        places(name, visits, seconds, sizes.bulkheads.get(name), pools)
        for name, (visits, seconds) in stays.items()
    ]
    parts += _limited("model", load, sizes.model, sizes.reserved_tokens, 1.0)
    parts += _limited("tenant", load, sizes.tenant, sizes.reserved_tokens, sizes.tenant_share)
    return [part for part in parts if part.each]


def _limited(whose: str, load: Load, limits: Limits, reserved: float, share: float) -> list[Part]:
    calls = places(
        f"{whose}_calls_at_once", share * load.shares.started, load.generation_s, limits.at_once, 1
    )
    rate = calls_a_minute(f"{whose}_calls", load, limits.calls, share)
    tokens = tokens_a_minute(f"{whose}_tokens", load, limits.tokens, reserved=reserved, share=share)
    return [part for part in (calls, rate, tokens) if part.size is not None]


def measured(growth: Growth, seconds: float) -> Measured:
    """Raises UnusableMetrics, also when nothing was asked."""
    questions = growth.of("gateway_questions_total")
    if not questions:
        raise UnusableMetrics("no question came between the two readings")
    hits = growth.of("gateway_cache_total", result=CacheRead.HIT.value)
    followers = growth.of("gateway_flight_members_total", role="follower")
    leaders = growth.of("gateway_flight_members_total", role="leader")
    refused = growth.of("gateway_makings_total", result=Made.REFUSAL.value)
    evidenced = growth.of("gateway_makings_total", result=Made.GENERATION.value)
    lost = max(0.0, questions - hits - followers - leaders)
    starts = growth.of("gateway_model_calls_total", kind=ModelCall.GENERATION.value) - growth.of(
        "gateway_model_retries_total"
    )
    shares = Shares(
        lost=lost / questions,
        hits=_share(hits, hits + followers + leaders),
        shared=_share(followers, followers + leaders),
        refused=_share(refused, refused + evidenced),
    )
    sent, received = (growth.of("gateway_model_tokens_total", kind=way) for way in ("input", "output"))
    load = Load(
        arrivals=questions / seconds,
        shares=shares,
        **{f"{name}_s": _stay(growth, stage) for name, stage in _STAGES.items()},
        answer_s=growth.mean("gateway_completion_seconds"),
        input_tokens=_share(sent, starts),
        output_tokens=_share(received, starts),
    )
    return Measured(
        seconds=seconds,
        processes=growth.processes,
        questions=questions,
        lost=lost,
        hits=hits,
        shared=followers,
        refused=refused,
        starts=starts,
        load=load,
        busy={name: _busy(growth, name, seconds) for name in BULKHEADS},
        places=_places(growth),
    )


def _stay(growth: Growth, stage: Stage) -> float:
    """Seconds of one making in a stage, however many steps it has there."""
    makings = growth.of("gateway_makings_total")
    if stage is Stage.GENERATE:
        makings = growth.of("gateway_stage_seconds_count", stage=stage.value)
    return _share(growth.of("gateway_stage_seconds_sum", stage=stage.value), makings)


def _busy(growth: Growth, bulkhead: str, seconds: float) -> float:
    """The mean of what was seen in use; with too few looks, the time that was spent there over the time that
    went by.
    """
    if growth.looks >= _ENOUGH_LOOKS:
        level = growth.level("gateway_bulkhead_in_use", name=bulkhead)
        if level is not None:
            return level
    if bulkhead == "sessions":
        return growth.of("gateway_completion_seconds_sum") / seconds
    return growth.of("gateway_stage_seconds_sum", stage=_STAGES[bulkhead].value) / seconds


def _places(growth: Growth) -> dict[str, float]:
    found = {name: growth.least("gateway_bulkhead_places", name=name) for name in BULKHEADS}
    return {name: size for name, size in found.items() if size is not None}


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
