"""The validator and readers that are behind: asked again for a bounded time, and never believed sooner."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from gateway.adapters.memory.vectors import MemoryVectors
from gateway.context import Deadline
from gateway.errors import InvariantViolated
from gateway.ingest.plan import ReleasePlan
from gateway.ingest.rows import TermCounter
from gateway.ingest.validator import Validator
from gateway.release.model import EmbeddingSpace, RetrievalConfig
from gateway.retrieval.chunk import Chunk, row_id, stable_hash
from gateway.retrieval.query import ScopedQuery
from gateway.retrieval.store import Hit, Row
from tests.harness.chunks import sample_chunk

SPACE = EmbeddingSpace("space", "test", 2)
CHUNK = replace(sample_chunk("All of it."), content_hash=stable_hash("All of it."))
ROW = Row(CHUNK, (1.0, 0.0), ("all",))
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


class Deaf(MemoryVectors):
    """Finds by a single word only what is named ``other``."""

    async def lexical(
        self, query: ScopedQuery, terms: Sequence[str], limit: int, deadline: Deadline
    ) -> list[Hit]:
        found = await super().lexical(query, terms, limit, deadline)
        return [hit for hit in found if len(terms) > 1 or hit.chunk.chunk_id == "other"]


def rows(*terms: tuple[str, ...]) -> list[Row]:
    """One for each set of words, the first of them sampled, the last one named ``other``."""
    names = [*(f"c{n}" for n in range(len(terms) - 1)), "other"]
    return [
        Row(replace(CHUNK, chunk_id=name, row_id=row_id("r1", name)), (1.0, 0.0), words)
        for name, words in zip(names, terms, strict=True)
    ]


async def validated_rows(vectors: MemoryVectors, written: list[Row], lost: int = 0) -> dict[str, object]:
    """All but ``lost`` of them are stored under their class; one of as many others is stored instead."""
    await vectors.prepare(SPACE)
    counted = TermCounter()
    for row in written:
        counted.add(row)
    moved = [Row(replace(row.chunk, acl_class=7), row.vector, row.terms) for row in written[:lost]]
    await vectors.write(SPACE, "r1", [*moved, *written[lost:]])
    await vectors.seal(SPACE, "r1")
    return await Validator(vectors, vectors).validate(PLAN, len(written), written[-1:], counted)


async def test_the_passages_of_each_class_are_counted() -> None:
    """One that went to another class is missed, though the sum is right."""
    written = rows(("all",), ("all",), ("all", "rare"))
    barrier = await validated_rows(MemoryVectors(), written)
    assert barrier["classes"] == {str(CHUNK.acl_class): 3}
    with pytest.raises(InvariantViolated, match="number of passages"):
        await validated_rows(MemoryVectors(), written, lost=1)


async def test_a_row_that_its_rarest_word_does_not_find_fails_the_release() -> None:
    """Though its words together find something."""
    written = list(reversed(rows(("all", "common"), ("all", "rare"))))
    await validated_rows(MemoryVectors(), written)
    with pytest.raises(InvariantViolated, match="rarest word"):
        await validated_rows(Deaf(), written)


async def test_a_word_that_many_passages_have_proves_nothing() -> None:
    """No route shows all of them."""
    await validated_rows(Deaf(), rows(*[("all", "common")] * 40)[::-1])


async def test_a_text_that_is_not_what_the_manifest_names_fails_the_release() -> None:
    """Whatever the store says about it."""
    chunk = replace(CHUNK, content="Half of it.")
    with pytest.raises(InvariantViolated, match="manifest"):
        await validated_rows(MemoryVectors(), [Row(chunk, (1.0, 0.0), ("half",))])
