"""A bench for model calls: scripted endpoints, a quota that remembers, one session to answer to."""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from gateway.access.principal import Principal
from gateway.access.scope import AccessScope
from gateway.adapters.memory.models import ScriptedModel
from gateway.admission.breaker import Breaker
from gateway.admission.quota import QuotaLease, ReservationKey
from gateway.answer.calls.calling import ModelCalls
from gateway.answer.calls.endpoints import Endpoint, Endpoints
from gateway.answer.calls.generation import Generated
from gateway.answer.calls.moderation import OutputPolicy
from gateway.answer.evidence import Evidence
from gateway.answer.prompt import Message, Prompt
from gateway.context import Deadline, RequestContext
from gateway.errors import GatewayError
from gateway.observe.metrics import Metrics
from gateway.observe.trace import Trace
from gateway.release.model import EmbeddingSpace, RetrievalConfig, RetrievalRelease
from gateway.stream.channel import EventChannel
from gateway.stream.protocol import AnswerStatus, Delta
from gateway.stream.session import CANCEL_REASONS, Session
from tests.harness.chunks import sample_chunk

CALL_TOKENS = 1000
#: what the prompt below is estimated at
PROMPT_TOKENS = 10


class InTurn:
    """An endpoint that plays another script at each call, the last one over and over."""

    def __init__(self, *scripts: ScriptedModel, name: str = "first", max_sensitivity: int = 3) -> None:
        self._scripts = scripts
        self.name = name
        self.max_sensitivity = max_sensitivity
        self.called = 0

    def stream(self, prompt: Prompt, deadline: Deadline) -> AbstractAsyncContextManager[Any]:
        script = self._scripts[min(self.called, len(self._scripts) - 1)]
        self.called += 1
        return script.stream(prompt, deadline)


def failing(
    error: GatewayError, at: int = -1, pieces: Sequence[str] = ("It is ", "42 [1].")
) -> ScriptedModel:
    return ScriptedModel(pieces, fail={at: error})


def working(*pieces: str) -> ScriptedModel:
    return ScriptedModel(pieces or ("It is ", "42 [1]."))


class RecordingQuota:
    """Has places for every call but those of ``refused`` endpoints; ``log`` is what happened, in order."""

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.refused: dict[str, GatewayError] = {}
        self.lost: list[Callable[[], None]] = []

    async def reserve(
        self,
        key: ReservationKey,
        tenant: str,
        model: str,
        tokens: int,
        on_lost: Callable[[], None] = lambda: None,
    ) -> QuotaLease:
        if key.endpoint in self.refused:
            raise self.refused[key.endpoint]
        assert (tenant, model) == ("acme", key.endpoint)
        assert tokens == CALL_TOKENS or key.attempt == 0  # 0: a short call beside those of the answer
        self.log.append(("reserve", key.attempt, key.endpoint))
        self.lost.append(on_lost)
        return RecordedLease(self.log, key)


class RecordedLease:
    def __init__(self, log: list[tuple[Any, ...]], key: ReservationKey) -> None:
        self._log = log
        self._key = key
        self._settled = False

    def settle(self, tokens: int | None) -> None:
        if not self._settled:
            self._settled = True
            self._log.append(("settle", self._key.attempt, tokens))

    def release(self) -> None:
        self.settle(None)


class Bench:
    """One answer being given by ``first``, and ``second`` where there is one."""

    def __init__(
        self,
        first: Any,
        second: Any = None,
        *,
        retries: int = 1,
        sensitivity: int = 0,
        policy: OutputPolicy | None = None,
        deadline_ms: float = 60_000,
        breaker_failures: int = 5,
        first_token_cap_ms: int = 2000,
    ) -> None:
        self.clock = 1000.0
        self.quota = RecordingQuota()
        self.first = Endpoint(first, Breaker(breaker_failures, 5, lambda: self.clock))
        self.second = (
            None if second is None else Endpoint(second, Breaker(breaker_failures, 5, lambda: self.clock))
        )
        self.calls = ModelCalls(
            Endpoints(self.first, self.second),
            self.quota,
            call_tokens=CALL_TOKENS,
            retries=retries,
            first_token_cap_ms=first_token_cap_ms,
            policy=policy,
        )
        self.metrics = Metrics(close_reasons=sorted(CANCEL_REASONS), statuses=map(str, AnswerStatus))
        self.evidence = (
            Evidence(1, sample_chunk("It is 42.", sensitivity=sensitivity), 0.5, 0.1, "rrf", "dense #1"),
        )
        self.prompt = Prompt("what?", self.evidence, (Message("user", "x" * 40),), 64, "en")
        self._deadline_ms = deadline_ms
        self.next_answer()

    def next_answer(self) -> None:
        """Another question."""
        self.channel = EventChannel(65_536, 0, 1)
        self.session = Session("r1", self.channel)
        self.trace = Trace("r1", "t1", self.metrics)
        self.context = _context(Deadline.after(self._deadline_ms))

    async def answer(self) -> Generated:
        """Reserves and generates inside the session's scope, and gives everything back."""
        try:
            with self.session.cancel_scope:
                attempt = await self.calls.reserve(self.session, self.context, self.evidence)
                return await self.calls.generate(attempt, self.session, self.trace, self.context, self.prompt)
            raise AssertionError("the session was cancelled")
        finally:
            self.session.release_all()

    async def sent(self) -> str:
        """The text that has left for the session so far; nothing can follow it."""
        self.channel.close()
        text = ""
        while (event := await self.channel.next()) is not None:
            text += event.text if isinstance(event, Delta) else ""
        return text

    def counted(self, name: str, **labels: str) -> float:
        value = self.metrics.registry.get_sample_value(name, labels)
        assert value is not None, name
        return value


def _context(deadline: Deadline) -> RequestContext:
    principal = Principal("acme", "ann", frozenset(), frozenset({"ask"}), time.time() + 600)
    scope = AccessScope(
        tenant="acme",
        kb_id="kb",
        knowledge_base="handbook",
        acl_revision=1,
        revocation_epoch=0,
        incarnation="i",
        principals=frozenset({"user:ann"}),
        permitted_classes=frozenset({1}),
    )
    space = EmbeddingSpace("space", "m", 8)
    release = RetrievalRelease(
        "rel", "acme", "kb", "handbook", "r1", 1, space, "c", RetrievalConfig.uncalibrated(space)
    )
    return RequestContext("r1", "t1", principal, scope, release, deadline)
