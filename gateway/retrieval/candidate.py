"""A candidate: a permitted passage a search has found, with its scores and why it was found."""

from dataclasses import dataclass

from gateway.access.authorizer import DocumentRef
from gateway.retrieval.chunk import Chunk


@dataclass(frozen=True, slots=True)
class Candidate:
    """``similarity`` is the cosine of the dense hit, None without one; ``raw_score`` ranked it, in
    the scale ``score_label`` names (l2_distance, similarity, bm25, rrf, rerank).
    """

    chunk: Chunk
    similarity: float | None
    raw_score: float
    score_label: str
    hit_reason: str

    @property
    def score(self) -> float | None:
        """Squared L2 distance of unit vectors: |a - b|^2 = 2 - 2 cos; smaller is nearer."""
        return None if self.similarity is None else max(0.0, 2.0 - 2.0 * self.similarity)

    @property
    def ref(self) -> DocumentRef:
        return DocumentRef(self.chunk.document_id, self.chunk.document_version)
