"""Tokens of the local ES256 key: signed by the command line, verified by the gateway that owns the key."""

import json
import time
from collections.abc import Iterable
from pathlib import Path

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey

from gateway.access.principal import Principal
from gateway.adapters.identity.claims import ClaimRules
from gateway.adapters.identity.key_file import kept_secret
from gateway.adapters.identity.signature import TrustedKey, read_header, signed_claims
from gateway.errors import ConfigurationError, TokenInvalid

LOCAL_ISSUER = "urn:qa-gateway:local"
_ALGORITHM = "ES256"


class LocalKey:
    """The development signing key: a private JWK in a file that only its owner may read."""

    def __init__(self, key: ECKey) -> None:
        self._key = key

    def __repr__(self) -> str:
        return f"LocalKey(kid={self._key.kid})"

    @classmethod
    def load(cls, data_dir: Path) -> "LocalKey":
        """Reads the key file, made on first use. Raises ConfigurationError when it is unusable."""
        path = data_dir / "keys" / "es256.json"
        try:
            key = ECKey.import_key(json.loads(kept_secret(path, _new_jwk)))
        except (OSError, ValueError, JoseError) as error:
            raise ConfigurationError("key_unusable", f"the signing key file {path} can't be used") from error
        key.ensure_kid()
        return cls(key)

    def sign(
        self,
        *,
        tenant: str,
        subject: str,
        groups: Iterable[str],
        scopes: Iterable[str],
        ttl_s: float,
        audience: str,
    ) -> str:
        """A token with the claims of the contract; ``ttl_s`` in seconds from now."""
        now = int(time.time())
        claims = {
            "iss": LOCAL_ISSUER,
            "aud": audience,
            "tenant": tenant,
            "sub": subject,
            "groups": sorted(groups),
            "scope": " ".join(sorted(scopes)),
            "iat": now,
            "nbf": now,
            "exp": now + int(ttl_s),
        }
        return jwt.encode({"alg": _ALGORITHM, "kid": self._key.kid}, claims, self._key)

    def verifier(self, audience: str, leeway_s: int) -> "LocalVerifier":
        """Checks tokens of this key with its public half alone."""
        public = ECKey.import_key(self._key.as_dict(private=False))
        trusted = TrustedKey(str(self._key.kid), frozenset({_ALGORITHM}), public)
        return LocalVerifier(trusted, ClaimRules(LOCAL_ISSUER, audience, leeway_s))


def _new_jwk() -> bytes:
    key = ECKey.generate_key("P-256")
    key.ensure_kid()
    return json.dumps(key.as_dict(private=True)).encode()


class LocalVerifier:
    """Verifies tokens of the one local key, which they must name."""

    def __init__(self, trusted: TrustedKey, rules: ClaimRules) -> None:
        self._trusted = trusted
        self._rules = rules

    async def verify(self, bearer: str) -> Principal:
        """Raises TokenInvalid or TokenExpired."""
        header = read_header(bearer)
        if header.kid != self._trusted.kid:
            raise TokenInvalid()
        return self._rules.principal(signed_claims(bearer, header, self._trusted), time.time())
