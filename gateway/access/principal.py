"""A verified caller, and the port that verifies one."""

import unicodedata
from dataclasses import dataclass
from typing import Protocol

from gateway.errors import ScopeMissing, TokenInvalid

#: every scope there is; a token may carry any of them, and none reaches beyond its tenant
SCOPES: frozenset[str] = frozenset({"ask", "ingest", "release", "revoke", "operate"})

_MAX_NAME_CHARS = 256


def checked_name(value: object, what: str) -> str:
    """A tenant, subject or group name as it must look; raises TokenInvalid otherwise.

    Names are compared byte for byte, so nothing is normalised: an odd one is refused.
    """
    if not isinstance(value, str) or not value or len(value) > _MAX_NAME_CHARS:
        raise TokenInvalid(f"{what} is missing or not a usable name")
    if value != value.strip() or any(unicodedata.category(c)[0] == "C" for c in value):
        raise TokenInvalid(f"{what} holds a character that is not allowed")
    return value


@dataclass(frozen=True, slots=True)
class Principal:
    """A verified caller. ``expires_at`` is in seconds since the epoch.

    ``owner`` is the person who made the API key that is used, ``key_id`` its id; None without one.
    """

    tenant: str
    subject: str
    groups: frozenset[str]
    scopes: frozenset[str]
    expires_at: float
    owner: str | None = None
    key_id: str | None = None

    def __post_init__(self) -> None:
        checked_name(self.tenant, "tenant")
        checked_name(self.subject, "subject")
        for group in self.groups:
            checked_name(group, "group")
        if not self.scopes <= SCOPES:
            raise TokenInvalid("scope holds a name that does not exist")

    @property
    def names(self) -> frozenset[str]:
        """What an ACL entry can match: ``user:…``, ``group:…`` and ``public``."""
        groups = {f"group:{group}" for group in self.groups}
        return frozenset({f"user:{self.subject}", "public"} | groups)

    @property
    def accountable(self) -> frozenset[str]:
        """The subjects of whom none may be revoked: a key dies with the person who made it."""
        return frozenset({self.subject, self.owner or self.subject})

    def expired(self, now: float, leeway_s: float) -> bool:
        """Whether its verifier wouldn't take its token at ``now`` any more; an API key has no leeway."""
        return now >= self.expires_at + (leeway_s if self.key_id is None else 0)

    def require(self, scope: str) -> None:
        """Raises ScopeMissing unless the token carries ``scope``."""
        if scope not in self.scopes:
            raise ScopeMissing(f"this needs the scope {scope}")


class IdentityVerifier(Protocol):
    """Turns a bearer credential into a Principal."""

    async def verify(self, bearer: str) -> Principal:
        """Raises TokenInvalid or TokenExpired; never returns a doubtful principal."""
        ...
