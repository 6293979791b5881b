"""The stages of a question as the settings want them. Opens and starts nothing."""

from typing import TYPE_CHECKING

from gateway.admission.breaker import Breaker
from gateway.admission.bulkhead import Bulkhead
from gateway.answer.calls.calling import ModelCalls
from gateway.answer.calls.endpoints import Endpoint, Endpoints
from gateway.answer.calls.moderation import ModerationMode, OutputPolicy
from gateway.answer.model import AnswerModel
from gateway.answer.neighbours import NeighbourLimits
from gateway.answer.reranking import Reranking
from gateway.answer.rewriting.rewriting import RewriteCaps, Rewriting
from gateway.retrieval.embedding import Embedders
from gateway.retrieval.retriever import FusionSettings
from gateway.retrieval.risk import RiskPolicy
from gateway.settings import Settings

if TYPE_CHECKING:
    from gateway.bootstrap.composition import Parts


def embedders(parts: "Parts") -> Embedders:
    if parts.previous_embedder is None:
        return Embedders(parts.embedder)
    return Embedders(parts.embedder, parts.previous_embedder)


def fusion(settings: Settings) -> FusionSettings:
    return FusionSettings(
        depth=settings.candidates,
        k=settings.rrf_k,
        dense_weight=settings.rrf_dense_weight,
        lexical_weight=settings.rrf_lexical_weight,
        hint_weight=settings.rrf_hint_weight,
    )


def rerank_places(settings: Settings, parts: "Parts") -> int:
    in_process = parts.reranker is not None and parts.reranker.in_process
    return 1 if in_process else settings.rerank_concurrency


def reranking(settings: Settings, parts: "Parts", bulkhead: Bulkhead) -> Reranking | None:
    if parts.reranker is None:
        return None
    return Reranking(
        parts.reranker,
        bulkhead,
        None if parts.reranker.in_process else _breaker(settings),
        cap_ms=settings.rerank_cap_ms,
        risk=RiskPolicy(settings.risk_policy),
    )


def neighbour_limits(settings: Settings) -> NeighbourLimits:
    return NeighbourLimits(
        reach=settings.evidence_neighbours,
        hits=settings.evidence_neighbours_of,
        retrieval_ms=settings.retrieval_cap_ms,
        catalog_ms=settings.catalog_cap_ms,
    )


def model_calls(settings: Settings, parts: "Parts") -> ModelCalls:
    adapter, *others = settings.model_adapters
    second = None if parts.second_model is None else _endpoint(settings, parts.second_model, *others)
    policy = None
    if settings.moderation != "off" and parts.moderator is not None:
        mode = ModerationMode(settings.moderation)
        policy = OutputPolicy(mode, parts.moderator, settings.moderation_cap_ms)
    return ModelCalls(
        Endpoints(_endpoint(settings, parts.model, adapter), second),
        parts.quota,
        call_tokens=settings.model_context_tokens,
        retries=settings.model_retries,
        first_token_cap_ms=settings.first_token_cap_ms,
        policy=policy,
    )


def rewriting(
    settings: Settings, parts: "Parts", calls: ModelCalls, generation: Bulkhead
) -> Rewriting | None:
    """None where rules tell follow-ups, or nobody does."""
    if settings.rewrite != "model":
        return None
    caps = RewriteCaps(settings.rewrite_cap_ms, settings.catalog_cap_ms, settings.first_token_cap_ms)
    return Rewriting(calls, generation, parts.catalog, caps)


def _endpoint(settings: Settings, model: AnswerModel, adapter: str = "") -> Endpoint:
    return Endpoint(model, _breaker(settings), adapter)


def _breaker(settings: Settings) -> Breaker:
    return Breaker(settings.breaker_failures, settings.breaker_open_s)
