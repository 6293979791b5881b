"""Fusing: after a re-check the order is as if what was dropped had never been found, and no other."""

import random
from dataclasses import replace

import pytest

from gateway.adapters.memory.models import FixedEmbedder
from gateway.adapters.memory.vectors import MemoryVectors
from gateway.retrieval.candidate import Candidate
from gateway.retrieval.embedding import Embedders
from gateway.retrieval.retriever import FusionSettings, Retriever, cosine
from tests.harness.chunks import sample_chunk

ROUTES = ("dense", "bm25", "hint")
WEIGHTS = {"dense": 1.0, "bm25": 0.7, "hint": 0.4}
K = 60


@pytest.fixture
def retriever() -> Retriever:
    """With a weight of its own for each route."""
    fusion = FusionSettings(8, K, WEIGHTS["dense"], WEIGHTS["bm25"], WEIGHTS["hint"])
    return Retriever(Embedders(FixedEmbedder()), MemoryVectors(), fusion)


def found_by_routes(rng: random.Random) -> list[Candidate]:
    """Up to 30 passages in some of the routes, each with its place there."""
    places: dict[str, list[tuple[str, int]]] = {}
    names = [f"c{n}" for n in range(30)]
    for route in ROUTES:
        for place, name in enumerate(rng.sample(names, rng.randrange(20)), start=1):
            places.setdefault(name, []).append((route, place))
    bare = Candidate(sample_chunk("It is so."), 0.5, True, 0.0, "rrf", "")
    return [
        replace(bare, chunk=sample_chunk("It is so.", name), ranks=tuple(ranks))
        for name, ranks in places.items()
    ]


def places_among(candidates: list[Candidate], route: str) -> dict[str, int]:
    """By chunk, counted among these alone."""
    ranked = [(dict(c.ranks)[route], c.chunk.chunk_id) for c in candidates if route in dict(c.ranks)]
    return {chunk_id: place for place, (_, chunk_id) in enumerate(sorted(ranked), start=1)}


def test_what_is_left_is_ranked_as_if_it_had_been_found_alone(retriever: Retriever) -> None:
    """Numbers, places and reasons; best first, ties by id."""
    rng = random.Random(7)
    for _ in range(40):
        kept = [candidate for candidate in found_by_routes(rng) if rng.random() < 0.7]
        places = {route: places_among(kept, route) for route in ROUTES}
        expected = []
        for candidate in kept:
            here = {route: places[route].get(candidate.chunk.chunk_id) for route in ROUTES}
            there = tuple((route, place) for route, place in here.items() if place is not None)
            score = sum(WEIGHTS[route] / (K + place) for route, place in there)
            reason = ", ".join(f"{route} #{place}" for route, place in there)
            expected.append(replace(candidate, raw_score=score, hit_reason=reason, ranks=there))
        expected.sort(key=lambda c: (-c.raw_score, c.chunk.chunk_id))
        fused = retriever.fused(kept)
        assert list(fused) == expected
        assert retriever.fused(fused) == fused  # so where nothing was dropped nothing need be done


def test_a_cosine_is_the_same_to_the_last_bit_as_its_definition() -> None:
    """Thresholds are compared with it."""
    rng = random.Random(7)
    for _ in range(50):
        a, b = (tuple(rng.gauss(0, 0.06) for _ in range(256)) for _ in range(2))
        product = sum(x * y for x, y in zip(a, b, strict=True))
        assert cosine(a, b) == max(-1.0, min(1.0, product))
