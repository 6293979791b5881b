"""PostgreSQL's address and the engines that connect to it; the password stays in here."""

from collections.abc import Mapping
from typing import Any

import asyncpg
from sqlalchemy import URL, event, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from gateway.adapters.sql.postgres_errors import note_lost
from gateway.errors import ConfigurationError

_DRIVER = "postgresql+asyncpg"
_SCHEMES = frozenset({"postgres", "postgresql", _DRIVER})


def postgres_url(url: str) -> URL:
    """Raises ConfigurationError ``database_url_invalid``, which doesn't repeat the URL."""
    scheme, _, rest = url.partition("://")
    try:
        if scheme not in _SCHEMES:
            raise ValueError
        return make_url(f"{_DRIVER}://{rest}")
    except (ArgumentError, ValueError):
        raise ConfigurationError(
            "database_url_invalid", "a database URL looks like postgresql://account:password@host:5432/name"
        ) from None


async def connect(
    url: URL, settings: Mapping[str, str], *, connect_s: float, answer_s: float | None = None
) -> "asyncpg.Connection[Any]":
    """Made within ``connect_s``, with the server's ``settings``; no statement takes longer than ``answer_s``.

    What the URL's query asks for (``sslmode=verify-full``) is as in libpq. Raises what the driver raises.
    """
    return await asyncpg.connect(
        url.set(drivername="postgresql").render_as_string(hide_password=False),
        timeout=connect_s,
        command_timeout=answer_s,
        server_settings={"application_name": "qa-gateway", **settings},
    )


def engine_of(
    url: URL, settings: Mapping[str, str], *, connect_s: float, answer_s: float | None = None, **pool: Any
) -> AsyncEngine:
    """An engine over such connections."""

    async def opened() -> "asyncpg.Connection[Any]":
        return await connect(url, settings, connect_s=connect_s, answer_s=answer_s)

    nowhere = URL.create(_DRIVER)  # all an engine needs is the dialect
    engine = create_async_engine(nowhere, async_creator=opened, hide_parameters=True, **pool)
    event.listen(engine.sync_engine, "handle_error", note_lost)
    return engine
