"""Model adapters that a knowledge base of the in-memory catalog was, and is, answered with."""

from gateway.adapters.memory.catalog_rows import KnowledgeBaseRow, ReleaseRow


def model_before(kb: KnowledgeBaseRow, release: ReleaseRow) -> str | None:
    """The last other adapter that the knowledge base was answered with, and that was never gone back from:
    so each step leads further back.
    """
    past = ["", release.plan.model, *(row.model_left for row in kb.activations)]
    return next((row.model for row in reversed(kb.activations) if row.model not in past), None)


def standing_model(kb: KnowledgeBaseRow, active: ReleaseRow | None, model: str) -> str:
    """What a build is to say: ``model``, unless that was gone back from; then the active release's."""
    left = model in [row.model_left for row in kb.activations]
    return active.plan.model if left and active is not None else model
