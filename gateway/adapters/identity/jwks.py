"""Key sets: the keys of an issuer's JWKS document that may verify a token (RFC 7517), without any I/O."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from joserfc.errors import JoseError
from joserfc.jwk import ECKey, RSAKey
from joserfc.util import base64_to_int

from gateway.adapters.identity.signature import TrustedKey

_MAX_KEYS = 100
_MAX_KID_CHARS = 256
_RSA_BITS = range(2048, 8193)
#: key type -> its public members, the algorithm of a key that names none, and all it may name
_KINDS: Mapping[object, tuple[tuple[str, ...], str, frozenset[str]]] = {
    "EC": (("crv", "x", "y"), "ES256", frozenset({"ES256"})),
    "RSA": (("n", "e"), "RS256", frozenset({"RS256", "PS256"})),
}
#: members of a private or a shared key: whoever published them has lost the key
_SECRET = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})


@dataclass(frozen=True, slots=True)
class KeySet:
    """An issuer's usable keys; no two of them have one ``kid``."""

    keys: tuple[TrustedKey, ...]

    @classmethod
    def parse(cls, document: Mapping[str, object]) -> "KeySet":
        """Keys that can't be used are passed over, and so are all that share a ``kid``.

        Raises ValueError when none is left.
        """
        entries = document.get("keys")
        if not isinstance(entries, list) or len(entries) > _MAX_KEYS:
            raise ValueError("no list of keys, or too long a one")
        found = [key for entry in entries if (key := _trusted(entry)) is not None]
        uses = Counter(key.kid for key in found)
        keys = tuple(key for key in found if key.kid is None or uses[key.kid] == 1)
        if not keys:
            raise ValueError("no usable key")
        return cls(keys)

    def find(self, kid: str | None) -> TrustedKey | None:
        """The key of this name. A token that names none is verified only where there is no choice at all:
        the set has exactly one usable key.
        """
        if kid is None:
            return self.keys[0] if len(self.keys) == 1 else None
        return next((key for key in self.keys if key.kid == kid), None)


def _trusted(entry: object) -> TrustedKey | None:
    """The key of one entry; None unless it is a public one, strong enough and meant for signatures."""
    if not isinstance(entry, dict) or _SECRET.intersection(entry) or not _is_for_verifying(entry):
        return None
    kind, kid = entry.get("kty"), entry.get("kid")
    if not isinstance(kind, str) or kind not in _KINDS:
        return None
    if kid is not None and not (isinstance(kid, str) and 0 < len(kid) <= _MAX_KID_CHARS):
        return None
    members, usual, allowed = _KINDS[kind]
    algorithm = entry.get("alg", usual)
    if not isinstance(algorithm, str) or algorithm not in allowed:
        return None
    try:
        key = _imported({"kty": kind, **{name: str(entry[name]) for name in members}})
    except (JoseError, ValueError, TypeError, KeyError):
        return None
    return None if key is None else TrustedKey(kid, frozenset({algorithm}), key)


def _is_for_verifying(entry: Mapping[str, object]) -> bool:
    operations = entry.get("key_ops", ["verify"])
    return entry.get("use", "sig") == "sig" and isinstance(operations, list) and "verify" in operations


def _imported(public: dict[str, str | list[str]]) -> ECKey | RSAKey | None:
    if public["kty"] == "RSA":
        strong = base64_to_int(str(public["n"])).bit_length() in _RSA_BITS
        return RSAKey.import_key(public) if strong else None
    return ECKey.import_key(public) if public["crv"] == "P-256" else None
