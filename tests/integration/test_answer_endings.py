"""The last moments of an answer and of a refusal: verified once more, and never held up by what is kept."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from gateway.access.authorizer import CatalogRecheck
from gateway.access.principal import Principal
from gateway.adapters.memory.models import Gate
from gateway.answer.conversation import ConversationKey, Conversations, Turn
from gateway.answer.question import Question
from gateway.context import Deadline
from gateway.errors import AuthorizerUnavailable, PermissionsChanged
from gateway.observe.trace import Trace
from gateway.retrieval.candidate import Candidate
from gateway.retrieval.lexicon import TermStatistics
from gateway.stream.channel import EventChannel
from gateway.stream.revocation import RevocationKind
from gateway.stream.session import Session
from tests.harness.serving import serving_world
from tests.harness.wire import connected
from tests.harness.world import Hold, World, open_gate

PATIENCE_S = 20
LIMITS = "# Limits\n\nThe upload limit is 42 megabytes for every member of staff.\n"
QUESTION = "What is the upload limit?"
NOWHERE = "What is the upload limit of zebra E-991?"
ANN = Principal("acme", "ann", frozenset({"staff"}), frozenset({"ask"}), 4e9)


@dataclass
class HeldReranker:
    """Waits before it judges."""

    version: str = "held-1"
    max_sensitivity: int = 3
    in_process: bool = False
    gate: Gate = field(default_factory=Gate)

    async def scores(
        self,
        question: str,
        candidates: Sequence[Candidate],
        statistics: TermStatistics,
        deadline: Deadline,
    ) -> list[float]:
        await self.gate.wait()
        return [-float(place) for place in range(len(candidates))]


class BrokenTurns:
    """A store whose writes fail with what its port doesn't name."""

    def __init__(self) -> None:
        self.asked = 0

    async def turns(self, key: ConversationKey, since: float, limit: int) -> list[Turn]:
        return []

    async def add_turn(self, turn: Turn, most: int) -> None:
        self.asked += 1
        raise AuthorizerUnavailable

    async def erase_turns(self, tenant: str, subject: str) -> int:
        return 0

    async def purge_turns(self, older_s: float) -> int:
        return 0


@asynccontextmanager
async def learned(**settings: Any) -> AsyncIterator[World]:
    world = World(**settings)
    await world.learn({"limits.md": LIMITS})
    with anyio.fail_after(PATIENCE_S):
        yield world


async def test_a_refusal_is_verified_after_its_rerank() -> None:
    """What it says was searched counts nothing that was revoked meanwhile."""
    reranker = HeldReranker()
    async with learned(reranker=reranker, config=open_gate("held-1")) as world:
        await world.services.feed.step()
        trace = Trace("req_1", "trace_1", world.services.metrics)
        session = Session("req_1", EventChannel(1 << 16, 0, 1))
        session.principal = ANN

        async def ask() -> None:
            with pytest.raises(PermissionsChanged):
                await world.services.orchestrator.answer(
                    session, trace, ANN, Question(NOWHERE), Deadline.after(60_000)
                )

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await reranker.gate.reached.wait()
            [document] = await world.catalog.documents("acme", "handbook")
            await world.catalog.revoke("acme", RevocationKind.DOCUMENT, document.document_id, "gone", "eve")
            reranker.gate.release.set()
        session.release_all()
    assert not session.opened


async def test_a_turn_that_is_slow_to_keep_holds_neither_a_place_nor_the_end() -> None:
    """The answer is told whole while the store still hasn't answered, however long the catalog may take."""
    hold = Hold()
    settings = {"catalog_cap_ms": 3_600_000, "total_cap_ms": 3_600_000}
    async with learned(holds={"catalog.add_turn": hold}, **settings) as world, serving_world(world) as port:
        async with connected(port) as wire:
            await wire.ask(world.token(), QUESTION, conversation_id="talk")
            await hold.gate.reached.wait()
            assert {b.name for b in world.services.bulkheads if b.in_use} == {"sessions"}
            events = await wire.all_events()
        await world.registry.idle()
        world.assert_nothing_held()
    assert events[-1].data["status"] == "ANSWERED"
    assert not hold.gate.release.is_set()


@pytest.mark.parametrize(("left_ms", "asked"), [(60_000, 1), (500, 0)])
async def test_no_failure_to_keep_a_turn_ends_an_answer(left_ms: float, asked: int) -> None:
    """Whatever the store raises; in the last moments, which a whole answer needs, it isn't asked."""
    turns = BrokenTurns()
    async with learned() as world:
        await world.services.feed.step()
        trace = Trace("req_1", "trace_1", world.services.metrics)
        context = await world.services.orchestrator.bind(ANN, None, trace, Deadline.after(left_ms))
        recheck = CatalogRecheck(world.catalog)
        conversations = Conversations(turns, recheck, most_turns=6, hours=1, catalog_cap_ms=1000)
        await conversations.keep(context, Question(QUESTION, conversation_id="talk"), frozenset())
    assert turns.asked == asked


async def test_the_id_of_a_conversation_is_written_down_nowhere_but_with_its_turns() -> None:
    """Its sender may have put anything into it; two people's are told apart, one's are the same."""
    said = "my salary is 90000"
    async with learned() as world:
        with capture_logs() as lines:
            async with serving_world(world) as port:
                for subject in ("ann", "ann", "bob"):
                    async with connected(port) as wire:
                        await wire.ask(world.token(subject=subject), QUESTION, conversation_id=said)
                        await wire.all_events()
                    await world.registry.idle()
        entries = await world.catalog.entries("acme", 10, "answer")
    names = [entry.details["conversation"] for entry in entries]
    assert len(names) == 3
    assert len(set(names)) == 2
    assert {line["conversation"] for line in lines if line["event"] == "answer.ended"} == set(names)
    assert "salary" not in json.dumps([lines, [entry.details for entry in entries]], default=str)
