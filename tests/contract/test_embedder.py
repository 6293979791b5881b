"""The embedder's contract: over the twin, the bundled model and an endpoint that speaks OpenAI's API."""

import math
from collections.abc import AsyncIterator, Sequence

import anyio
import pytest

from gateway.adapters.embedded.embedder import BundledEmbedder
from gateway.adapters.memory.models import FixedEmbedder
from gateway.adapters.openai.embedding import OpenAIEmbedder
from gateway.context import Deadline
from gateway.errors import DeadlineExceeded
from gateway.retrieval.embedding import Embedder, Vector
from loadtest.model_stub import serve_stub

TEXTS = [
    "How are refunds paid to customers?",
    "Refunds are paid to customers within 14 days.",
    "Rockets burn liquid oxygen.",
    "退款多久到账",
    "😀 👨‍👩‍👧",
    '"quoted" \\ \n\t\u2028 \x00',
    "refund " * 3000,
]


@pytest.fixture(scope="module")
def bundled() -> BundledEmbedder:
    """Loaded once: it takes a second."""
    return BundledEmbedder.load_now()


@pytest.fixture(params=["memory", "embedded", "real"])
async def embedder(request: pytest.FixtureRequest) -> AsyncIterator[Embedder]:
    """One of each kind. The endpoint serves the bundled model under a name of its own."""
    if request.param == "memory":
        yield FixedEmbedder()
    elif request.param == "embedded":
        yield request.getfixturevalue("bundled")
    else:
        async with serve_stub() as stub:
            remote = OpenAIEmbedder(
                stub.base_url, "stub-embedder", None, 256, max_sensitivity=1, connect_cap_ms=5000, batch=3
            )
            yield remote
            await remote.aclose()


async def embed(embedder: Embedder, texts: Sequence[str]) -> list[Vector]:
    with anyio.fail_after(20):
        return await embedder.embed(texts, Deadline.after(20_000))


def cosine(one: Vector, other: Vector) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


async def test_every_text_gets_one_unit_vector_of_the_space(embedder: Embedder) -> None:
    """Any script, any control character, any length."""
    vectors = await embed(embedder, TEXTS)
    assert [len(vector) for vector in vectors] == [embedder.space.dimension] * len(TEXTS)
    for vector in vectors:
        assert math.hypot(*vector) == pytest.approx(1, abs=1e-5)
        assert set(map(type, vector)) == {float}


async def test_a_vector_depends_on_its_text_alone(embedder: Embedder) -> None:
    """Alone, among others, or in another place: the same, in the order of the texts."""
    together = await embed(embedder, TEXTS)
    assert [(await embed(embedder, [text]))[0] for text in TEXTS] == together
    assert await embed(embedder, [*TEXTS[::-1], TEXTS[0]]) == [*together[::-1], together[0]]


async def test_no_texts_are_no_vectors(embedder: Embedder) -> None:
    """And no error."""
    assert await embed(embedder, []) == []


async def test_shared_words_bring_vectors_near(embedder: Embedder) -> None:
    """Nearer than nothing in common."""
    question, near, far = await embed(embedder, TEXTS[:3])
    assert cosine(question, near) > cosine(question, far)


async def test_a_passed_deadline_is_told_as_the_embedding_stages(embedder: Embedder) -> None:
    """Nothing is computed any more."""
    with pytest.raises(DeadlineExceeded) as passed:
        await embedder.embed(TEXTS, Deadline.after(0))
    assert passed.value.stage == "embedding"


async def test_a_cancel_leaves_it_usable(embedder: Embedder) -> None:
    """However far the call had come."""
    wanted = await embed(embedder, TEXTS)
    for turns in range(6):
        async with anyio.create_task_group() as group:
            group.start_soon(embed, embedder, TEXTS)
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
    assert await embed(embedder, TEXTS) == wanted


async def test_calls_at_the_same_time_do_not_mix(embedder: Embedder) -> None:
    """Each gets the vectors of its own texts."""
    wanted = await embed(embedder, TEXTS)
    found: dict[int, Vector] = {}

    async def one(place: int) -> None:
        (found[place],) = await embed(embedder, [TEXTS[place % len(TEXTS)]])

    async with anyio.create_task_group() as group:
        for place in range(3 * len(TEXTS)):
            group.start_soon(one, place)
    assert [found[place] for place in range(3 * len(TEXTS))] == wanted * 3


async def test_it_says_what_it_is_cleared_for_and_keeps_its_space(embedder: Embedder) -> None:
    """A sensitivity from public to secret; the space doesn't change with use."""
    before = embedder.space
    await embed(embedder, TEXTS[:1])
    assert embedder.space == before
    assert before.space_id
    assert embedder.max_sensitivity in range(4)
