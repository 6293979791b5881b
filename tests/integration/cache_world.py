"""Worlds over one ground and one store of answers, as the processes of one installation have them."""

import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio

from gateway.access.principal import Principal
from gateway.adapters.memory.answers import MemoryAnswers
from gateway.answer.cache import AnswerStore
from gateway.answer.question import Question
from gateway.context import Deadline
from gateway.errors import GatewayError
from gateway.observe.trace import Trace
from gateway.settings import Settings
from gateway.stream.channel import EventChannel
from gateway.stream.protocol import Delta, Done, Event, Meta
from gateway.stream.session import Session
from tests.harness.serving import followed
from tests.harness.world import Ground, World, twins

QUESTION = "What is the upload limit?"
TEXTS = {"limits.md": "# Limits\n\nThe upload limit is 42 megabytes.\n"}
_STORE_BYTES = 16 * 1024 * 1024
_PATIENCE_MS = 30_000


def person(
    subject: str = "ann", groups: Sequence[str] = ("staff",), *, tenant: str = "acme", ttl_s: float = 600
) -> Principal:
    """As a verified token makes one."""
    return Principal(tenant, subject, frozenset(groups), frozenset({"ask"}), time.time() + ttl_s)


@dataclass(frozen=True)
class Told:
    """What one asker was told; ``failure`` came before anything else was."""

    events: tuple[Event, ...]
    failure: GatewayError | None = None

    @property
    def meta(self) -> Meta:
        meta = self.events[0]
        assert isinstance(meta, Meta)
        return meta

    @property
    def done(self) -> Done:
        done = self.events[-1]
        assert isinstance(done, Done), done
        return done

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, Delta))

    @property
    def cached(self) -> bool:
        assert self.meta.cached == self.done.cached
        return self.done.cached


async def answered(world: World, principal: Principal, question: Question) -> Told:
    """Asks without a socket: the path of a question between its door and its response."""
    session = Session(f"req_{uuid.uuid4().hex}", EventChannel(65_536, coalesce_ms=0, coalesce_bytes=1))
    session.principal = principal
    with world.registry.registered(session):
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_pump, world, session, principal, question)
                failure = await session.opening()
                events = tuple([event async for _, event in session.events()])
        finally:
            session.release_all()
    return Told(events, failure)


async def _pump(world: World, session: Session, principal: Principal, question: Question) -> None:
    trace = Trace(session.request_id, uuid.uuid4().hex, world.services.metrics)
    deadline = Deadline.after(_PATIENCE_MS)
    with session.cancel_scope:
        try:
            await world.services.orchestrator.answer(session, trace, principal, question, deadline)
        except GatewayError as failure:
            session.fail(failure)


@dataclass(frozen=True)
class Desk:
    """A world, and those who ask it."""

    world: World

    async def ask(self, question: str = QUESTION, *, who: Principal | None = None, **fields: Any) -> Told:
        return await answered(self.world, who or person(), Question(question, **fields))

    def counted(self, name: str, **labels: str) -> float:
        """A counter's value so far."""
        value = self.world.services.metrics.registry.get_sample_value(name, labels)
        assert value is not None, (name, labels)
        return value


@dataclass(frozen=True)
class Installation:
    """What all of its processes share."""

    ground: Ground = field(default_factory=lambda: twins(Settings()))
    answers: AnswerStore = field(default_factory=lambda: MemoryAnswers(_STORE_BYTES))

    def world(self, **options: Any) -> World:
        """One more process of it."""
        given: dict[str, Any] = {"answer_cache_ttl_s": 600, "answer_sharing": True, **options}
        return World(**{"ground": self.ground, "answers": self.answers, **given})

    @asynccontextmanager
    async def desk(self, **options: Any) -> AsyncIterator[Desk]:
        """Its world follows what is revoked."""
        world = self.world(**options)
        async with followed(world):
            yield Desk(world)
        world.assert_nothing_held()
