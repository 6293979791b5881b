"""AES: the seal of kept answers, AES-256-GCM under a secret of the operator's."""

import base64
import hashlib
import hmac
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gateway.answer.cache import Damaged
from gateway.errors import ConfigurationError

_KEY_BYTES = 32
#: random for each entry: one key may close 2^32 of them (NIST SP 800-38D, 8.3)
_NONCE_BYTES = 12


class AesSeal:
    """Implements Seal. The digest is authenticated with the content; names are HMAC-SHA256.

    Raises ConfigurationError ``answer_cache_key`` for a secret that isn't 32 bytes.
    """

    def __init__(self, secret: bytes) -> None:
        if len(secret) != _KEY_BYTES:
            raise _unfit()
        self._naming = _derived(secret, b"names")
        self._cipher = AESGCM(_derived(secret, b"contents"))

    @classmethod
    def from_base64(cls, secret: str) -> "AesSeal":
        """Of either alphabet. Raises as the constructor does, without quoting it."""
        try:
            return cls(base64.b64decode(secret.strip().translate(_STANDARD), validate=True))
        except ValueError:
            raise _unfit() from None

    def __repr__(self) -> str:
        return "AesSeal()"

    def name(self, plain: str) -> str:
        return hmac.new(self._naming, plain.encode(), hashlib.sha256).hexdigest()

    def close(self, digest: str, content: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, content, digest.encode())

    def open(self, digest: str, sealed: bytes) -> bytes:
        nonce, content = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        try:
            return self._cipher.decrypt(nonce, content, digest.encode())
        except (InvalidTag, ValueError):  # too short is a ValueError
            raise Damaged from None


_STANDARD = str.maketrans("-_", "+/")


def _derived(secret: bytes, purpose: bytes) -> bytes:
    """HKDF-Expand of one block (RFC 5869): the secret is random already, and no key has two uses."""
    return hmac.new(secret, b"qa-gateway answers " + purpose + b"\x01", hashlib.sha256).digest()


def _unfit() -> ConfigurationError:
    return ConfigurationError(
        "answer_cache_key", f"GATEWAY_ANSWER_CACHE_KEY is not {_KEY_BYTES} bytes in base64"
    )
