"""OIDC: tokens of an outside issuer, verified by the keys it publishes."""

import time
from collections.abc import Callable

from gateway.access.principal import Principal
from gateway.adapters.identity.claims import ClaimRules
from gateway.adapters.identity.documents import IssuerDocuments
from gateway.adapters.identity.jwks_cache import KeyCache
from gateway.adapters.identity.signature import read_header, signed_claims
from gateway.errors import ConfigurationError

_FETCH_S = 5.0


class OidcVerifier:
    """Implements IdentityVerifier over one issuer; opens no connection before the first token.

    ``jwks_url`` None: found through the discovery document. A claim is named as it stands in the token.
    ``clock`` is monotonic, in seconds, for the age of keys. Raises ConfigurationError ``oidc_url_unusable``,
    ``oidc_audience_missing``.
    """

    def __init__(
        self,
        issuer: str,
        audience: str,
        *,
        leeway_s: int,
        jwks_url: str | None = None,
        tenant_claim: str = "tenant",
        groups_claim: str = "groups",
        scope_claim: str = "scope",
        fetch_s: float = _FETCH_S,
        keys_bound_s: float = 3600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not audience:  # tokens for every other service of the issuer would be good here too
            raise ConfigurationError("oidc_audience_missing", "tokens of an issuer need an audience")
        self._rules = ClaimRules(
            issuer, audience, leeway_s, tenant_claim, groups_claim, scope_claim, other_scopes=True
        )
        self._documents = IssuerDocuments(issuer, jwks_url, total_s=fetch_s)
        self._keys = KeyCache(self._documents.key_set, bound_s=keys_bound_s, clock=clock)

    async def verify(self, bearer: str) -> Principal:
        """Raises TokenInvalid, TokenExpired; IdentityUnavailable when the issuer's keys can't be had."""
        header = read_header(bearer)
        trusted = await self._keys.key_for(header.kid)
        return self._rules.principal(signed_claims(bearer, header, trusted), time.time())

    async def ready(self) -> bool:
        """Whether the issuer's keys are here, fetched if need be; for readiness."""
        return await self._keys.ready()

    async def aclose(self) -> None:
        """Ends a fetch that is under way and closes its connections."""
        await self._keys.aclose()
        await self._documents.aclose()
