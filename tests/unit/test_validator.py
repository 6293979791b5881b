"""The validator and readers that are behind: asked again for a bounded time, and never believed sooner."""

from collections.abc import Sequence

import pytest

from gateway.adapters.memory.vectors import MemoryVectors
from gateway.context import Deadline
from gateway.errors import InvariantViolated
from gateway.ingest.plan import ReleasePlan
from gateway.ingest.validator import Validator
from gateway.release.model import EmbeddingSpace, RetrievalConfig
from gateway.retrieval.chunk import Chunk
from gateway.retrieval.query import ScopedQuery
from gateway.retrieval.store import Row
from tests.harness.chunks import sample_chunk

SPACE = EmbeddingSpace("space", "test", 2)
ROW = Row(sample_chunk("All of it."), (1.0, 0.0), ("all",))
PLAN = ReleasePlan(
    release_id="release",
    tenant="acme",
    kb_id="kb",
    knowledge_base="handbook",
    kb_revision="r1",
    base_sequence=0,
    revocation_epoch=0,
    space=SPACE,
    config=RetrievalConfig("1", 1.0, 1.0, 1.0),
    manifest_hash="m",
    documents=(),
    unchanged_release=None,
)


class LateVectors(MemoryVectors):
    """Shows its rows from the ``shown``th look on."""

    def __init__(self, consistency: str, shown: float) -> None:
        super().__init__()
        self.consistency = consistency
        self._shown = shown
        self.looks = 0

    async def fetch(self, query: ScopedQuery, chunk_ids: Sequence[str], deadline: Deadline) -> list[Chunk]:
        self.looks += 1
        found = await super().fetch(query, chunk_ids, deadline)
        return found if self.looks >= self._shown else []


class Clock:
    """Moves only when somebody pauses."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    async def pause(self, seconds: float) -> None:
        self.now += seconds


async def validated(vectors: MemoryVectors, clock: Clock) -> dict[str, object]:
    """The barrier record of one sealed row."""
    await vectors.prepare(SPACE)
    await vectors.write(SPACE, "r1", [ROW])
    await vectors.seal(SPACE, "r1")
    return await Validator(vectors, vectors, clock=clock, pause=clock.pause).validate(PLAN, 1, [ROW])


async def test_a_reader_that_shows_its_rows_at_once_is_asked_once() -> None:
    """The record says so, and which consistency it read with."""
    clock = Clock()
    barrier = await validated(MemoryVectors(), clock)
    assert barrier["consistency"] == "immediate"
    assert barrier["repeats"] == 0
    assert barrier["rows"] == 1
    assert barrier["samples"] == ["c1"]
    assert clock.now == 0


async def test_a_reader_that_is_behind_is_asked_until_it_shows_the_rows() -> None:
    """Here at the third look; the record says how often it was asked again."""
    vectors = LateVectors("Bounded", shown=3)
    barrier = await validated(vectors, Clock())
    assert barrier["consistency"] == "Bounded"
    assert barrier["repeats"] == 2
    assert vectors.looks == 3


async def test_a_reader_that_never_shows_the_rows_fails_the_release_in_ten_seconds() -> None:
    """Patience has an end."""
    vectors, clock = LateVectors("Bounded", shown=float("inf")), Clock()
    with pytest.raises(InvariantViolated):
        await validated(vectors, clock)
    assert vectors.looks > 3
    assert 10 <= clock.now < 11


async def test_a_reader_that_is_never_behind_gets_no_second_look() -> None:
    """What it doesn't show is missing."""
    vectors, clock = LateVectors("immediate", shown=2), Clock()
    with pytest.raises(InvariantViolated):
        await validated(vectors, clock)
    assert vectors.looks == 1
    assert clock.now == 0
