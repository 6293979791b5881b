"""API keys: credentials that are known again by the keyed hash of their secret, and never kept themselves."""

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable
from pathlib import Path

from gateway.access.apikey import ApiKey, ApiKeyGrant, ApiKeyStore
from gateway.access.principal import IdentityVerifier, Principal
from gateway.adapters.identity.key_file import kept_secret
from gateway.errors import ConfigurationError, TokenExpired, TokenInvalid

#: what every API key begins with, and no token
PREFIX = "qak_"
_FORM = re.compile(PREFIX + "([0-9a-f]{24})_([A-Za-z0-9_-]{43})")
_ID_BYTES = 12
_SECRET_BYTES = 32
_MIN_PEPPER_BYTES = 32
#: when a key without an end ends: the last second of the year 9999
_NEVER = 253_402_300_799.0
#: what no digest equals; an unknown key takes the same steps as a known one
_NO_DIGEST = "-" * 64


class Pepper:
    """The server's own secret in every digest: a stolen catalog is no list of keys to try.

    Raises ConfigurationError ``api_key_pepper_weak`` for fewer than 32 bytes.
    """

    def __init__(self, secret: bytes) -> None:
        if len(secret) < _MIN_PEPPER_BYTES:
            raise ConfigurationError(
                "api_key_pepper_weak", f"the pepper of API keys needs at least {_MIN_PEPPER_BYTES} bytes"
            )
        self._secret = secret

    def __repr__(self) -> str:
        return "Pepper()"

    @classmethod
    def load(cls, data_dir: Path) -> "Pepper":
        """The development pepper beside the local key, made on first use. Raises ConfigurationError."""
        path = data_dir / "keys" / "api_key_pepper"
        try:
            return cls(kept_secret(path, lambda: secrets.token_hex(_SECRET_BYTES).encode()))
        except OSError as error:
            raise ConfigurationError("key_unusable", f"the pepper file {path} can't be used") from error

    def digest(self, secret: str) -> str:
        """The hex HMAC-SHA256 of a key's secret."""
        return hmac.new(self._secret, secret.encode(), hashlib.sha256).hexdigest()

    def issue(self, giver: Principal, grant: ApiKeyGrant, now: float) -> tuple[ApiKey, str]:
        """Implements ApiKeyIssuer; the secret has 256 random bits."""
        key_id, secret = secrets.token_hex(_ID_BYTES), secrets.token_urlsafe(_SECRET_BYTES)
        key = ApiKey(
            key_id=key_id,
            tenant=giver.tenant,
            name=grant.name,
            groups=grant.groups,
            scopes=grant.scopes,
            digest=self.digest(secret),
            created_by=giver.subject,
            created_at=now,
            expires_at=grant.expires_at,
            revoked_at=None,
        )
        return key, f"{PREFIX}{key_id}_{secret}"


class ApiKeyVerifier:
    """Implements IdentityVerifier for API keys, each read fresh from the store.

    ``clock`` gives seconds since the epoch.
    """

    def __init__(self, store: ApiKeyStore, pepper: Pepper, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._pepper = pepper
        self._clock = clock

    async def verify(self, bearer: str) -> Principal:
        """Raises TokenInvalid without a word on what is wrong, TokenExpired, CatalogUnavailable."""
        form = _FORM.fullmatch(bearer)
        if form is None:
            raise TokenInvalid()
        key_id, secret = form.groups()
        key = await self._store.api_key(key_id)
        known = _NO_DIGEST if key is None else key.digest
        right = hmac.compare_digest(self._pepper.digest(secret), known)
        if key is None or not right or key.revoked_at is not None:
            raise TokenInvalid()
        expires_at = _NEVER if key.expires_at is None else key.expires_at
        if expires_at <= self._clock():
            raise TokenExpired()
        return Principal(
            key.tenant,
            key.subject,
            key.groups,
            key.scopes,
            expires_at,
            owner=key.created_by,
            key_id=key.key_id,
        )


class Verifiers:
    """Implements IdentityVerifier over both kinds of credentials.

    The form decides, so that an API key is never tried as a token or the reverse. ``api_keys`` None: they
    are off.
    """

    def __init__(self, tokens: IdentityVerifier, api_keys: IdentityVerifier | None) -> None:
        self._tokens = tokens
        self._api_keys = api_keys

    async def verify(self, bearer: str) -> Principal:
        if not bearer.startswith(PREFIX):
            return await self._tokens.verify(bearer)
        if self._api_keys is None:
            raise TokenInvalid()
        return await self._api_keys.verify(bearer)
