"""An attempt: one call of one endpoint, with its place in the quota and its way through the breaker."""

from typing import Protocol, TypeVar

from gateway.admission.breaker import Trial
from gateway.admission.quota import QuotaLease
from gateway.answer.calls.endpoints import Endpoint, is_the_endpoints
from gateway.answer.calls.fault import UNUSED, ModelRefused
from gateway.context import Deadline
from gateway.errors import GatewayError
from gateway.stream.protocol import Usage

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Call(Protocol[T_co]):
    """One call of a model. ``opened`` once it was answered with headers; ``usage`` is what it used so far."""

    @property
    def opened(self) -> bool: ...

    @property
    def usage(self) -> Usage: ...

    def tell_usage(self) -> None:
        """Once, when it is over."""
        ...

    async def run(self, deadline: Deadline) -> T_co: ...


class Attempt:
    """Held by the session until it ends; what was never asked has used nothing."""

    def __init__(self, endpoint: Endpoint, trial: Trial, lease: QuotaLease) -> None:
        self.endpoint = endpoint
        self._trial = trial
        self._lease = lease

    def release(self) -> None:
        self._lease.settle(0)
        self._trial.release()

    def text_came(self) -> None:
        self._trial.answered()

    async def run(self, call: Call[T], deadline: Deadline) -> T:
        """Tells quota and breaker how the call went, however it ends; raises what the call raises."""
        try:
            result = await call.run(deadline)
            self._trial.succeeded()
            return result
        except GatewayError as failure:
            # a call that is refused says nothing about the next one, which may be a shorter one
            if is_the_endpoints(failure) and not isinstance(failure, ModelRefused):
                self._trial.failed()
            if isinstance(failure, UNUSED):
                self._lease.settle(0)
            raise
        finally:
            self._lease.settle(_used(call))
            call.tell_usage()
            self._trial.release()


def _used(call: Call[object]) -> int | None:
    """Tokens; None when the call was sent and nobody knows whether it was read."""
    if not call.opened:
        return None
    return call.usage.input_tokens + call.usage.output_tokens
