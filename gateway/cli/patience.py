"""How long a command goes on asking a server that is busy, restarting or out of reach."""

import random
import time
from collections.abc import Callable
from threading import Event
from typing import TypeVar

from gateway.client import ApiError, ServerUnreachable
from gateway.errors import GatewayError

T = TypeVar("T")

_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 10.0
_BUSY = frozenset({429, 502, 503, 504, 507})


class Patience:
    """Repeats what may be repeated, for ``patience_s`` seconds a request.

    ``says`` is told why it waits and for how many seconds. Once ``stopped`` is set nothing is repeated.
    """

    def __init__(self, patience_s: float, says: Callable[[str, float], None]) -> None:
        self._patience_s = patience_s
        self._says = says
        self.stopped = Event()

    def call(self, request: Callable[[], T]) -> T:
        """Raises the last ApiError or ServerUnreachable when it takes longer, and any other at once."""
        until = time.monotonic() + self._patience_s
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return request()
            except (ApiError, ServerUnreachable) as error:
                wait_s = max(pause_s * random.uniform(0.5, 1.0), (error.retry_after_ms or 0) / 1000)  # noqa: S311 - spreads clients, guards nothing
                if not passing(error) or time.monotonic() + wait_s > until:
                    raise
                self._says(code_of(error), wait_s)
            if self.stopped.wait(wait_s):
                raise Interrupted()
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


class Interrupted(GatewayError):
    """Somebody has stopped the command while it was waiting."""

    code = "interrupted"
    title = "The command was stopped"


def passing(error: ApiError | ServerUnreachable) -> bool:
    """Whether the same request may succeed later."""
    return isinstance(error, ServerUnreachable) or error.status in _BUSY


def code_of(error: GatewayError) -> str:
    return error.problem_code if isinstance(error, ApiError) else error.code
