"""API keys: what is kept of one, what a caller may hand on, and the ports that make and keep them."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from gateway.access.principal import SCOPES, Principal, checked_name
from gateway.errors import Forbidden, InvalidField, ScopeMissing, TokenInvalid

#: what every key's subject begins with; no person's may
SUBJECT_PREFIX = "apikey:"

LONGEST_TTL_S = 3660 * 86_400
_MAX_NAME_CHARS = 200
_MAX_GROUPS = 200


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One key. ``digest`` is the hex HMAC-SHA256 of its secret; times are seconds since the epoch.

    Its holder is the subject ``apikey:<name>``, so that no key can pose as a person. ``created_by`` is a
    person, as keys make no keys: once he is revoked, his keys are refused.
    """

    key_id: str
    tenant: str
    name: str
    groups: frozenset[str]
    scopes: frozenset[str]
    digest: str
    created_by: str
    created_at: float
    expires_at: float | None
    revoked_at: float | None

    @property
    def subject(self) -> str:
        return SUBJECT_PREFIX + self.name


@dataclass(frozen=True, slots=True)
class ApiKeyGrant:
    """What a key will be: of groups and scopes never more than the caller's who hands it out.

    ``expires_at`` is in seconds since the epoch; None = never.
    """

    name: str
    groups: frozenset[str]
    scopes: frozenset[str]
    expires_at: float | None


class ApiKeyIssuer(Protocol):
    """Makes keys; keeps none of them."""

    def issue(self, giver: Principal, grant: ApiKeyGrant, now: float) -> tuple[ApiKey, str]:
        """A new key of the giver's tenant, and the credential that nobody can tell a second time."""
        ...


class ApiKeyStore(Protocol):
    """Keeps keys. Every method raises CatalogUnavailable when it can't answer."""

    async def add_api_key(self, key: ApiKey) -> None:
        """``key_id`` is new; durable before it returns.

        Raises ApiKeyNameTaken when the tenant has, or had, a key of that name from somebody else: an ACL
        that names ``apikey:<name>`` means the first one's.
        """
        ...

    async def api_key(self, key_id: str) -> ApiKey | None:
        """Read fresh for each request: a revoked key opens nothing any more, in any process."""
        ...

    async def api_keys(self, tenant: str) -> list[ApiKey]:
        """Newest first, revoked and expired ones too."""
        ...

    async def revoke_api_key(self, tenant: str, key_id: str) -> ApiKey:
        """Bumps the tenant's revocation epoch in the same transaction, so that running answers notice.

        Idempotent: the first moment stays. Raises NotFound, also for another tenant's key.
        """
        ...


def granted(
    giver: Principal,
    *,
    name: str,
    groups: Collection[str],
    scopes: Collection[str],
    ttl_s: int | None,
    now: float,
) -> ApiKeyGrant:
    """What ``giver`` may hand on of what he asks for.

    Groups and scopes must be his own. A person's key may outlive his token; a key makes no keys, or who has
    got hold of one could outlive its end. Raises InvalidField, ScopeMissing, Forbidden.
    """
    if giver.owner is not None:
        raise Forbidden("an API key can't make another one")
    _check_form(name, groups, scopes, ttl_s)
    foreign_scopes = set(scopes) - giver.scopes
    if foreign_scopes:
        raise ScopeMissing(f"a key has only scopes of its maker, and you lack {_listed(foreign_scopes)}")
    foreign_groups = set(groups) - giver.groups
    if foreign_groups:
        raise Forbidden(f"a key has only groups of its maker, and you are not in {_listed(foreign_groups)}")
    expires_at = None if ttl_s is None else now + ttl_s
    return ApiKeyGrant(name, frozenset(groups), frozenset(scopes), expires_at)


def _check_form(name: str, groups: Collection[str], scopes: Collection[str], ttl_s: int | None) -> None:
    try:
        checked_name(name, "name")
    except TokenInvalid as error:
        raise InvalidField(error.detail) from None
    if len(name) > _MAX_NAME_CHARS:
        raise InvalidField(f"name is longer than {_MAX_NAME_CHARS} characters")
    if not scopes or not SCOPES.issuperset(scopes):
        raise InvalidField(f"scopes holds one or more of {', '.join(sorted(SCOPES))}")
    if len(groups) > _MAX_GROUPS:
        raise InvalidField(f"a key has at most {_MAX_GROUPS} groups")
    if ttl_s is not None and not 0 < ttl_s <= LONGEST_TTL_S:
        raise InvalidField(f"ttl_s is a number of seconds from 1 to {LONGEST_TTL_S}")


def _listed(names: Collection[str]) -> str:
    return ", ".join(ascii(name[:80]) for name in sorted(names)[:5])
