"""Tokens that are wrong in one way each: how each is made from an issuer's key, and what it must end as.

``INVALID`` ends as token_invalid whoever the issuer is, ``EXPIRED`` as token_expired; ``LOCAL_INVALID`` is
invalid from our own issuer only, ``UNSENDABLE`` can't even stand in a header. ``ACCEPTED`` is good: without
it the refusals would prove nothing.
"""

import hashlib
import hmac
import json
import time
from collections.abc import Callable
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding

from tests.harness.issuer import SigningKey, b64, raw_signature

Token = Callable[[SigningKey], str]

_YEAR = 366 * 86_400
_NOW = int(time.time())
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def claims(**changes: object) -> Token:
    return lambda key: key.sign(**changes)


def header(**changes: object) -> Token:
    return lambda key: key.token(key.header(**changes), key.claims())


def unsigned(algorithm: str) -> Token:
    return lambda key: key.token(key.header(alg=algorithm), key.claims(), lambda _: b"")


def hs256_with(secret: Callable[[SigningKey], bytes]) -> Token:
    """Signed with the public key as if it were a shared secret."""

    def build(key: SigningKey) -> str:
        def sign(content: bytes) -> bytes:
            return hmac.new(secret(key), content, hashlib.sha256).digest()

        return key.token(key.header(alg="HS256"), key.claims(), sign)

    return build


def own_key(**changes: Any) -> Token:
    """Signed with somebody else's key of the same kind, whose public half the header may bring along."""

    def build(key: SigningKey) -> str:
        is_rsa = isinstance(key.key, rsa.RSAPrivateKey)
        private = _OTHER_RSA if is_rsa else _OTHER_EC
        other = SigningKey(key.kid, private, key.issuer)
        values = {name: other.jwk if value == "own" else value for name, value in changes.items()}
        return other.token(other.header(**values), other.claims())

    return build


def other_kind(key: SigningKey) -> str:
    """ES256 under the name of an RSA key, RS256 under that of an EC key."""
    private = _OTHER_EC if isinstance(key.key, rsa.RSAPrivateKey) else _OTHER_RSA
    other = SigningKey(key.kid, private, key.issuer)
    return other.token(other.header(), other.claims())


def longer_hash(key: SigningKey) -> str:
    """RS384 or ES384, with a signature that the key has really made."""

    def sign(content: bytes) -> bytes:
        if isinstance(key.key, rsa.RSAPrivateKey):
            return key.key.sign(content, padding.PKCS1v15(), hashes.SHA384())
        return raw_signature(key.key, content)

    algorithm = "RS384" if isinstance(key.key, rsa.RSAPrivateKey) else "ES384"
    return key.token(key.header(alg=algorithm), key.claims(), sign)


def pss(key: SigningKey) -> str:
    """PS256, with a signature that an RSA key has really made: its JWK is for RS256."""

    def sign(content: bytes) -> bytes:
        if not isinstance(key.key, rsa.RSAPrivateKey):
            return key.signature(content)
        return key.key.sign(content, padding.PSS(padding.MGF1(hashes.SHA256()), 32), hashes.SHA256())

    return key.token(key.header(alg="PS256"), key.claims(), sign)


def longer_curve(key: SigningKey) -> str:
    private = ec.generate_private_key(ec.SECP384R1())
    sign = ec.ECDSA(hashes.SHA256())
    return key.token(key.header(alg="ES256"), key.claims(), lambda content: private.sign(content, sign))


def signature(make: Callable[[SigningKey, bytes], bytes]) -> Token:
    """Good header and claims under the bytes of ``make``."""
    return lambda key: key.token(key.header(), key.claims(), lambda content: make(key, content))


def raw_payload(payload: bytes) -> Token:
    return lambda key: key.token(key.header(), payload)


def raw_header(content: bytes) -> Token:
    return lambda key: key.token(content, key.claims())


def changed(change: Callable[[str], str]) -> Token:
    return lambda key: change(key.sign())


def with_exp(text: str) -> Token:
    """A number that json.dumps wouldn't write."""
    return lambda key: key.token(
        key.header(), json.dumps(key.claims(exp=0)).replace('"exp": 0', f'"exp": {text}').encode()
    )


def twice_in_header(name: str, value: object) -> Token:
    return lambda key: key.token(_with_second(key.header(), name, value), key.claims())


def twice_in_payload(name: str, value: object) -> Token:
    return lambda key: key.token(key.header(), _with_second(key.claims(), name, value))


def _with_second(fields: dict[str, object], name: str, value: object) -> bytes:
    """The object with one name twice: another value first, so that the good one wins in most parsers."""
    assert name in fields
    return f"{{{json.dumps(name)}: {json.dumps(value)}, {json.dumps(fields)[1:]}".encode()


