"""A candidate: a permitted passage a search has found, with its scores and why it was found."""

from dataclasses import dataclass

from gateway.access.authorizer import DocumentRef
from gateway.retrieval.chunk import Chunk


@dataclass(frozen=True, slots=True)
class Candidate:
    """``similarity`` is its cosine to the question; ``dense`` says whether the dense route found it;
    ``raw_score`` ranked it, in the scale ``score_label`` names (l2_distance, similarity, bm25, rrf, rerank);
    ``ranks`` has its place, from 1, in each route that found it.
    """

    chunk: Chunk
    similarity: float
    dense: bool
    raw_score: float
    score_label: str
    hit_reason: str
    hinted: bool = False
    ranks: tuple[tuple[str, int], ...] = ()

    @property
    def score(self) -> float | None:
        """Squared L2 distance of unit vectors, |a - b|^2 = 2 - 2 cos, smaller is nearer; None without
        a dense hit.
        """
        return max(0.0, 2.0 - 2.0 * self.similarity) if self.dense else None

    @property
    def ref(self) -> DocumentRef:
        return DocumentRef(self.chunk.document_id, self.chunk.document_version)
