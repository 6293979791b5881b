"""An act: what a person with a scope changes, who it was, and under which key it may be sent again."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Act:
    """Kept in the transaction of the change itself: an audit entry, and under ``key`` the answer.

    The same key of the same subject answers with what is kept and changes nothing; ``request_hash`` is over
    everything that was asked, and another one raises IdempotencyMismatch. Without a key each time counts.
    ``details`` hold ids and codes only; the ids that the change makes are added to them.
    """

    tenant: str
    subject: str
    action: str
    request_hash: str = ""
    key: str | None = None
    details: Mapping[str, object] = field(default_factory=dict)
