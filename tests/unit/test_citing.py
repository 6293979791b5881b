"""Citing: what a long answer rests on is found beside the event loop, one answer at a time."""

import threading
import time

import anyio
import anyio.to_thread
import pytest

from gateway.answer.calls.generation import Generated
from gateway.answer.citation import cite_all, uncited
from gateway.answer.evidence import Evidence
from gateway.answer.support.citing import Citing
from gateway.stream.protocol import CitedSource, Usage
from tests.harness.chunks import sample_chunk

PATIENCE_S = 10
PASSAGE = "Refunds are paid within 14 days."
LONG = "Refunds are paid within 14 days [1]. " * 60


class Watched(str):
    """A passage that says who reads it, and lets him go on when told."""

    def __new__(cls, text: str = PASSAGE) -> "Watched":
        return super().__new__(cls, text)

    def __init__(self, *_: str) -> None:
        self.reader: int | None = None
        self.reached = threading.Event()
        self.go_on = threading.Event()

    def split(self, *arguments: object) -> list[str]:
        self.reader = threading.get_ident()
        self.reached.set()
        if self.reader != threading.main_thread().ident:
            assert self.go_on.wait(PATIENCE_S)
        return str(self).split("\n")


def answer(text: str) -> Generated:
    return Generated(text, (1,), 0, Usage(1, 1, estimated=False), "stop", no_support=False)


def evidence(passage: str) -> tuple[Evidence, ...]:
    return (Evidence(1, sample_chunk(passage), 0.5, 0.1, "rrf", "dense #1"),)


async def reached(passage: Watched) -> None:
    assert await anyio.to_thread.run_sync(passage.reached.wait, PATIENCE_S)


async def test_a_short_answer_is_read_where_it_is() -> None:
    """A thread would take longer than the reading."""
    passage = Watched()
    found = await Citing().citations(answer("Refunds are paid within 14 days [1]."), evidence(passage))
    (cited,) = found.sources
    assert found.uncited == 0
    assert (cited.quote, cited.supported) == (PASSAGE, True)
    assert passage.reader == threading.get_ident()


async def test_a_long_answer_does_not_hold_up_the_others() -> None:
    """The loop goes on while it is read, and what is found is the same."""
    passage = Watched()
    found: list[CitedSource] = []

    async def cite() -> None:
        found.extend((await Citing().citations(answer(LONG), evidence(passage))).sources)

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cite)
            await reached(passage)
            assert not found
            passage.go_on.set()
    assert [(cited.quote, cited.supported) for cited in found] == [(PASSAGE, True)]
    assert passage.reader != threading.get_ident()


async def test_who_is_cancelled_leaves_at_once() -> None:
    """A deadline or a revocation doesn't wait for a thread; the next answer doesn't either."""
    citing, held, free = Citing(), Watched(), Watched()
    free.go_on.set()
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(citing.citations, answer(LONG), evidence(held))
            await reached(held)
            tasks.cancel_scope.cancel()
        assert await citing.citations(answer(LONG), evidence(free))
    held.go_on.set()


async def test_long_answers_are_read_one_after_the_other() -> None:
    """All at once they would only take the interpreter from each other, and from the loop."""
    citing, first, second = Citing(), Watched(), Watched()
    second.go_on.set()
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(citing.citations, answer(LONG), evidence(first))
            await reached(first)
            tasks.start_soon(citing.citations, answer(LONG), evidence(second))
            await anyio.wait_all_tasks_blocked()
            assert not second.reached.is_set()
            first.go_on.set()
    assert second.reached.is_set()


ENDLESS = {
    "abbreviations": "e.g. " * 25_000,
    "small letters": "a. " * 25_000,
    "blanks": " " * 100_000 + "x",
    "a rule that is none": "a|b\n--" + " " * 50_000 + "x|",
}


@pytest.mark.parametrize("text", ENDLESS.values(), ids=ENDLESS)
def test_no_text_takes_the_square_of_its_length(text: str) -> None:
    """Half a minute each, and no thread helps: an expression keeps the interpreter to its end."""
    before = time.thread_time()
    assert len(cite_all(text + " [1]", {1: (sample_chunk(PASSAGE),)})) == 1
    assert uncited(text) >= 0
    assert time.thread_time() - before < PATIENCE_S / 2
