"""RequestContext: what a request carries from stage to stage, passed as an argument only."""

import time
from dataclasses import dataclass

from gateway.access.principal import Principal
from gateway.access.scope import AccessScope
from gateway.errors import DeadlineExceeded, UnscopedAccess
from gateway.release.model import RetrievalRelease


@dataclass(frozen=True, slots=True)
class Deadline:
    """An absolute moment on the monotonic clock, in seconds."""

    at: float

    @classmethod
    def after(cls, milliseconds: float) -> "Deadline":
        return cls(time.monotonic() + milliseconds / 1000)

    def remaining(self, cap_ms: float | None = None) -> float:
        """Seconds left, at most the cap; never negative."""
        left = max(0.0, self.at - time.monotonic())
        return left if cap_ms is None else min(left, cap_ms / 1000)

    def budget(self, stage: str, cap_ms: float) -> float:
        """Seconds this stage may take; raises DeadlineExceeded when nothing is left."""
        left = self.remaining(cap_ms)
        if left <= 0:
            raise DeadlineExceeded(stage)
        return left


@dataclass(frozen=True, slots=True)
class RequestContext:
    """One question's identity, permission, release and time. Never stored in a ContextVar."""

    request_id: str
    trace_id: str
    principal: Principal
    scope: AccessScope
    release: RetrievalRelease
    deadline: Deadline

    def __post_init__(self) -> None:
        if (self.scope.tenant, self.scope.kb_id) != (self.release.tenant, self.release.kb_id):
            raise UnscopedAccess("scope and release belong to different knowledge bases")
        if self.principal.tenant != self.scope.tenant:
            raise UnscopedAccess("principal and scope belong to different tenants")
