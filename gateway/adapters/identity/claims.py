"""Claims: what a token must say to become a Principal, whoever has signed it."""

from collections.abc import Mapping
from dataclasses import dataclass

from gateway.access.apikey import SUBJECT_PREFIX
from gateway.access.principal import SCOPES, Principal
from gateway.errors import TokenExpired, TokenInvalid

_MAX_GROUPS = 200
#: seconds since the epoch in the year 5138; milliseconds are larger
_MAX_SECONDS = 1e11


@dataclass(frozen=True, slots=True)
class ClaimRules:
    """One issuer's rules. ``other_scopes``: it also grants scopes that are none of ours (``openid``), which
    are passed over; otherwise they make a token invalid.
    """

    issuer: str
    audience: str
    leeway_s: int
    tenant_claim: str = "tenant"
    groups_claim: str = "groups"
    scope_claim: str = "scope"
    other_scopes: bool = False

    def principal(self, claims: Mapping[str, object], now: float) -> Principal:
        """``now`` is in seconds since the epoch. Raises TokenInvalid, TokenExpired."""
        if claims.get("iss") != self.issuer or not self._is_audience(claims.get("aud")):
            raise TokenInvalid()
        expires_at = self._expiry(claims, now)
        tenant, subject = claims.get(self.tenant_claim), claims.get("sub")
        if not isinstance(tenant, str) or not isinstance(subject, str):
            raise TokenInvalid()
        if subject.startswith(SUBJECT_PREFIX):
            raise TokenInvalid()
        return Principal(tenant, subject, self._groups(claims), self._scopes(claims), expires_at)

    def _is_audience(self, audience: object) -> bool:
        """A list may name others beside us (RFC 7519, section 4.1.3)."""
        if isinstance(audience, list):
            return all(isinstance(a, str) for a in audience) and self.audience in audience
        return audience == self.audience

    def _expiry(self, claims: Mapping[str, object], now: float) -> float:
        expires_at = _seconds(claims, "exp")
        if max(_seconds(claims, name, 0.0) for name in ("nbf", "iat")) > now + self.leeway_s:
            raise TokenInvalid()
        if expires_at <= now - self.leeway_s:
            raise TokenExpired()
        return expires_at

    def _groups(self, claims: Mapping[str, object]) -> frozenset[str]:
        groups = _names(claims.get(self.groups_claim, []))
        if len(groups) > _MAX_GROUPS:
            raise TokenInvalid()
        return frozenset(groups)

    def _scopes(self, claims: Mapping[str, object]) -> frozenset[str]:
        scope = claims.get(self.scope_claim, "")
        if isinstance(scope, str):
            scope = scope.split()
        elif not self.other_scopes:
            raise TokenInvalid()
        names = frozenset(_names(scope))
        return names & SCOPES if self.other_scopes else names


def _names(value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise TokenInvalid()
    return value


def _seconds(claims: Mapping[str, object], name: str, default: float | None = None) -> float:
    """A time claim as a finite number; raises TokenInvalid for anything else."""
    value = claims.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _MAX_SECONDS:
        raise TokenInvalid()
    return float(value)
