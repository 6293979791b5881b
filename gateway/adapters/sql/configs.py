"""Which retrieval config each activation was under, and the way back to an earlier one."""

from typing import Any

from sqlalchemy import Connection, Row, insert, select

from gateway.adapters.sql import releases as release_rows
from gateway.adapters.sql.tables import activations, releases
from gateway.release.model import EmbeddingSpace, RetrievalConfig


def keep(
    connection: Connection,
    now: float,
    sequence: int,
    release: Row[Any],
    *,
    config: str,
    model: str,
    config_left: str | None = None,
    model_left: str | None = None,
) -> None:
    """Under this sequence the release answers with this config and this model adapter; ``config_left`` and
    ``model_left`` are the ones gone back from.
    """
    connection.execute(
        insert(activations).values(
            kb_id=release.kb_id,
            sequence=sequence,
            release_id=release.release_id,
            space_id=release.space_id,
            config=config,
            config_left=config_left,
            model_adapter=model,
            model_left=model_left,
            at=now,
        )
    )


def before(connection: Connection, kb: Row[Any], release: Row[Any]) -> str | None:
    """The last other config that the knowledge base was answered under in this space, and that was never
    gone back from: so each step leads further back.
    """
    return connection.execute(
        select(activations.c.config)
        .where(
            activations.c.kb_id == kb.kb_id,
            activations.c.space_id == release.space_id,
            activations.c.config != release.config,
            activations.c.config.not_in(_left(kb)),
        )
        .order_by(activations.c.sequence.desc())
        .limit(1)
    ).scalar_one_or_none()


def standing(
    connection: Connection, kb: Row[Any], space: EmbeddingSpace, config: RetrievalConfig
) -> RetrievalConfig:
    """What a build is to say: ``config``, unless that was gone back from; then the active release's."""
    given = release_rows.config_text(config)
    active = connection.execute(
        select(releases.c.config).where(
            releases.c.release_id == kb.active_release_id,
            releases.c.space_id == space.space_id,
            select(activations.c.sequence)
            .where(activations.c.kb_id == kb.kb_id, activations.c.config_left == given)
            .exists(),
        )
    ).scalar_one_or_none()
    return config if active is None else release_rows.config_from(active)


def _left(kb: Row[Any]) -> Any:
    return select(activations.c.config_left).where(
        activations.c.kb_id == kb.kb_id, activations.c.config_left.is_not(None)
    )
