"""What answers are reused by: their keys, and the cache. Opens nothing."""

import hashlib
import json

import gateway
from gateway.admission.breaker import Breaker
from gateway.answer.cache import AnswerStore
from gateway.answer.reuse.caching import AnswerCache
from gateway.answer.reuse.entry import Entries
from gateway.answer.reuse.keys import AnswerKeys
from gateway.observe.hooks import Hooks
from gateway.retrieval.rerank import Reranker
from gateway.settings import Settings

#: settings that shape an answer, no secret among them; the second model's too: a rollback puts it first
SHAPING = (
    "model_base_url",
    "model_name",
    "model_max_sensitivity",
    "model_context_tokens",
    "fallback_model_base_url",
    "fallback_model_name",
    "fallback_model_max_sensitivity",
    "embedder",
    "embedding_base_url",
    "embedding_name",
    "embedding_dimension",
    "embedding_send_dimension",
    "embedding_max_sensitivity",
    "previous_embedding_base_url",
    "previous_embedding_name",
    "previous_embedding_dimension",
    "previous_embedding_send_dimension",
    "previous_embedding_max_sensitivity",
    "rerank",
    "rerank_url",
    "rerank_name",
    "rerank_api",
    "rerank_max_sensitivity",
    "retrieval_mode",
    "candidates",
    "rrf_k",
    "rrf_dense_weight",
    "rrf_lexical_weight",
    "rrf_hint_weight",
    "evidence_passages",
    "evidence_neighbours",
    "evidence_neighbours_of",
    "on_conflict",
)
#: those that say what may leave of one, beside the text of ``moderation_phrases``
POLICY = (
    "risk_policy",
    "moderation",
    "moderation_base_url",
    "moderation_name",
    "moderation_max_sensitivity",
)
#: a store that fails that often in a row is left alone, for so long
_FAILURES, _REST_S = 3, 2.0


def answer_keys(settings: Settings, reranker: Reranker | None) -> AnswerKeys:
    return AnswerKeys(
        output_policy=_digest(_values(settings, POLICY), _phrases(settings)),
        gateway_digest=_digest(gateway.__version__, _values(settings, SHAPING)),
        reranker="" if reranker is None else reranker.version,
    )


def answer_cache(
    settings: Settings, store: AnswerStore | None, hooks: Hooks, owner: str
) -> AnswerCache | None:
    """None where no answer is told again."""
    if store is None or not settings.answer_cache_ttl_s:
        return None
    return AnswerCache(
        store,
        Entries(),
        hooks,
        Breaker(_FAILURES, _REST_S),
        owner=owner,
        ttl_s=settings.answer_cache_ttl_s,
        refusal_ttl_s=settings.answer_cache_refusal_ttl_s,
        cap_ms=settings.answer_cache_cap_ms,
    )


def _values(settings: Settings, names: tuple[str, ...]) -> dict[str, object]:
    return {name: getattr(settings, name) for name in names}


def _phrases(settings: Settings) -> str:
    """What the moderator's file says now; its own reading tells what is wrong with it."""
    path = settings.moderation_phrases
    if settings.moderation == "off" or path is None or not path.is_file():
        return ""
    return path.read_bytes().hex()


def _digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:32]
