"""The endpoints of answers, sans IO: the first choice, the second, and which one to ask next."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gateway.admission.breaker import Breaker, Trial
from gateway.answer.calls.fault import ModelRefused
from gateway.answer.evidence import Evidence
from gateway.answer.model import AnswerModel
from gateway.errors import DeadlineExceeded, UpstreamFailed
from gateway.observe.hooks import Retry

#: the waits that end by an endpoint's fault; the others belong to the question
_ENDPOINTS_STAGES = frozenset({"first_token", "idle"})


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A model at an address, and the breaker that watches it. ``adapter`` is what releases call it."""

    model: AnswerModel
    breaker: Breaker
    adapter: str = ""

    def clears(self, evidence: Iterable[Evidence]) -> bool:
        """Whether every passage may leave to it."""
        return all(item.sensitivity <= self.model.max_sensitivity for item in evidence)

    def admit(self) -> Trial:
        """One call's way to it; raises UpstreamFailed with Retry-After when it is left alone."""
        trial = self.breaker.admit()
        if trial is None:
            raise left_alone(self.breaker.retry_after_ms)
        return trial


@dataclass(frozen=True, slots=True)
class Endpoints:
    first: Endpoint
    second: Endpoint | None = None

    @property
    def both(self) -> Sequence[Endpoint]:
        return (self.first,) if self.second is None else (self.first, self.second)

    def led_by(self, adapter: str) -> "Endpoints":
        """With this one as the first choice; as they are when it isn't configured any more."""
        if self.second is None or self.second.adapter != adapter or self.first.adapter == adapter:
            return self
        return Endpoints(self.second, self.first)

    def check(self) -> None:
        """Raises UpstreamFailed with Retry-After when none would be asked now."""
        self.choose(())

    def choose(self, evidence: Sequence[Evidence]) -> Endpoint:
        """The better one of those that would be asked now; raises as ``check`` does."""
        cleared = [endpoint for endpoint in self.both if endpoint.clears(evidence)]
        for endpoint in cleared:
            if endpoint.breaker.admits:
                return endpoint
        wait_ms = min((endpoint.breaker.retry_after_ms for endpoint in cleared), default=None)
        raise left_alone(wait_ms)


@dataclass(frozen=True, slots=True)
class NextCall:
    """Whom to ask after a call that failed, and how long to wait before."""

    endpoint: Endpoint
    kind: Retry
    pause_s: float


class Round:
    """The calls of one answer.

    When the first choice fails the second one is asked, once; where there is none, or it may not be asked,
    the first one again. Not more than ``retries`` calls repeat another, but one for the second endpoint.
    An answer keeps its place while it waits, so it doesn't wait longer than for a first token, and only where
    the time for one (``first_token_s``) is left after it.
    """

    def __init__(
        self, endpoints: Endpoints, evidence: Sequence[Evidence], retries: int, first_token_s: float
    ) -> None:
        second = endpoints.second
        self._first = endpoints.first
        self._second = second if second is not None and second.clears(evidence) else None
        self._left = retries
        self._first_token_s = first_token_s

    def after(
        self, asked: Endpoint, failure: UpstreamFailed | DeadlineExceeded, left_s: float
    ) -> NextCall | None:
        """What comes after this failure, ``left_s`` before the deadline; None when the failure stands."""
        if not is_the_endpoints(failure) or asked is not self._first:
            return None
        if self._second is not None and self._second.breaker.admits:
            return NextCall(self._second, Retry.SECOND_ENDPOINT, pause_s=0)
        pause_s = (failure.retry_after_ms or 0) / 1000
        if self._left == 0 or not self._worth(pause_s, left_s) or isinstance(failure, ModelRefused):
            return None
        self._left -= 1
        return NextCall(self._first, Retry.SAME_ENDPOINT, pause_s) if self._first.breaker.admits else None

    def _worth(self, pause_s: float, left_s: float) -> bool:
        if pause_s == 0:
            return left_s > 0
        return pause_s <= self._first_token_s <= left_s - pause_s


def is_the_endpoints(failure: BaseException) -> bool:
    """Whether it was the endpoint that failed, and not the question, its deadline or its asker."""
    if isinstance(failure, DeadlineExceeded):
        return failure.stage in _ENDPOINTS_STAGES
    return isinstance(failure, UpstreamFailed)


def left_alone(wait_ms: int | None) -> UpstreamFailed:
    return UpstreamFailed("the answer model keeps failing and is left alone", retry_after_ms=wait_ms)
