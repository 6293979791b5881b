"""The sessions running in this process."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from gateway.stream.session import CloseReason, Session


class Asker(Protocol):
    """Whoever asks for an end, here or by an order from another process."""

    @property
    def tenant(self) -> str: ...

    @property
    def subject(self) -> str: ...


class SessionRegistry:
    """Finds sessions by request id. ``on_change`` is told the number of sessions after each change."""

    def __init__(self, on_change: Callable[[int], None] = lambda _: None) -> None:
        self._sessions: dict[str, Session] = {}
        self._on_change = on_change
        self.draining = False

    def __len__(self) -> int:
        return len(self._sessions)

    @contextmanager
    def registered(self, session: Session) -> Iterator[None]:
        """The session can be found, stopped and drained while the block runs."""
        self._sessions[session.request_id] = session
        self._on_change(len(self._sessions))
        try:
            if self.draining:
                session.cancel(CloseReason.SHUTTING_DOWN)
            yield
        finally:
            del self._sessions[session.request_id]
            self._on_change(len(self._sessions))

    def stop(self, asker: Asker, request_id: str) -> bool:
        """The asker's own stop; False when there is no such session of this very asker, or all of it has left
        for him.
        """
        session = self._sessions.get(request_id)
        if session is None or session.principal is None:
            return False
        owner = session.principal
        if (owner.tenant, owner.subject) != (asker.tenant, asker.subject):
            return False
        return _ends(session, CloseReason.CLIENT_STOP)

    def kill(self, operator: Asker, request_id: str) -> bool:
        """An operator's kill, within his own tenant; as ``stop``."""
        session = self._sessions.get(request_id)
        if session is None or session.principal is None:
            return False
        if session.principal.tenant != operator.tenant:
            return False
        return _ends(session, CloseReason.OPERATOR_KILL)

    def of_tenant(self, tenant: str) -> list[Session]:
        return [s for s in self._sessions.values() if s.principal and s.principal.tenant == tenant]

    def identified(self) -> list[Session]:
        """Those whose caller is known and to whom something may still leave."""
        return [s for s in self._sessions.values() if s.principal and s.recallable]

    def refuse_new(self) -> None:
        """From now on every new session ends at once."""
        self.draining = True

    def cancel_all(self, reason: CloseReason) -> None:
        for session in tuple(self._sessions.values()):
            session.cancel(reason)


def _ends(session: Session, reason: CloseReason) -> bool:
    """Asking twice, or for the end of what something else has cut short, is no mistake."""
    return session.cancel(reason) or session.close_reason is not CloseReason.COMPLETED
