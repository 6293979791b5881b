"""Vector files and chunk files: what is written comes back, and nothing that is damaged does."""

import pytest

from gateway.adapters.memory.objects import MemoryObjects
from gateway.errors import InvariantViolated, NotFound
from gateway.ingest import chunkfile
from gateway.ingest.document import BuiltDocument, Passage
from gateway.ingest.validator import sample_positions
from gateway.ingest.vectors import VectorFiles, pack, unpack
from gateway.ingest.version import VectorPlace

VECTORS = [(1.0, 0.0, -0.5), (0.25, 3.0, 1e-3)]


class CountingObjects(MemoryObjects):
    """Counts reads."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []

    async def get(self, key: str) -> bytes:
        self.reads.append(key)
        return await super().get(key)


def test_vectors_come_back_as_float32() -> None:
    """Four bytes a number, little-endian; what float32 can hold comes back exactly."""
    packed = pack(VECTORS)
    assert len(packed) == 24
    assert packed[:4] == b"\x00\x00\x80?"
    found = unpack(packed, 3)
    assert found[0] == VECTORS[0]
    assert found[1] == pytest.approx(VECTORS[1])
    assert pack(found) == packed
    assert unpack(b"", 3) == []


def test_a_torn_file_holds_no_vectors() -> None:
    """Neither half a number nor half a vector is read as something shorter."""
    for cut in (1, 4, 8):
        with pytest.raises(InvariantViolated):
            unpack(pack(VECTORS)[:-cut], 3)


async def test_each_place_gives_its_own_vector_and_each_file_is_read_once() -> None:
    """However often the documents of one release ask for it."""
    objects = CountingObjects()
    await objects.put("one", pack(VECTORS))
    await objects.put("two", pack(VECTORS[:1]))
    files = VectorFiles(objects, 3)
    assert await files.vector(VectorPlace("one", 1)) == pytest.approx(VECTORS[1])
    assert await files.vector(VectorPlace("two", 0)) == VECTORS[0]
    assert await files.vector(VectorPlace("one", 0)) == VECTORS[0]
    assert objects.reads == ["one", "two"]


async def test_the_files_in_memory_are_bounded_by_their_size() -> None:
    """The ones used longest ago go first; a file that is larger than all of it is kept while it is used."""
    objects = CountingObjects()
    for n in range(3):
        await objects.put(f"f{n}", pack(VECTORS))
    await objects.put("large", pack(VECTORS * 3))
    files = VectorFiles(objects, 3, cached_bytes=48)
    for key in ("f0", "f1", "f0", "f2", "f0", "f1", "large", "large", "f0"):
        await files.vector(VectorPlace(key, 0))
    assert objects.reads == ["f0", "f1", "f2", "f1", "large", "f0"]


async def test_a_place_beyond_its_file_and_a_missing_file_are_told() -> None:
    """Never somebody else's vector, never a shorter one."""
    objects = MemoryObjects()
    await objects.put("one", pack(VECTORS))
    files = VectorFiles(objects, 3)
    with pytest.raises(InvariantViolated):
        await files.vector(VectorPlace("one", 2))
    with pytest.raises(NotFound):
        await files.vector(VectorPlace("gone", 0))


@pytest.mark.parametrize(
    ("content", "lost"),
    [
        (pack(VECTORS), set()),
        (None, {0, 1}),
        (b"", {0, 1}),
        (pack(VECTORS[:1]), {1}),
        (pack(VECTORS)[:-1], {0, 1}),
        (bytes(24), {0, 1}),
        (pack([VECTORS[0], (0.0, 0.0, 0.0)]), {1}),
    ],
)
async def test_lost_vectors_are_found_and_put_back_in_their_places(
    content: bytes | None, lost: set[int]
) -> None:
    """After a power cut a file may be gone, short, torn, or hold zeros; nobody else's vector is touched."""
    objects = MemoryObjects()
    if content is not None:
        await objects.put("one", content)
    places = {position: VectorPlace("one", position) for position in (0, 1)}
    files = VectorFiles(objects, 3)
    assert {n for n, place in places.items() if not await files.holds(place)} == lost
    await files.put_back({places[n]: VECTORS[n] for n in lost})
    again = VectorFiles(objects, 3)
    for n, place in places.items():
        assert await again.vector(place) == pytest.approx(VECTORS[n])


async def test_a_vector_that_was_not_put_back_stays_lost() -> None:
    """The place of another text in the same file never gives a vector that is none."""
    objects = MemoryObjects()
    files = VectorFiles(objects, 3)
    await files.put_back({VectorPlace("one", 2): VECTORS[1]})
    assert await files.vector(VectorPlace("one", 2)) == pytest.approx(VECTORS[1])
    for position in (0, 1, 3):
        assert not await files.holds(VectorPlace("one", position))
        with pytest.raises(InvariantViolated):
            await files.vector(VectorPlace("one", position))


def test_a_chunk_file_comes_back_whole() -> None:
    """Titles, versions, breadcrumbs, pages and raw contents in any script."""
    built = BuiltDocument(
        "说明 😀", "markdown/1", "structure/1", (Passage("A > B", "raw\n\ttext", 3), Passage("", "第一条"))
    )
    assert chunkfile.load(chunkfile.dump(built)) == built


@pytest.mark.parametrize(
    ("rows", "positions"),
    [(0, set()), (1, {0}), (3, {0, 1, 2}), (8, set(range(8))), (80, set(range(0, 80, 10)))],
)
def test_samples_are_spread_over_all_rows(rows: int, positions: set[int]) -> None:
    """Every row of a small revision, eight of a large one."""
    assert sample_positions(rows) == positions


def test_the_last_part_of_a_large_revision_is_sampled_too() -> None:
    """Eight samples leave no gap longer than an eighth."""
    positions = sorted(sample_positions(1003))
    assert len(positions) == 8
    assert max(b - a for a, b in zip(positions, [*positions[1:], 1003], strict=True)) <= 126