def later_claims(key: SigningKey) -> str:
    """A good token's signature under other claims."""
    head, _, signed = key.sign().split(".")
    return f"{head}.{b64(json.dumps(key.claims(tenant='globex')).encode())}.{signed}"


def later_header(key: SigningKey) -> str:
    """A good token's signature under another header."""
    _, payload, signed = key.sign().split(".")
    return f"{b64(json.dumps(key.header(typ=None)).encode())}.{payload}.{signed}"


def spare_bits(token: str) -> str:
    """The same signature, written in another way: the bits after its last byte are set."""
    return token[:-1] + _ALPHABET[_ALPHABET.index(token[-1]) + 1]


def jwe(key: SigningKey) -> str:
    head = b64(json.dumps({"alg": "RSA-OAEP", "enc": "A256GCM", "kid": key.kid}).encode())
    return ".".join([head, *(b64(b"x" * length) for length in (256, 12, 200, 16))])


_OTHER_EC = ec.generate_private_key(ec.SECP256R1())
_OTHER_RSA = rsa.generate_private_key(65537, 2048)

INVALID: dict[str, Token] = {
    # algorithms
    "alg none": unsigned("none"),
    "alg nOnE": unsigned("nOnE"),
    "alg None": unsigned("None"),
    "alg NONE": unsigned("NONE"),
    "alg none with a signature": header(alg="none"),
    "alg nOnE with a signature": header(alg="nOnE"),
    "alg empty": unsigned(""),
    "alg missing": header(alg=None),
    "alg list": header(alg=["ES256", "RS256"]),
    "alg number": header(alg=256),
    "alg in lower case": lambda key: key.token(key.header(alg=key.algorithm.lower()), key.claims()),
    "alg HS256, signature of the key": header(alg="HS256"),
    "alg EdDSA": header(alg="EdDSA"),
    "alg dir": header(alg="dir"),
    "HS256 with the public PEM": hs256_with(lambda key: key.public_bytes(Encoding.PEM)),
    "HS256 with the public PEM, stripped": hs256_with(lambda key: key.public_bytes(Encoding.PEM).strip()),
    "HS256 with the public DER": hs256_with(lambda key: key.public_bytes(Encoding.DER)),
    "HS256 with the public JWK": hs256_with(lambda key: json.dumps(key.jwk).encode()),
    "HS256 with the key's name": hs256_with(lambda key: key.kid.encode()),
    "HS256 with nothing": hs256_with(lambda _: b""),
    "a key of the other kind": other_kind,
    "384 bits of the same key": longer_hash,
    "PS256 of the same key": pss,
    "a longer curve": longer_curve,
    # keys
    "another key, our kid": own_key(),
    "kid missing": header(kid=None),
    "kid null": lambda key: key.token({**key.header(), "kid": None}, key.claims()),
    "kid unknown": header(kid="other"),
    "kid empty": header(kid=""),
    "kid very long": header(kid="k" * 400),
    "kid traversal": header(kid="../../../../dev/null"),
    "kid a file": header(kid="/proc/self/environ"),
    "kid an address": header(kid="https://attacker.example/key"),
    "kid SQL": header(kid="x' UNION SELECT 'secret' --"),
    "kid NUL": lambda key: key.token(key.header(kid=key.kid + "\0"), key.claims()),
    "kid padded": lambda key: key.token(key.header(kid=f" {key.kid}"), key.claims()),
    "kid number": header(kid=0),
    "kid list": header(kid=["a"]),
    "kid object": header(kid={"a": 1}),
    "embedded jwk": own_key(jwk="own"),
    "embedded jwk, no kid": own_key(jwk="own", kid=None),
    "embedded jwk, good signature": header(jwk={"kty": "EC"}),
    "jku": own_key(jku="https://attacker.example/jwks.json"),
    "jku, good signature": header(jku="https://attacker.example/jwks.json"),
    "x5u": own_key(x5u="https://attacker.example/cert.pem"),
    "x5u, good signature": header(x5u="https://attacker.example/cert.pem"),
    "x5c": own_key(x5c=["MIIB"]),
    "x5c, good signature": header(x5c=["MIIB"]),
    "crit unknown": header(crit=["exp2"], exp2=1),
    "crit empty": header(crit=[]),
    "crit text": header(crit="exp"),
    "b64 false": header(b64=False, crit=["b64"]),
    "b64 false, not critical": header(b64=False),
    "zip": header(zip="DEF"),
    "cty nested": header(cty="JWT"),
    "typ of a logout token": header(typ="logout+jwt"),
    "typ of a proof": header(typ="dpop+jwt"),
    "typ number": header(typ=1),
    "alg twice": twice_in_header("alg", "none"),
    "kid twice": twice_in_header("kid", "other"),
    # signatures
    "zero signature": signature(lambda key, _: bytes(len(key.signature(b"")))),
    "one as signature": signature(lambda key, _: (1).to_bytes(len(key.signature(b"")), "big")),
    "empty signature": signature(lambda *_: b""),
    "short signature": signature(lambda key, content: key.signature(content)[:-1]),
    "long signature": signature(lambda key, content: key.signature(content) + b"\0"),
    "huge signature": signature(lambda *_: b"s" * 2000),
    "signature of something else": signature(lambda key, _: key.signature(b"a.b")),
    "other claims": later_claims,
    "another header": later_header,
    "spare bits of the signature": changed(spare_bits),
    # times
    "exp missing": claims(exp=None),
    "exp null": lambda key: key.token(key.header(), {**key.claims(), "exp": None}),
    "exp text": claims(exp=str(_NOW + 600)),
    "exp true": claims(exp=True),
    "exp list": claims(exp=[_NOW + 600]),
    "exp negative": claims(exp=-1),
    "exp 1e400": with_exp("1e400"),
    "exp -1e400": with_exp("-1e400"),
    "exp NaN": with_exp("NaN"),
    "exp Infinity": with_exp("Infinity"),
    "exp of 5,000 digits": with_exp("9" * 5000),
    "exp of 300 digits": with_exp("9" * 300),
    "exp in milliseconds": claims(exp=(_NOW + _YEAR) * 1000),
    "exp twice": twice_in_payload("exp", _NOW - 600),
    "nbf future": claims(nbf=_NOW + 3600),
    "nbf text": claims(nbf="0"),
    "nbf true": claims(nbf=True),
    "nbf NaN": lambda key: key.token(key.header(), json.dumps(key.claims(nbf=float("nan"))).encode()),
    "iat future": claims(iat=_NOW + 3600),
    "iat text": claims(iat="now"),
    "iat negative": claims(iat=-5),
    # issuer and audience
    "iss missing": claims(iss=None),
    "iss empty": claims(iss=""),
    "iss other": claims(iss="https://issuer.example"),
    "iss with a slash": lambda key: key.sign(iss=key.issuer + "/"),
    "iss in capitals": lambda key: key.sign(iss=key.issuer.upper()),
    "iss padded": lambda key: key.sign(iss=key.issuer + " "),
    "iss list": lambda key: key.sign(iss=[key.issuer]),
    "iss twice": twice_in_payload("iss", "https://issuer.example"),
    "aud missing": claims(aud=None),
    "aud wrong": claims(aud="other"),
    "aud prefix": claims(aud="qa-gate"),
    "aud longer": claims(aud="qa-gateway-admin"),
    "aud padded": claims(aud=" qa-gateway"),
    "aud in capitals": claims(aud="QA-GATEWAY"),
    "aud empty": claims(aud=""),
    "aud empty list": claims(aud=[]),
    "aud list without us": claims(aud=["a", "b"]),
    "aud list with a number": claims(aud=["qa-gateway", 1]),
    "aud nested list": claims(aud=[["qa-gateway"]]),
    "aud object": claims(aud={"qa-gateway": True}),
    # who
    "tenant missing": claims(tenant=None),
    "tenant empty": claims(tenant=""),
    "tenant list": claims(tenant=["acme"]),
    "tenant number": claims(tenant=1),
    "tenant object": claims(tenant={"id": "acme"}),
    "tenant padded": claims(tenant=" acme"),
    "tenant NUL": claims(tenant="acme\0"),
    "tenant newline": claims(tenant="acme\n"),
    "tenant long": claims(tenant="t" * 257),
    "tenant twice": twice_in_payload("tenant", "globex"),
    "sub missing": claims(sub=None),
    "sub empty": claims(sub=""),
    "sub number": claims(sub=7),
    "sub padded": claims(sub="ann "),
    "sub control": claims(sub="an\x1bn"),
    "sub surrogate": claims(sub="\ud800"),
    "sub right-to-left": claims(sub="ann\u202e"),
    "sub invisible": claims(sub="ann\u200b"),
    "sub of an API key": claims(sub="apikey:ci"),
    "groups text": claims(groups="staff"),
    "groups object": claims(groups={"staff": 1}),
    "groups null": lambda key: key.token(key.header(), {**key.claims(), "groups": None}),
    "groups with a number": claims(groups=["staff", 1]),
    "groups with a list": claims(groups=[["staff"]]),
    "groups with null": claims(groups=["staff", None]),
    "groups with an empty one": claims(groups=["staff", ""]),
    "groups of 201": claims(groups=[f"g{i}" for i in range(201)]),
    "groups of 201, all the same": claims(groups=["staff"] * 201),
    "groups with a NUL": claims(groups=["a\0"]),
    "scope number": claims(scope=1),
    "scope true": claims(scope=True),
    "scope object": claims(scope={"ask": True}),
    "scope list with a number": claims(scope=["ask", 1]),
    "scope twice": twice_in_payload("scope", "operate"),
    # forms
    "payload list": raw_payload(b"[]"),
    "payload text": raw_payload(b'"ann"'),
    "payload number": raw_payload(b"1"),
    "payload null": raw_payload(b"null"),
    "payload empty": raw_payload(b""),
    "payload cut off": raw_payload(b'{"iss": "'),
    "payload not UTF-8": raw_payload(b'{"iss": "\xff"}'),
    "payload deep": raw_payload(b"[" * 3000 + b"]" * 3000),
    "payload with a byte order mark": lambda key: key.token(
        key.header(), b"\xef\xbb\xbf" + json.dumps(key.claims()).encode()
    ),
    "payload in UTF-16": lambda key: key.token(key.header(), json.dumps(key.claims()).encode("utf-16")),
    "payload a token": lambda key: key.token(key.header(), key.sign().encode()),
    "payload a token, and cty": lambda key: key.token(key.header(cty="JWT"), key.sign().encode()),
    "header list": raw_header(b"[]"),
    "header text": raw_header(b'"ES256"'),
    "header number": raw_header(b"1"),
    "header null": raw_header(b"null"),
    "header empty": raw_header(b""),
    "header not JSON": raw_header(b"alg=ES256"),
    "header not UTF-8": raw_header(b'{"alg": "\xff"}'),
    "header in UTF-16": lambda key: key.token(json.dumps(key.header()).encode("utf-16"), key.claims()),
    "header deep": raw_header(b'{"a":' * 900 + b"1" + b"}" * 900),
    "one part": lambda _: "abc",
    "two parts": changed(lambda token: token.rsplit(".", 1)[0]),
    "four parts": changed(lambda token: token + ".abc"),
    "four parts, the first empty": changed(lambda token: "." + token),
    "five parts": changed(lambda token: token + ".abc.def"),
    "a JWE": jwe,
    "only dots": lambda _: "..",
    "cut off": changed(lambda token: token[:-10]),
    "not base64": changed(lambda token: "!" + token[1:]),
    "base64 of the other alphabet": changed(lambda token: token[:-8] + "+/+/" + token[-4:]),
    "padded base64": changed(lambda token: token + "=="),
    "a space inside": changed(lambda token: token[:20] + " " + token[20:]),
    "two tokens": changed(lambda token: f"{token} {token}"),
    "JSON serialization": lambda key: json.dumps({"payload": key.sign().split(".")[1]}),
    "10 kB": claims(extra="x" * 10_000),
    "a password": lambda _: "hunter2",
    "an API key": lambda _: f"qak_{'0' * 24}_{'A' * 43}",
}
#: of our own issuer these mean a mistake; an outside one also grants what is none of ours
LOCAL_INVALID: dict[str, Token] = {
    "scope unknown": claims(scope="ask admin"),
    "scope list": claims(scope=["ask"]),
    "scope with a comma": claims(scope="ask,ingest"),
    "scope in capitals": claims(scope="ASK"),
}
#: what no header of HTTP can carry; a verifier is not told how its token came
UNSENDABLE: dict[str, Token] = {
    "nothing": lambda _: "",
    "a line break inside": changed(lambda token: token[:20] + "\n" + token[20:]),
    "a line break at the end": changed(lambda token: token + "\n"),
    "a space at the start": changed(lambda token: " " + token),
    "a tab at the end": changed(lambda token: token + "\t"),
    "NUL at the end": changed(lambda token: token + "\0"),
    "full-width dots": changed(lambda token: token.replace(".", "\uff0e")),
    "half a surrogate pair": changed(lambda token: token + "\ud800"),
    "a megabyte of dots": lambda _: "." * 1_000_000,
}
#: well signed and once good: the client may fetch a new one
EXPIRED: dict[str, Token] = {
    "an hour ago": claims(exp=_NOW - 3600, iat=_NOW - 7200, nbf=_NOW - 7200),
    "in 1970": claims(exp=0, iat=0, nbf=0),
    "a fraction": claims(exp=_NOW - 100.5),
}
ACCEPTED: dict[str, Token] = {
    "as it should be": claims(),
    "aud in a list": claims(aud=["other", "qa-gateway"]),
    "no nbf, no iat": claims(nbf=None, iat=None),
    "a fractional exp": claims(exp=_NOW + _YEAR + 0.5),
    "no typ": header(typ=None),
    "typ of an access token": header(typ="at+jwt"),
    "a certificate's thumbprint": header(x5t="dGh1bWI"),
    "all scopes": claims(scope="ask ingest release revoke operate"),
    "groups of 200": claims(groups=["staff", *(f"g{i}" for i in range(199))]),
    "surplus claims": claims(email="ann@acme.example", roles=["admin"], permitted_classes=[1, 2, 3]),
}
