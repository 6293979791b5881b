"""Acknowledgements: which answers have ended, so that their askers can say that they saw the end."""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from gateway.access.principal import Principal
from gateway.stream.session import CLOSE_ERRORS, Session

#: the reasons after which nobody is there to be told
_NOBODY_THERE = frozenset(reason for reason, error in CLOSE_ERRORS.items() if error is None)


@dataclass(frozen=True, slots=True)
class _Ended:
    tenant: str
    subject: str
    at: float


class EndedAnswers:
    """The answers of this process whose last event wasn't seen yet, as far as anybody has said.

    Each is remembered for ``keep_s`` and acknowledged at most once; of more than ``most`` the oldest are
    forgotten. Another process knows nothing of them: there the acknowledgement is of no known answer, and
    a measurement is all that is lost.
    """

    def __init__(
        self, keep_s: float = 300.0, most: int = 10_000, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._keep_s = keep_s
        self._most = most
        self._clock = clock
        self._ended: OrderedDict[str, _Ended] = OrderedDict()  # oldest first

    def __len__(self) -> int:
        return len(self._ended)

    def remember(self, session: Session) -> None:
        """For a session that has just ended. One that nobody is told of has no end to be seen."""
        asker = session.principal
        if asker is None or not session.opened or session.close_reason in _NOBODY_THERE:
            return
        now = self._clock()
        self._ended[session.request_id] = _Ended(asker.tenant, asker.subject, now)
        while len(self._ended) > self._most or next(iter(self._ended.values())).at <= now - self._keep_s:
            self._ended.popitem(last=False)

    def acknowledge(self, principal: Principal, request_id: str) -> float | None:
        """Seconds since its end; None when it isn't a known one of this very asker."""
        ended = self._ended.get(request_id)
        if ended is None or (ended.tenant, ended.subject) != (principal.tenant, principal.subject):
            return None
        del self._ended[request_id]
        passed = self._clock() - ended.at
        return passed if passed < self._keep_s else None
