"""Calling the answer model: what one call may use is reserved before it and settled after it."""

from collections.abc import Callable
from dataclasses import dataclass

from gateway.admission.quota import Quota, QuotaLease, ReservationKey
from gateway.answer.generation import Generated, Generation
from gateway.answer.model import AnswerModel
from gateway.answer.prompt import Prompt
from gateway.context import RequestContext
from gateway.observe.trace import Trace
from gateway.stream.session import CloseReason, Session


@dataclass(frozen=True, slots=True)
class Reserved:
    """The first call of an answer: on which model, and what is reserved for it."""

    model: AnswerModel
    lease: QuotaLease


class ModelCalls:
    """The calls of one answer: the first choice, its repetition, the second endpoint."""

    def __init__(self, model: AnswerModel, quota: Quota, call_tokens: int) -> None:
        """``call_tokens``: the most one call may use, prompt and answer together."""
        self._model = model
        self._quota = quota
        self._call_tokens = call_tokens

    @property
    def name(self) -> str:
        """The model that would be asked now."""
        return self._model.name

    @property
    def max_sensitivity(self) -> int:
        """Passages above this never leave to it."""
        return self._model.max_sensitivity

    def check(self) -> None:
        """Raises UpstreamFailed with Retry-After when no endpoint would be asked now."""

    async def reserve(self, session: Session, context: RequestContext) -> Reserved:
        """For the first call; held by the session. Raises QuotaExceeded, QuotaUnavailable."""
        key = ReservationKey(context.request_id, attempt=1, endpoint=self._model.name)
        lease = await self._quota.reserve(
            key, context.scope.tenant, self._model.name, self._call_tokens, _ending(session)
        )
        session.hold(lease)
        return Reserved(self._model, lease)

    async def generate(
        self, reserved: Reserved, session: Session, trace: Trace, context: RequestContext, prompt: Prompt
    ) -> Generated:
        """Streams the answer to the session. Raises UpstreamFailed or DeadlineExceeded."""
        trace.note(model=reserved.model.name, exported=[item.chunk.chunk_id for item in prompt.evidence])
        generated = await Generation(reserved.model, session, trace).run(prompt, context.deadline)
        reserved.lease.settle(generated.usage.input_tokens + generated.usage.output_tokens)
        return generated


def _ending(session: Session) -> Callable[[], None]:
    """What a lost lease does: a call without its place may not go on."""

    def lost() -> None:
        session.cancel(CloseReason.QUOTA_LOST)

    return lost
