"""EmbeddingQueue before a scripted embedder: who gives up, or sends something bad, harms nobody else."""

from collections.abc import Sequence

import anyio
import anyio.lowlevel
import pytest

from gateway.adapters.children.embedding_queue import EmbeddingQueue
from gateway.adapters.memory.models import FixedEmbedder
from gateway.context import Deadline
from gateway.errors import DeadlineExceeded, EmbedderUnavailable
from gateway.retrieval.embedding import Vector

BAD = "a text that ends the process"


class Scripted(FixedEmbedder):
    """Calls wait until ``go``; ``batches`` has the texts of each, ``broken`` how many of them were ended."""

    def __init__(self) -> None:
        super().__init__()
        self.go = anyio.Event()
        self.batches: list[list[str]] = []
        self.broken = 0
        self.closed = False

    async def embed(self, texts: Sequence[str], deadline: Deadline) -> list[Vector]:
        self.batches.append(list(texts))
        try:
            await self.go.wait()
        except BaseException:
            self.broken += 1
            raise
        if BAD in texts:
            raise EmbedderUnavailable("it ended")
        return await super().embed(texts, deadline)

    async def aclose(self) -> None:
        self.closed = True


def soon() -> Deadline:
    return Deadline.after(20_000)


async def under_way(child: Scripted) -> None:
    with anyio.fail_after(20):
        while not child.batches:
            await anyio.lowlevel.checkpoint()


async def test_questions_that_wait_are_embedded_together_and_each_gets_its_own() -> None:
    """The first alone, since nobody waited with it."""
    child = Scripted()
    queue, found = EmbeddingQueue(child), dict[str, list[Vector]]()

    async def ask(*texts: str) -> None:
        found[texts[0]] = await queue.embed(texts, soon())

    async with anyio.create_task_group() as group:
        group.start_soon(ask, "first")
        await under_way(child)
        for texts in (("second",), ("third", "fourth")):
            group.start_soon(ask, *texts)
        await anyio.lowlevel.checkpoint()
        child.go.set()
    assert child.batches == [["first"], ["second", "third", "fourth"]]
    whole = await child.embed(["first", "second", "third", "fourth"], soon())
    assert [*found["first"], *found["second"], *found["third"]] == whole


@pytest.mark.parametrize("leaves_by", ["cancel", "deadline"])
async def test_who_gives_up_leaves_the_process_at_its_work(leaves_by: str) -> None:
    """And the next one is answered by it, not by a new one that first has to load its model."""
    child = Scripted()
    queue = EmbeddingQueue(child)
    async with anyio.create_task_group() as group:
        if leaves_by == "cancel":
            group.start_soon(queue.embed, ["gone"], soon())
            await under_way(child)
            group.cancel_scope.cancel()
        else:
            with pytest.raises(DeadlineExceeded) as late:
                await queue.embed(["gone"], Deadline.after(20))
            assert late.value.stage == "embedding"
    assert child.broken == 0
    child.go.set()
    assert await queue.embed(["next"], soon()) == await child.embed(["next"], soon())


async def test_a_question_that_nobody_waits_for_any_more_is_not_embedded() -> None:
    """It was still in the queue when he left."""
    child = Scripted()
    queue = EmbeddingQueue(child)
    async with anyio.create_task_group() as group:
        group.start_soon(queue.embed, ["first"], soon())
        await under_way(child)
        with pytest.raises(DeadlineExceeded):
            await queue.embed(["gone"], Deadline.after(20))
        child.go.set()
    assert child.batches == [["first"]]


async def test_a_text_that_ends_the_process_fails_who_sent_it_alone() -> None:
    """Those in the same batch are asked again without it."""
    child = Scripted()
    queue, ends = EmbeddingQueue(child), dict[str, object]()

    async def ask(text: str) -> None:
        try:
            ends[text] = await queue.embed([text], soon())
        except EmbedderUnavailable as error:
            ends[text] = error

    async with anyio.create_task_group() as group:
        group.start_soon(ask, "first")
        await under_way(child)
        for text in ("second", BAD, "third"):
            group.start_soon(ask, text)
        await anyio.lowlevel.checkpoint()
        child.go.set()
    assert isinstance(ends[BAD], EmbedderUnavailable)
    for text in ("first", "second", "third"):
        assert ends[text] == await child.embed([text], soon())


async def test_a_deadline_that_has_passed_asks_nothing() -> None:
    """Also for no texts at all."""
    child = Scripted()
    for texts in (["late"], []):
        with pytest.raises(DeadlineExceeded):
            await EmbeddingQueue(child).embed(texts, Deadline.after(0))
    assert child.batches == []


async def test_closing_tells_everybody_who_waits_and_closes_the_process() -> None:
    """Those under way, those in the queue, and those who come later."""
    child = Scripted()
    queue, told = EmbeddingQueue(child), list[EmbedderUnavailable]()

    async def ask(text: str) -> None:
        try:
            await queue.embed([text], soon())
        except EmbedderUnavailable as error:
            told.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(ask, "first")
        await under_way(child)
        group.start_soon(ask, "second")
        await anyio.lowlevel.checkpoint()
        await queue.aclose()
    assert len(told) == 2
    assert child.closed
    with pytest.raises(EmbedderUnavailable):
        await queue.embed(["later"], soon())
    assert not await queue.ping()


async def test_closing_tells_him_too_whose_question_is_not_looked_at_yet() -> None:
    """The task that would have answered is ended before it begins."""
    child = Scripted()
    queue, told = EmbeddingQueue(child), list[EmbedderUnavailable]()

    async def ask() -> None:
        with pytest.raises(EmbedderUnavailable) as closed:
            await queue.embed(["first"], soon())
        told.append(closed.value)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            group.start_soon(queue.aclose)
    assert len(told) == 1
    assert child.batches == []


async def test_it_is_ready_when_a_word_can_be_embedded() -> None:
    """And says the space and the clearance of its process."""
    child = Scripted()
    child.go.set()
    queue = EmbeddingQueue(child)
    assert await queue.ping()
    assert queue.space == child.space
    assert queue.max_sensitivity == child.max_sensitivity
