"""Releases, embedding spaces and the state machines of versions and releases, as tables."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from gateway.errors import IllegalTransition

#: space ids that stand in a collection's name as they are, hyphens as underscores
_PLAIN_ID = re.compile(r"[A-Za-z0-9]+(-[A-Za-z0-9]+)*")
_MAX_PLAIN_ID = 100


class VersionState(StrEnum):
    PENDING = "PENDING"
    BUILDING = "BUILDING"
    VALIDATING = "VALIDATING"
    READY = "READY"
    FAILED = "FAILED"


class ReleaseState(StrEnum):
    PENDING = "PENDING"
    BUILDING = "BUILDING"
    VALIDATING = "VALIDATING"
    READY = "READY"
    FAILED = "FAILED"
    ACTIVE = "ACTIVE"
    RETIRED = "RETIRED"
    RECLAIMED = "RECLAIMED"


VERSION_TRANSITIONS: Mapping[VersionState, frozenset[VersionState]] = {
    VersionState.PENDING: frozenset({VersionState.BUILDING, VersionState.FAILED}),
    VersionState.BUILDING: frozenset({VersionState.VALIDATING, VersionState.FAILED}),
    VersionState.VALIDATING: frozenset({VersionState.READY, VersionState.FAILED}),
    VersionState.READY: frozenset(),
    VersionState.FAILED: frozenset(),
}

RELEASE_TRANSITIONS: Mapping[ReleaseState, frozenset[ReleaseState]] = {
    ReleaseState.PENDING: frozenset({ReleaseState.BUILDING, ReleaseState.FAILED}),
    ReleaseState.BUILDING: frozenset({ReleaseState.VALIDATING, ReleaseState.FAILED}),
    ReleaseState.VALIDATING: frozenset({ReleaseState.READY, ReleaseState.FAILED}),
    ReleaseState.READY: frozenset({ReleaseState.ACTIVE, ReleaseState.RECLAIMED}),
    ReleaseState.ACTIVE: frozenset({ReleaseState.RETIRED}),
    ReleaseState.RETIRED: frozenset({ReleaseState.ACTIVE, ReleaseState.RECLAIMED}),
    ReleaseState.FAILED: frozenset({ReleaseState.RECLAIMED}),
    ReleaseState.RECLAIMED: frozenset(),
}


def check_version_transition(before: VersionState, after: VersionState) -> None:
    """Raises IllegalTransition unless the table allows it."""
    if after not in VERSION_TRANSITIONS[before]:
        raise IllegalTransition(f"a document version can't go from {before} to {after}")


def check_release_transition(before: ReleaseState, after: ReleaseState) -> None:
    """Raises IllegalTransition unless the table allows it."""
    if after not in RELEASE_TRANSITIONS[before]:
        raise IllegalTransition(f"a release can't go from {before} to {after}")


@dataclass(frozen=True, slots=True)
class EmbeddingSpace:
    """Everything that makes two vectors comparable; a change of any part is another space.

    ``text_form`` names how the embedded text is put together (title + breadcrumb + content).
    """

    space_id: str
    model: str
    dimension: int
    text_form: str = "title-breadcrumb-content/1"

    @property
    def collection(self) -> str:
        """The physical collection of this space: ASCII letters, digits and underscores only.

        No two spaces share one: a plain id brings no two underscores in a row, any other has its digest
        after two.
        """
        if len(self.space_id) <= _MAX_PLAIN_ID and _PLAIN_ID.fullmatch(self.space_id):
            return "chunks_" + self.space_id.replace("-", "_")
        readable = re.sub(r"[^A-Za-z0-9]+", "_", self.space_id)[:_MAX_PLAIN_ID].strip("_")
        return f"chunks_{readable}__{hashlib.sha256(self.space_id.encode()).hexdigest()[:32]}"


@dataclass(frozen=True, slots=True)
class GateFit:
    """One stored set of the evidence gate's thresholds, fitted on what one order of passages brings up.

    ``weights`` are by name of the signal they weigh; their sum is no probability and accepts at ``bias``.
    ``reranker`` is the version of the reranker that made the order, '' for the fused one; ``script`` is that
    of the questions it was fitted on, '' for every script that has no fit of its own.
    """

    weights: tuple[tuple[str, float], ...]
    bias: float
    min_coverage: float = 0.0
    reranker: str = ""
    script: str = ""


@dataclass(frozen=True, slots=True)
class RetrievalConfig:
    """What a release says about ranking and the gate; part of every cache key by its version.

    ``gates`` are the thresholds, one set an order of passages and script of questions. The four numbers
    beside them are those of releases and calibration files from before there were several: a gate for the
    fused order that accepts when ``w_similarity * top similarity + w_coverage * IDF coverage >= bias``, where
    ``gates`` has none.
    With neither (no gate, no ``bias``) the space is uncalibrated: documents can be imported and searched, and
    no question is answered.
    """

    version: str
    w_similarity: float
    w_coverage: float
    bias: float | None
    min_coverage: float = 0.0
    gates: tuple[GateFit, ...] = ()

    @classmethod
    def uncalibrated(cls, space: EmbeddingSpace) -> "RetrievalConfig":
        """What a space's releases say as long as nobody has fitted its thresholds."""
        return cls(f"{space.space_id}/uncalibrated", w_similarity=0.0, w_coverage=0.0, bias=None)

    @property
    def calibrated(self) -> bool:
        return self.gate() is not None or bool(self.reranker)

    @property
    def reranker(self) -> str:
        """The version of the reranker that its thresholds expect, '' for none."""
        return next((gate.reranker for gate in self.gates if gate.reranker), "")

    def gate(self, reranker: str = "", script: str = "") -> GateFit | None:
        """The thresholds for passages in that reranker's order, or in the fused one, found for questions in
        that script, or in any; None: never fitted.
        """
        by_script = {gate.script: gate for gate in self.gates if gate.reranker == reranker}
        fitted = by_script.get(script) or by_script.get("")
        if fitted is not None or reranker or self.bias is None:
            return fitted
        weights = (("top_similarity", self.w_similarity), ("coverage", self.w_coverage))
        return GateFit(weights, self.bias, self.min_coverage)


@dataclass(frozen=True, slots=True)
class RetrievalRelease:
    """One active, immutable snapshot of a knowledge base; a request binds exactly one.

    ``model`` is the model adapter that answers first, '' for whichever is configured first.
    """

    release_id: str
    tenant: str
    kb_id: str
    knowledge_base: str
    kb_revision: str
    sequence: int
    space: EmbeddingSpace
    collection: str
    config: RetrievalConfig
    model: str = ""


@dataclass(frozen=True, slots=True)
class KnowledgeBaseRecord:
    """A knowledge base as operators see it; ``sequence`` is 0 and the rest None before its first release."""

    kb_id: str
    name: str
    sequence: int
    release_id: str | None
    space_id: str | None


@dataclass(frozen=True, slots=True)
class ReleaseRecord:
    """A release as operators see it. Times are seconds since the epoch; ``barrier``: what validation saw."""

    release_id: str
    tenant: str
    kb_id: str
    knowledge_base: str
    kb_revision: str
    state: ReleaseState
    sequence: int | None
    base_sequence: int
    space_id: str
    config: RetrievalConfig
    manifest_hash: str
    documents: int
    chunks: int
    created_at: float
    activated_at: float | None
    error: str | None
    barrier: Mapping[str, object] | None = None
    model: str = ""

    @property
    def vectors(self) -> Mapping[str, int] | None:
        """How many of its vectors its own task ``embedded``, and how many it ``reused``."""
        found = (self.barrier or {}).get("vectors")
        return found if isinstance(found, dict) else None
