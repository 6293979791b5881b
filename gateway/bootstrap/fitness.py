"""Fitness: what a process must not start with. Checked before and after its parts are open."""

from collections.abc import Iterable

from gateway.errors import ConfigurationError
from gateway.settings import Settings

#: problems of one kind that are named before the rest is counted
_NAMED = 4


def refuse_unfit(settings: Settings) -> None:
    """Settings that can't work together, or not in production. Raises ConfigurationError."""
    refuse_incomplete(settings)
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
    needed = (
        (settings.embedding_base_url, settings.embedding_name, "GATEWAY_EMBEDDING_NAME"),
        (settings.embedding_base_url, settings.embedding_dimension, "GATEWAY_EMBEDDING_DIMENSION"),
        (settings.oidc_issuer, settings.oidc_audience, "GATEWAY_OIDC_AUDIENCE"),
        (settings.fallback_model_base_url, settings.fallback_model_name, "GATEWAY_FALLBACK_MODEL_NAME"),
        (settings.fallback_model_base_url, settings.model_base_url, "GATEWAY_MODEL_BASE_URL"),
        (moderation, moderator, "GATEWAY_MODERATION_BASE_URL or GATEWAY_MODERATION_PHRASES"),
    )
    return [f"{name} is not set" for given, value, name in needed if given is not None and value is None]


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


def refuse_other_space(embedder: str, released: Iterable[str]) -> None:
    """An embedder that can't be asked for what is released. Raises ConfigurationError."""
    others = sorted(set(released) - {embedder})
    _refuse(
        "embedding_space_mismatch",
        f"the embedder makes {embedder}",
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
