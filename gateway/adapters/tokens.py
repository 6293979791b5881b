"""Tokens: the local ES256 key, and the verification that any issuer's token goes through."""

import json
import os
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, GuestProtocol

from gateway.access.principal import Principal
from gateway.errors import ConfigurationError, TokenExpired, TokenInvalid

LOCAL_ISSUER = "urn:qa-gateway:local"
_ALGORITHM = "ES256"
_MAX_TOKEN_CHARS = 8192
_MAX_GROUPS = 200
_HEADER_FIELDS = frozenset({"alg", "kid", "typ"})


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
            if not path.exists():
                _write_new_key(path)
            key = ECKey.import_key(json.loads(path.read_text()))
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

    def verifier(self, audience: str, leeway_s: int) -> "TokenVerifier":
        """Checks tokens of this key with its public half alone."""
        public = ECKey.import_key(self._key.as_dict(private=False))
        return TokenVerifier({str(self._key.kid): public}, LOCAL_ISSUER, audience, leeway_s)


def _write_new_key(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    key = ECKey.generate_key("P-256")
    key.ensure_kid()
    content = json.dumps(key.as_dict(private=True)).encode()
    # A name that no killed process left behind: in a container each start has the same process id.
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        os.link(draft, path)  # two first starts at once: the first key stays
    except FileExistsError:
        pass
    finally:
        os.unlink(draft)


class TokenVerifier:
    """Verifies signature, issuer, audience and times; the key is chosen by ``kid`` from known ones.

    Whatever a header says about algorithms or keys (``alg`` none, ``jwk``, ``jku``, ``x5u``, ``crit``)
    can only make a token invalid.
    """

    def __init__(self, keys: Mapping[str, ECKey], issuer: str, audience: str, leeway_s: int) -> None:
        self._keys = keys
        self._leeway_s = leeway_s
        self._issuer = issuer
        self._audience = audience

    async def verify(self, bearer: str) -> Principal:
        """Raises TokenInvalid or TokenExpired. Takes about 0.1 ms, so no thread is worth it."""
        if len(bearer) > _MAX_TOKEN_CHARS or not bearer.isascii() or bearer.count(".") != 2:
            raise TokenInvalid()
        return self._principal(self._claims(bearer))

    def _claims(self, bearer: str) -> Mapping[str, object]:
        try:
            token = jwt.decode(bearer, self._find_key, algorithms=[_ALGORITHM])
        except (JoseError, ValueError, TypeError, KeyError, RecursionError):
            raise TokenInvalid() from None
        if not set(token.header) <= _HEADER_FIELDS or not isinstance(token.claims, dict):
            raise TokenInvalid()
        return token.claims

    def _find_key(self, token: GuestProtocol) -> ECKey:
        kid = token.headers().get("kid")
        key = self._keys.get(kid) if isinstance(kid, str) else None
        if key is None:
            raise ValueError("unknown kid")
        return key

    def _principal(self, claims: Mapping[str, object]) -> Principal:
        now = time.time()
        if claims.get("iss") != self._issuer or not self._is_audience(claims.get("aud")):
            raise TokenInvalid()
        expires = _seconds(claims, "exp")
        if _seconds(claims, "nbf", default=0.0) > now + self._leeway_s:
            raise TokenInvalid()
        if _seconds(claims, "iat", default=0.0) > now + self._leeway_s:
            raise TokenInvalid()
        if expires <= now - self._leeway_s:
            raise TokenExpired()
        groups, scope = claims.get("groups", []), claims.get("scope", "")
        if not isinstance(groups, list) or len(groups) > _MAX_GROUPS or not isinstance(scope, str):
            raise TokenInvalid()
        if not all(isinstance(group, str) for group in groups):
            raise TokenInvalid()
        return Principal(
            tenant=claims.get("tenant"),  # type: ignore[arg-type]  # Principal checks what it is given
            subject=claims.get("sub"),  # type: ignore[arg-type]  # likewise
            groups=frozenset(groups),
            scopes=frozenset(scope.split()),
            expires_at=expires,
        )

    def _is_audience(self, audience: object) -> bool:
        if isinstance(audience, list):
            return all(isinstance(a, str) for a in audience) and self._audience in audience
        return audience == self._audience


def _seconds(claims: Mapping[str, object], name: str, default: float | None = None) -> float:
    """A time claim as a finite number; raises TokenInvalid for anything else."""
    value = claims.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e11:
        raise TokenInvalid()
    return float(value)
