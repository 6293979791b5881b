"""The answer model's contract: over the scripted twin, extractive answers and a chat endpoint."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
import anyio.lowlevel
import pytest

from gateway.adapters.embedded.extractive import ExtractiveModel
from gateway.adapters.memory.models import FixedEmbedder, Gate, ScriptedModel
from gateway.adapters.openai.model import OpenAIModel
from gateway.answer.evidence import Evidence
from gateway.answer.model import AnswerModel, ModelFinish, ModelPiece, ModelUsage, TextPiece
from gateway.answer.prompt import Prompt, build_prompt
from gateway.context import Deadline
from gateway.errors import DeadlineExceeded, EmbedderUnavailable, Unavailable, UpstreamFailed
from loadtest.model_stub import serve_stub
from tests.harness.chunks import sample_chunk

PASSAGE = "A refund is paid within 14 days. 退款在14天内完成。\nRefunds need a receipt."
SENTENCES = [
    "A refund is paid within 14 days. [1]",
    "\n退款在14天内完成。 [1]",
    "\nRefunds 😀 need a receipt. [1]",
]
LONG_MS = 20_000


@dataclass(frozen=True)
class Kind:
    """A model, how to get one that fails or one that falls silent after two pieces where it can, and how to
    learn that no call is open any more.

    ``text`` is the whole answer where the test decides it.
    """

    model: AnswerModel
    failing: Callable[[], AnswerModel]
    silent: Callable[[], AnswerModel]
    all_closed: Callable[[], Awaitable[object]]
    text: str | None = None


@pytest.fixture(params=["memory", "embedded", "real"])
async def kind(request: pytest.FixtureRequest) -> AsyncIterator[Kind]:
    """One of each kind."""
    opened = {"memory": scripted, "embedded": extractive, "real": endpoint}[request.param]
    async with opened() as one:
        yield one


@pytest.fixture(autouse=True)
def _without_gc() -> Iterator[None]:
    """What is closed only by the garbage collector is not closed."""
    gc.disable()
    yield
    gc.enable()


@asynccontextmanager
async def scripted() -> AsyncIterator[Kind]:
    model = ScriptedModel(SENTENCES)
    failing = ScriptedModel(SENTENCES, fail={2: UpstreamFailed("scripted")})
    silent = ScriptedModel(SENTENCES, hold={2: Gate()})

    async def all_closed() -> None:
        for one in (model, failing, silent):
            assert one.closed == one.called

    yield Kind(model, lambda: failing, lambda: silent, all_closed, "".join(SENTENCES))


@asynccontextmanager
async def extractive() -> AsyncIterator[Kind]:
    model = ExtractiveModel(FixedEmbedder())
    failing = ExtractiveModel(FixedEmbedder(error=EmbedderUnavailable("scripted")))
    yield Kind(model, lambda: failing, lambda: model, anyio.lowlevel.checkpoint)


@asynccontextmanager
async def endpoint() -> AsyncIterator[Kind]:
    async with serve_stub(tokens=SENTENCES) as stub:
        model = OpenAIModel(
            stub.base_url,
            "stub",
            None,
            max_sensitivity=1,
            connect_cap_ms=LONG_MS,
            first_token_cap_ms=LONG_MS,
            idle_cap_ms=LONG_MS,
        )

        def failing() -> AnswerModel:
            stub.script(tokens=SENTENCES, die_after_tokens=2)
            return model

        def silent() -> AnswerModel:
            stub.script(tokens=SENTENCES, stall_after_tokens=2)
            return model

        async def all_closed() -> None:
            with anyio.fail_after(5):
                await stub.until(lambda s: all(call.closed_at is not None for call in s.calls))

        yield Kind(model, failing, silent, all_closed, "".join(SENTENCES))
        await model.aclose()


def prompt() -> Prompt:
    evidence = [Evidence(1, sample_chunk(PASSAGE), 0.8, 0.03, "rrf", "dense #1")]
    return build_prompt("When is a refund paid?", evidence, language="en", max_output_tokens=500)


async def read(model: AnswerModel, pieces: list[ModelPiece] | None = None) -> list[ModelPiece]:
    """All pieces of one answer; ``pieces`` keeps those that came before a failure."""
    pieces = [] if pieces is None else pieces
    with anyio.fail_after(20):
        async with model.stream(prompt(), Deadline.after(LONG_MS)) as stream:
            async for piece in stream:
                pieces.append(piece)
    return pieces


def text_of(pieces: list[ModelPiece]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, TextPiece))


async def test_the_pieces_join_to_the_text(kind: Kind) -> None:
    """Whole code points, no empty piece; the text answers with a citation."""
    texts = [piece for piece in await read(kind.model) if isinstance(piece, TextPiece)]
    assert all(piece.text for piece in texts)
    for piece in texts:
        piece.text.encode()
    assert kind.text in {None, text_of([*texts])}
    assert "paid within 14 days. [1]" in text_of([*texts])


async def test_an_answer_ends_with_usage_and_finish(kind: Kind) -> None:
    """In this order, once each, after all text; then the stream is over."""
    *texts, usage, finish = await read(kind.model)
    assert {type(piece) for piece in texts} == {TextPiece}
    assert isinstance(usage, ModelUsage)
    assert usage.input_tokens > 0
    assert usage.output_tokens > 0
    assert finish == ModelFinish("stop")
    await kind.all_closed()


async def test_a_stream_that_is_over_stays_over(kind: Kind) -> None:
    """Reading on brings no further piece."""
    async with kind.model.stream(prompt(), Deadline.after(LONG_MS)) as stream:
        assert [piece async for piece in stream][-1] == ModelFinish("stop")
        assert [piece async for piece in stream] == []


@pytest.mark.parametrize("pieces", [0, 1])
@pytest.mark.parametrize("how", ["leave", "exception", "cancel"])
async def test_leaving_closes_the_call(kind: Kind, how: str, pieces: int) -> None:
    """However the block is left, before the first piece or after it, while the model would go on."""
    model = kind.silent()

    async def left_early() -> None:
        async with model.stream(prompt(), Deadline.after(LONG_MS)) as stream:
            for _ in range(pieces):
                await anext(stream)
            if how == "exception":
                raise KeyError("the reader's own failure")
            if how == "cancel":
                task.cancel()
                await asyncio.Event().wait()

    task = asyncio.create_task(left_early())
    await asyncio.wait([task], timeout=5)
    assert task.done()
    assert task.cancelled() is (how == "cancel")
    if how == "exception":
        assert isinstance(task.exception(), KeyError)
    await kind.all_closed()


async def test_a_cancel_before_the_first_piece_closes_the_call(kind: Kind) -> None:
    """At whichever await it lands, while the call is being opened as well."""
    whole = await read(kind.model)
    for turns in range(8):
        async with anyio.create_task_group() as group:
            group.start_soon(read, kind.model)
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        await kind.all_closed()
    assert await read(kind.model) == whole


async def test_a_passed_deadline_is_told_as_such(kind: Kind) -> None:
    """Not as a failure of the model; nothing is said."""
    pieces: list[ModelPiece] = []
    with pytest.raises(DeadlineExceeded):
        async with kind.model.stream(prompt(), Deadline.after(0)) as stream:
            pieces += [piece async for piece in stream]
    assert pieces == []
    await kind.all_closed()


async def test_a_failure_is_the_gateways_own_error(kind: Kind) -> None:
    """Of the kind that means 503; nothing that looks like an end comes before it."""
    pieces: list[ModelPiece] = []
    with pytest.raises(Unavailable):
        await read(kind.failing(), pieces)
    assert {type(piece) for piece in pieces} <= {TextPiece}
    await kind.all_closed()


async def test_answers_at_the_same_time_do_not_mix(kind: Kind) -> None:
    """Each stream has its own state."""
    whole = await read(kind.model)
    answers = await asyncio.gather(*(read(kind.model) for _ in range(10)))
    assert answers == [whole] * 10


async def test_it_has_a_name_and_says_what_it_is_cleared_for(kind: Kind) -> None:
    """Both go into decisions before a call."""
    assert kind.model.name
    assert kind.model.max_sensitivity >= 0
