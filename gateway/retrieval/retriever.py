"""The retriever: dense and BM25 under one ScopedQuery, fused by rank."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import mul

import anyio

from gateway.context import Deadline
from gateway.errors import GatewayError
from gateway.retrieval.candidate import Candidate
from gateway.retrieval.chunk import Chunk
from gateway.retrieval.embedding import Embedders, Vector
from gateway.retrieval.fusion import reciprocal_rank_fusion
from gateway.retrieval.modes import DenseReader, DenseRoute, Mode, Served
from gateway.retrieval.query import ScopedQuery
from gateway.retrieval.store import ChunkReader, Hit
from gateway.retrieval.terms import terms_of

DENSE = "dense"
BM25 = "bm25"
HINT = "hint"


@dataclass(frozen=True, slots=True)
class Found:
    """Candidates best first, how many rows the store should never have returned, whether there may be more
    further down, and by which path the vectors were read (``fallback``: why not by the other).
    """

    candidates: tuple[Candidate, ...]
    foreign: int
    cut: bool = False
    served_by: Mode = Mode.SDK
    fallback: str | None = None


@dataclass(frozen=True, slots=True)
class FusionSettings:
    """``depth`` hits a route; weights and k as in reciprocal rank fusion."""

    depth: int
    k: int
    dense_weight: float
    lexical_weight: float
    hint_weight: float = 1.0


class Retriever:
    """Never widens a query: a search that finds nothing stays empty. Words are always read through
    ``reader``; of vectors that is the ``sdk`` mode, and ``vectorstore`` the other one.
    """

    def __init__(
        self,
        embedders: Embedders,
        reader: ChunkReader,
        fusion: FusionSettings,
        *,
        vectorstore: DenseReader | None = None,
        embedded: bool = False,
    ) -> None:
        self._embedders = embedders
        self._reader = reader
        self._fusion = fusion
        self._dense = DenseRoute(reader, vectorstore, embedded=embedded)

    def expect(self, mode: Mode) -> None:
        """Raises InvalidField for a mode that isn't installed."""
        self._dense.expect(mode)

    async def embed(self, query: ScopedQuery, question: str, deadline: Deadline) -> Vector:
        """The question's vector. Raises EmbeddingSpaceMismatch when it wouldn't be comparable."""
        (vector,) = await self._embedders.of(query.release.space).embed([question], deadline)
        return vector

    async def search(
        self,
        query: ScopedQuery,
        question: str,
        vector: Vector,
        deadline: Deadline,
        *,
        mode: Mode = Mode.AUTO,
        hint_terms: Sequence[str] = (),
        deeper: int = 1,
    ) -> Found:
        """All routes at once, ``deeper`` times the usual depth; what has one of ``hint_terms`` is raised.
        Raises what the store raises; one failing route fails the search.
        """
        routes: dict[str, list[Hit]] = {DENSE: [], BM25: [], HINT: []}
        depth = self._fusion.depth * deeper
        served = Served([], Mode.SDK)

        async def dense() -> None:
            nonlocal served
            served = await self._dense.search(mode, query, vector, depth, deadline)
            routes[DENSE] = served.hits

        async def lexical() -> None:
            terms = tuple(dict.fromkeys(terms_of(question)))
            routes[BM25] = await self._reader.lexical(query, terms, depth, deadline)

        async def hinted() -> None:
            routes[HINT] = await self._reader.lexical(query, hint_terms, depth, deadline)

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(dense)
                tasks.start_soon(lexical)
                if hint_terms and self._fusion.hint_weight:
                    tasks.start_soon(hinted)
        except* GatewayError as group:
            raise first_error(group) from None
        found = self._fuse(query, vector, routes)
        return replace(
            found,
            cut=any(len(hits) >= depth for hits in routes.values()),
            served_by=served.by,
            fallback=served.fallback,
        )

    def _fuse(self, query: ScopedQuery, vector: Vector, routes: dict[str, list[Hit]]) -> Found:
        chunks: dict[str, Chunk] = {}
        similarity: dict[str, float] = {}
        rankings: dict[str, list[str]] = {DENSE: [], BM25: [], HINT: []}
        foreign = 0
        for route, hits in routes.items():
            for hit in hits:
                if not belongs(query, hit.chunk):
                    foreign += 1
                    continue
                chunks[hit.chunk.chunk_id] = hit.chunk
                rankings[route].append(hit.chunk.chunk_id)
                if route == DENSE:
                    similarity[hit.chunk.chunk_id] = hit.score
                elif hit.vector is not None and hit.chunk.chunk_id not in similarity:
                    similarity[hit.chunk.chunk_id] = cosine(vector, hit.vector)
        ranks = _ranks(rankings)
        candidates = [
            Candidate(
                chunk=chunk,
                similarity=similarity.get(chunk_id, -1.0),
                dense=DENSE in ranks[chunk_id],
                raw_score=0.0,
                score_label="rrf",
                hit_reason="",
                hinted=HINT in ranks[chunk_id],
                ranks=tuple(ranks[chunk_id].items()),
            )
            for chunk_id, chunk in chunks.items()
        ]
        return Found(self.fused(candidates), foreign)

    def fused(self, candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
        """Best first, as if each route had found these alone: no place and no number tells of others."""
        known = {candidate.chunk.chunk_id: candidate for candidate in candidates}
        places: dict[str, dict[str, int]] = {DENSE: {}, BM25: {}, HINT: {}}
        for chunk_id, candidate in known.items():
            for route, place in candidate.ranks:
                places[route][chunk_id] = place
        rankings = {route: sorted(found, key=found.__getitem__) for route, found in places.items() if found}
        ranks = _ranks(rankings)
        weights = {
            DENSE: self._fusion.dense_weight,
            BM25: self._fusion.lexical_weight,
            HINT: self._fusion.hint_weight,
        }
        return tuple(
            replace(
                known[chunk_id],
                raw_score=score,
                hit_reason=_reason(ranks[chunk_id]),
                ranks=tuple(ranks[chunk_id].items()),
            )
            for chunk_id, score in reciprocal_rank_fusion(rankings, weights, self._fusion.k)
        )


def belongs(query: ScopedQuery, chunk: Chunk) -> bool:
    """Whether a stored row is really inside the query's scope and release: the second lock."""
    release = query.release
    return (
        chunk.tenant_id == query.scope.tenant
        and chunk.kb_id == query.scope.kb_id
        and chunk.kb_revision == release.kb_revision
        and chunk.embedding_space_id == release.space.space_id
        and chunk.acl_class in query.scope.permitted_classes
        and chunk.valid_from <= query.at < chunk.valid_until
        and (query.category is None or chunk.category == query.category)
    )


def cosine(a: Vector, b: Vector) -> float:
    """Of two unit vectors of one length: their dot product, held to [-1, 1]."""
    product: float = sum(map(mul, a, b))  # half a generator's time, and the same sum to the last bit
    return max(-1.0, min(1.0, product))


def _ranks(rankings: Mapping[str, Sequence[str]]) -> dict[str, dict[str, int]]:
    """By chunk the routes that found it, with its place in each."""
    ranks: dict[str, dict[str, int]] = {}
    for route, ranking in rankings.items():
        for place, chunk_id in enumerate(ranking, start=1):
            ranks.setdefault(chunk_id, {}).setdefault(route, place)
    return ranks


def _reason(ranks: Mapping[str, int]) -> str:
    """Which routes found it and at which rank: ``dense #3, bm25 #1``."""
    return ", ".join(f"{route} #{place}" for route, place in ranks.items())


def first_error(group: BaseExceptionGroup[GatewayError]) -> GatewayError:
    """The first leaf of a group of gateway errors."""
    errors: Sequence[GatewayError | BaseExceptionGroup[GatewayError]] = group.exceptions
    error = errors[0]
    return first_error(error) if isinstance(error, BaseExceptionGroup) else error
