"""Which model adapter each activation was under, and the way back to an earlier one."""

from typing import Any

from sqlalchemy import Connection, Row, select

from gateway.adapters.sql.tables import activations, releases


def before(connection: Connection, kb: Row[Any], release: Row[Any]) -> str | None:
    """The last other adapter that the knowledge base was answered with, and that was never gone back from:
    so each step leads further back.
    """
    left = select(activations.c.model_left).where(
        activations.c.kb_id == kb.kb_id, activations.c.model_left.is_not(None)
    )
    return connection.execute(
        select(activations.c.model_adapter)
        .where(
            activations.c.kb_id == kb.kb_id,
            activations.c.model_adapter.not_in(["", release.model_adapter]),
            activations.c.model_adapter.not_in(left),
        )
        .order_by(activations.c.sequence.desc())
        .limit(1)
    ).scalar_one_or_none()


def standing(connection: Connection, kb: Row[Any], model: str) -> str:
    """What a build is to say: ``model``, unless that was gone back from; then the active release's."""
    active = connection.execute(
        select(releases.c.model_adapter).where(
            releases.c.release_id == kb.active_release_id,
            select(activations.c.sequence)
            .where(activations.c.kb_id == kb.kb_id, activations.c.model_left == model)
            .exists(),
        )
    ).scalar_one_or_none()
    return model if active is None else active
