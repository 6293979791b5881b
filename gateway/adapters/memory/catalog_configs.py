"""Retrieval configs that a knowledge base of the in-memory catalog was, and is, answered under."""

from gateway.adapters.memory.catalog_rows import KnowledgeBaseRow, ReleaseRow
from gateway.release.model import EmbeddingSpace, RetrievalConfig


def config_before(kb: KnowledgeBaseRow, release: ReleaseRow) -> RetrievalConfig | None:
    """The last other config that the knowledge base was answered under in this space, and that was never
    gone back from: so each step leads further back.
    """
    past = [release.plan.config, *(row.config_left for row in kb.activations)]
    earlier = (row for row in reversed(kb.activations) if row.space == release.plan.space)
    return next((row.config for row in earlier if row.config not in past), None)


def standing_config(
    kb: KnowledgeBaseRow, active: ReleaseRow | None, space: EmbeddingSpace, config: RetrievalConfig
) -> RetrievalConfig:
    """What a build is to say: ``config``, unless that was gone back from; then the active release's."""
    left = config in [row.config_left for row in kb.activations]
    return active.plan.config if left and active is not None and active.plan.space == space else config
