"""An attempt: one call of one endpoint, with its place in the quota and its way through the breaker."""

from gateway.admission.breaker import Trial
from gateway.admission.quota import QuotaLease
from gateway.answer.calls.endpoints import Endpoint, is_the_endpoints
from gateway.answer.calls.fault import UNUSED, ModelRefused
from gateway.answer.calls.generation import Generated, Generation
from gateway.context import Deadline
from gateway.errors import GatewayError


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

    async def run(self, generation: Generation, deadline: Deadline) -> Generated:
        """Tells quota and breaker how the call went, however it ends; raises what the generation raises."""
        try:
            generated = await generation.run(deadline)
            self._trial.succeeded()
            return generated
        except GatewayError as failure:
            # a call that is refused says nothing about the next one, which may be a shorter one
            if is_the_endpoints(failure) and not isinstance(failure, ModelRefused):
                self._trial.failed()
            if isinstance(failure, UNUSED):
                self._lease.settle(0)
            raise
        finally:
            self._lease.settle(_used(generation))
            generation.tell_usage()
            self._trial.release()


def _used(generation: Generation) -> int | None:
    """Tokens; None when the call was sent and nobody knows whether it was read."""
    if not generation.opened:
        return None
    return generation.usage.input_tokens + generation.usage.output_tokens
