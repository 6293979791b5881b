"""Calling the answer model: what one call may use is reserved before it and settled after it."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import anyio

from gateway.admission.quota import Quota, ReservationKey
from gateway.answer.calls.attempt import Attempt, Call
from gateway.answer.calls.endpoints import Endpoint, Endpoints, NextCall, Round
from gateway.answer.calls.generation import Generated, Generation
from gateway.answer.calls.moderation import OutputPolicy
from gateway.answer.calls.outlet import outlet_of
from gateway.answer.calls.sink import Sink
from gateway.answer.evidence import Evidence
from gateway.answer.prompt import Prompt
from gateway.context import Deadline, RequestContext
from gateway.errors import DeadlineExceeded, QuotaExceeded, QuotaUnavailable, UpstreamFailed
from gateway.observe.trace import Trace
from gateway.release.model import RetrievalRelease
from gateway.stream.session import CloseReason

T = TypeVar("T")

#: the calls of an answer are numbered from 1
_ASIDE = 0


class ModelCalls:
    """The calls of answers: the first choice, its repetition, the second endpoint."""

    def __init__(
        self,
        endpoints: Endpoints,
        quota: Quota,
        *,
        call_tokens: int,
        retries: int,
        first_token_cap_ms: int,
        policy: OutputPolicy | None = None,
    ) -> None:
        """``call_tokens``: the most one call may use, prompt and answer together. ``retries``: how many calls
        of one answer may repeat another. ``first_token_cap_ms``: as long it may be waited for, and as
        much time it needs then.
        """
        self._endpoints = endpoints
        self._quota = quota
        self._call_tokens = call_tokens
        self._retries = retries
        self._first_token_s = first_token_cap_ms / 1000
        self._policy = policy

    def of(self, release: RetrievalRelease) -> "ModelCalls":
        """The calls of answers from this release: the model adapter that it names is their first choice."""
        endpoints = self._endpoints.led_by(release.model)
        if endpoints is self._endpoints:
            return self
        calls = copy.copy(self)
        calls._endpoints = endpoints
        return calls

    @property
    def name(self) -> str:
        """The model of the first choice."""
        return self._endpoints.first.model.name

    @property
    def first(self) -> Endpoint:
        return self._endpoints.first

    @property
    def max_sensitivity(self) -> int:
        """Passages above this never leave to the first choice, nor what it makes of them to the moderator.

        What is evidence doesn't depend on which endpoint is up.
        """
        model = self._endpoints.first.model.max_sensitivity
        return model if self._policy is None else min(model, self._policy.moderator.max_sensitivity)

    def check(self) -> None:
        """Raises UpstreamFailed with Retry-After when no endpoint would be asked now."""
        self._endpoints.check()

    async def reserve(self, sink: Sink, context: RequestContext, evidence: Sequence[Evidence]) -> Attempt:
        """For the first call; held by the sink. Raises QuotaExceeded, QuotaUnavailable, UpstreamFailed."""
        return await self._reserve(self._endpoints.choose(evidence), 1, sink, context)

    async def run_aside(
        self,
        call: Call[T],
        context: RequestContext,
        *,
        tokens: int,
        on_lost: Callable[[], None],
        deadline: Deadline,
    ) -> T:
        """One short call of the first choice, before those of the answer; nothing repeats it. ``on_lost``
        ends it when its place in the quota is gone. Raises as ``reserve`` does, and what the call raises.
        """
        attempt = await self._admit(self.first, _ASIDE, tokens, context, on_lost)
        return await attempt.run(call, deadline)

    async def generate(
        self, attempt: Attempt, sink: Sink, trace: Trace, context: RequestContext, prompt: Prompt
    ) -> Generated:
        """Streams the answer to the sink; a call that fails before its first text may be repeated.

        Raises UpstreamFailed, DeadlineExceeded, AnswerBlocked, ModerationUnavailable.
        """
        calls = Round(self._endpoints, prompt.evidence, self._retries, self._first_token_s)
        trace.note(exported=[part.chunk_id for item in prompt.evidence for part in item.parts])
        asked: list[str] = []
        while True:
            asked.append(attempt.endpoint.model.name)
            trace.note(model=asked[-1], models_asked=asked)
            outlet = outlet_of(self._policy, sink, trace, context.deadline)
            generation = Generation(attempt.endpoint.model, prompt, sink, trace, outlet, attempt.text_came)
            try:
                generated = await attempt.run(generation, context.deadline)
                return replace(generated, second_choice=attempt.endpoint is not self._endpoints.first)
            except (UpstreamFailed, DeadlineExceeded) as failure:
                left_s = context.deadline.remaining()
                following = None if generation.began else calls.after(attempt.endpoint, failure, left_s)
                if following is None:
                    raise
                again = await self._again(following, len(asked) + 1, sink, context)
                if again is None:
                    raise
            attempt = again
            trace.hooks.model_retry(following.kind)

    async def _again(
        self, following: NextCall, number: int, sink: Sink, context: RequestContext
    ) -> Attempt | None:
        """None when there is no place for it: then the failure before it is what is told."""
        await anyio.sleep(following.pause_s)
        try:
            return await self._reserve(following.endpoint, number, sink, context)
        except (QuotaExceeded, QuotaUnavailable, UpstreamFailed):
            return None

    async def _reserve(self, endpoint: Endpoint, number: int, sink: Sink, context: RequestContext) -> Attempt:
        attempt = await self._admit(endpoint, number, self._call_tokens, context, _ending(sink))
        sink.hold(attempt)
        return attempt

    async def _admit(
        self,
        endpoint: Endpoint,
        number: int,
        tokens: int,
        context: RequestContext,
        on_lost: Callable[[], None],
    ) -> Attempt:
        name = endpoint.model.name
        trial = endpoint.admit()
        try:
            lease = await self._quota.reserve(
                ReservationKey(context.request_id, number, name),
                context.scope.tenant,
                name,
                tokens,
                on_lost,
            )
        except BaseException:
            trial.release()
            raise
        return Attempt(endpoint, trial, lease)


def _ending(sink: Sink) -> Callable[[], None]:
    """What a lost lease does: a call without its place may not go on."""

    def lost() -> None:
        sink.cancel(CloseReason.QUOTA_LOST)

    return lost
