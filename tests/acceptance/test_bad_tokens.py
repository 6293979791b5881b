"""Tokens built by hand, each wrong in one way: 401 at the stream as at the plain routes."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from gateway.adapters.tokens import LOCAL_ISSUER, LocalKey
from tests.acceptance.doors import DOORS, Door
from tests.harness.serving import serving_world
from tests.harness.wire import request
from tests.harness.world import World

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = {"limits.md": "# Limits\n\nThe upload limit is 42 megabytes for every member of staff.\n"}
ASK, SEARCH = DOORS[0], DOORS[2]
Token = Callable[["Issuer"], str]


def b64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def number(text: str) -> int:
    return int.from_bytes(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), "big")


def raw_signature(key: ec.EllipticCurvePrivateKey, content: bytes) -> bytes:
    """r and s as JWS writes them (RFC 7518, section 3.4)."""
    r, s = decode_dss_signature(key.sign(content, ec.ECDSA(hashes.SHA256())))
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")


@dataclass(frozen=True)
class Issuer:
    """The local issuer's private half, as somebody who holds the key file could use it."""

    jwk: dict[str, str]

    @property
    def key(self) -> ec.EllipticCurvePrivateKey:
        return ec.derive_private_key(number(self.jwk["d"]), ec.SECP256R1())

    @property
    def public_pem(self) -> bytes:
        encoding, form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        return self.key.public_key().public_bytes(encoding, form)

    def header(self, **changes: object) -> dict[str, object]:
        header = {"alg": "ES256", "kid": self.jwk["kid"], "typ": "JWT"} | changes
        return {name: value for name, value in header.items() if value is not None}

    def claims(self, **changes: object) -> dict[str, object]:
        """Good claims with changes; a change to None leaves the claim out."""
        now = int(time.time())
        claims = {
            "iss": LOCAL_ISSUER,
            "aud": "qa-gateway",
            "tenant": "acme",
            "sub": "ann",
            "groups": ["staff"],
            "scope": "ask",
            "iat": now,
            "nbf": now,
            "exp": now + 600,
        } | changes
        return {name: value for name, value in claims.items() if value is not None}

    def sign(
        self,
        header: object,
        payload: object,
        sign: Callable[[bytes], bytes] | None = None,
    ) -> str:
        """Header and payload as objects, or as the bytes that stand for them."""
        parts = [part if isinstance(part, bytes) else json.dumps(part).encode() for part in (header, payload)]
        content = ".".join(map(b64, parts))
        signature = (sign or self._es256)(content.encode())
        return f"{content}.{b64(signature)}"

    def _es256(self, content: bytes) -> bytes:
        return raw_signature(self.key, content)


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    folder = tmp_path_factory.mktemp("issuer")
    LocalKey.load(folder)
    return Issuer(json.loads((folder / "keys" / "es256.json").read_text()))


@dataclass(frozen=True)
class Server:
    world: World
    port: int

    async def answer(self, token: str, door: Door = SEARCH) -> tuple[int, dict[str, Any], dict[str, str]]:
        head, body = await request(
            self.port, door.method, door.path, token=token, body=door.body, headers=door.headers
        )
        content = json.loads(body) if head.headers["content-type"].endswith("json") else {}
        return head.status, content, dict(head.headers)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def server(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """A gateway that trusts this very issuer."""
    folder: Path = tmp_path_factory.mktemp("verifier")
    (folder / "keys").mkdir()
    (folder / "keys" / "es256.json").write_text(json.dumps(issuer.jwk))
    world = World(requests_per_minute=1_000_000)
    world.services = replace(
        world.services, verifier=LocalKey.load(folder).verifier("qa-gateway", leeway_s=30)
    )
    await world.learn(TEXT)
    async with serving_world(world) as port:
        yield Server(world, port)


def claims(**changes: object) -> Token:
    return lambda issuer: issuer.sign(issuer.header(), issuer.claims(**changes))


def header(**changes: object) -> Token:
    return lambda issuer: issuer.sign(issuer.header(**changes), issuer.claims())


def unsigned(algorithm: str) -> Token:
    return lambda issuer: issuer.sign(issuer.header(alg=algorithm), issuer.claims(), lambda _: b"")


def hs256_with(secret: Callable[[Issuer], bytes]) -> Token:
    """Signed with the public key as if it were a shared secret."""

    def build(issuer: Issuer) -> str:
        def sign(content: bytes) -> bytes:
            return hmac.new(secret(issuer), content, hashlib.sha256).digest()

        return issuer.sign(issuer.header(alg="HS256"), issuer.claims(), sign)

    return build


def own_key(**changes: Any) -> Token:
    """Signed with somebody else's key, whose public half the header brings along."""

    def build(issuer: Issuer) -> str:
        key = ec.generate_private_key(ec.SECP256R1())
        numbers = key.public_key().public_numbers()
        jwk = {
            "kty": "EC",
            "crv": "P-256",
            "kid": issuer.jwk["kid"],
            "x": b64(numbers.x.to_bytes(32, "big")),
            "y": b64(numbers.y.to_bytes(32, "big")),
        }
        values = {name: jwk if value == "own" else value for name, value in changes.items()}
        return issuer.sign(
            issuer.header(**values), issuer.claims(), lambda content: raw_signature(key, content)
        )

    return build


def rs256(issuer: Issuer) -> str:
    key = rsa.generate_private_key(65537, 2048)
    return issuer.sign(
        issuer.header(alg="RS256"),
        issuer.claims(),
        lambda content: key.sign(content, padding.PKCS1v15(), hashes.SHA256()),
    )


def es384_key(issuer: Issuer) -> str:
    key = ec.generate_private_key(ec.SECP384R1())
    return issuer.sign(
        issuer.header(), issuer.claims(), lambda content: key.sign(content, ec.ECDSA(hashes.SHA256()))
    )


def raw_payload(payload: bytes) -> Token:
    return lambda issuer: issuer.sign(issuer.header(), payload)


def raw_header(content: bytes) -> Token:
    return lambda issuer: issuer.sign(content, issuer.claims())


def changed(change: Callable[[str], str]) -> Token:
    return lambda issuer: change(issuer.sign(issuer.header(), issuer.claims()))


def with_exp(text: str) -> Token:
    """A number that json.dumps wouldn't write."""
    return lambda issuer: issuer.sign(
        issuer.header(), json.dumps(issuer.claims(exp=0)).replace('"exp": 0', f'"exp": {text}').encode()
    )


def later_claims(issuer: Issuer) -> str:
    """A good token's signature under other claims."""
    head, _, signature = issuer.sign(issuer.header(), issuer.claims()).split(".")
    return f"{head}.{b64(json.dumps(issuer.claims(tenant='globex')).encode())}.{signature}"


YEAR = 366 * 86_400
NOW = int(time.time())
INVALID: dict[str, Token] = {
    # algorithms
    "alg none": unsigned("none"),
    "alg nOnE": unsigned("nOnE"),
    "alg NONE": unsigned("NONE"),
    "alg empty": unsigned(""),
    "alg missing": header(alg=None),
    "alg list": header(alg=["ES256"]),
    "alg number": header(alg=256),
    "alg ES384": header(alg="ES384"),
    "alg es256": header(alg="es256"),
    "HS256 with the public PEM": hs256_with(lambda issuer: issuer.public_pem),
    "HS256 with the public JWK": hs256_with(
        lambda i: json.dumps({n: v for n, v in i.jwk.items() if n != "d"}).encode()
    ),
    "HS256 with nothing": hs256_with(lambda _: b""),
    "RS256": rs256,
    "a longer curve": es384_key,
    # keys
    "another key, our kid": own_key(),
    "kid missing": header(kid=None),
    "kid unknown": header(kid="other"),
    "kid empty": header(kid=""),
    "kid traversal": header(kid="../../../../dev/null"),
    "kid a file": header(kid="/proc/self/environ"),
    "kid SQL": header(kid="x' UNION SELECT 'secret' --"),
    "kid number": header(kid=0),
    "kid list": header(kid=["a"]),
    "kid object": header(kid={"a": 1}),
    "embedded jwk": own_key(jwk="own"),
    "embedded jwk, no kid": own_key(jwk="own", kid=None),
    "embedded jwk, good signature": header(jwk={"kty": "EC"}),
    "jku": header(jku="https://attacker.example/jwks.json"),
    "x5u": header(x5u="https://attacker.example/cert.pem"),
    "x5c": header(x5c=["MIIB"]),
    "crit unknown": header(crit=["exp2"], exp2=1),
    "crit empty": header(crit=[]),
    "crit text": header(crit="exp"),
    "b64 false": header(b64=False, crit=["b64"]),
    "b64 false, not critical": header(b64=False),
    "zip": header(zip="DEF"),
    "cty nested": header(cty="JWT"),
    # signatures
    "zero signature": lambda i: i.sign(i.header(), i.claims(), lambda _: bytes(64)),
    "empty signature": lambda i: i.sign(i.header(), i.claims(), lambda _: b""),
    "short signature": lambda i: i.sign(i.header(), i.claims(), lambda _: bytes(63)),
    "DER signature": lambda i: i.sign(
        i.header(), i.claims(), lambda c: i.key.sign(c, ec.ECDSA(hashes.SHA256()))
    ),
    "other claims": later_claims,
    # times
    "exp missing": claims(exp=None),
    "exp text": claims(exp=str(NOW + 600)),
    "exp true": claims(exp=True),
    "exp list": claims(exp=[NOW + 600]),
    "exp negative": claims(exp=-1),
    "exp 1e400": with_exp("1e400"),
    "exp NaN": with_exp("NaN"),
    "exp Infinity": with_exp("Infinity"),
    "exp of 5,000 digits": with_exp("9" * 5000),
    "exp in milliseconds": claims(exp=(NOW + YEAR) * 1000),
    "nbf future": claims(nbf=NOW + 3600),
    "nbf text": claims(nbf="0"),
    "nbf true": claims(nbf=True),
    "iat future": claims(iat=NOW + 3600),
    "iat text": claims(iat="now"),
    "iat negative": claims(iat=-5),
    # issuer and audience
    "iss missing": claims(iss=None),
    "iss other": claims(iss="https://issuer.example"),
    "iss with a slash": claims(iss=LOCAL_ISSUER + "/"),
    "iss in capitals": claims(iss=LOCAL_ISSUER.upper()),
    "iss list": claims(iss=[LOCAL_ISSUER]),
    "aud missing": claims(aud=None),
    "aud wrong": claims(aud="other"),
    "aud prefix": claims(aud="qa-gate"),
    "aud longer": claims(aud="qa-gateway-admin"),
    "aud padded": claims(aud=" qa-gateway"),
    "aud empty list": claims(aud=[]),
    "aud list without us": claims(aud=["a", "b"]),
    "aud list with a number": claims(aud=["qa-gateway", 1]),
    "aud object": claims(aud={"qa-gateway": True}),
    # who
    "tenant missing": claims(tenant=None),
    "tenant empty": claims(tenant=""),
    "tenant list": claims(tenant=["acme"]),
    "tenant number": claims(tenant=1),
    "tenant padded": claims(tenant=" acme"),
    "tenant NUL": claims(tenant="acme\0"),
    "tenant newline": claims(tenant="acme\n"),
    "tenant long": claims(tenant="t" * 257),
    "sub missing": claims(sub=None),
    "sub empty": claims(sub=""),
    "sub number": claims(sub=7),
    "sub padded": claims(sub="ann "),
    "sub control": claims(sub="an\x1bn"),
    "sub surrogate": claims(sub="\ud800"),
    "sub right-to-left": claims(sub="ann\u202e"),
    "sub invisible": claims(sub="ann\u200b"),
    "groups text": claims(groups="staff"),
    "groups object": claims(groups={"staff": 1}),
    "groups with a number": claims(groups=["staff", 1]),
    "groups with a list": claims(groups=[["staff"]]),
    "groups with null": claims(groups=["staff", None]),
    "groups with an empty one": claims(groups=["staff", ""]),
    "groups of 1,000": claims(groups=[f"g{i}" for i in range(1000)]),
    "groups with a NUL": claims(groups=["a\0"]),
    "scope unknown": claims(scope="ask admin"),
    "scope list": claims(scope=["ask"]),
    "scope with a comma": claims(scope="ask,ingest"),
    "scope in capitals": claims(scope="ASK"),
    # forms
    "payload list": raw_payload(b"[]"),
    "payload text": raw_payload(b'"ann"'),
    "payload number": raw_payload(b"1"),
    "payload null": raw_payload(b"null"),
    "payload empty": raw_payload(b""),
    "payload cut off": raw_payload(b'{"iss": "'),
    "payload not UTF-8": raw_payload(b'{"iss": "\xff"}'),
    "payload deep": raw_payload(b"[" * 3000 + b"]" * 3000),
    "header list": raw_header(b"[]"),
    "header text": raw_header(b'"ES256"'),
    "header number": raw_header(b"1"),
    "header null": raw_header(b"null"),
    "header empty": raw_header(b""),
    "header not JSON": raw_header(b"alg=ES256"),
    "header not UTF-8": raw_header(b'{"alg": "\xff"}'),
    "header deep": raw_header(b'{"a":' * 900 + b"1" + b"}" * 900),
    "one part": lambda _: "abc",
    "two parts": changed(lambda token: token.rsplit(".", 1)[0]),
    "four parts": changed(lambda token: token + ".abc"),
    "five parts like a JWE": changed(lambda token: token + ".abc.def"),
    "only dots": lambda _: "..",
    "not base64": changed(lambda token: "!" + token[1:]),
    "padded base64": changed(lambda token: token + "=="),
    "a space inside": changed(lambda token: token[:20] + " " + token[20:]),
    "10 kB": claims(extra="x" * 10_000),
    "a password": lambda _: "hunter2",
}
#: well signed and once good: the client may fetch a new one
EXPIRED: dict[str, Token] = {
    "an hour ago": claims(exp=NOW - 3600, iat=NOW - 7200, nbf=NOW - 7200),
    "in 1970": claims(exp=0, iat=0, nbf=0),
    "a fraction": claims(exp=NOW - 100.5),
}
ACCEPTED: dict[str, Token] = {
    "as it should be": claims(),
    "aud in a list": claims(aud=["other", "qa-gateway"]),
    "no nbf, no iat": claims(nbf=None, iat=None),
    "a fractional exp": claims(exp=NOW + 600.5),
    "no typ": header(typ=None),
    "all scopes": claims(scope="ask ingest release revoke operate"),
    "surplus claims": claims(email="ann@acme.example", roles=["admin"], permitted_classes=[1, 2, 3]),
    "a blank around": changed(lambda token: f" {token}  "),
}


@pytest.mark.parametrize("token", ACCEPTED.values(), ids=ACCEPTED)
async def test_a_good_token_is_accepted(server: Server, issuer: Issuer, token: Token) -> None:
    """So that the refusals below are refusals of what they name."""
    status, body, _ = await server.answer(token(issuer))
    assert status == 200, body
    assert body["results"]


@pytest.mark.parametrize("door", [ASK, SEARCH], ids=str)
@pytest.mark.parametrize("token", INVALID.values(), ids=INVALID)
async def test_an_invalid_token_is_no_identity(
    server: Server, issuer: Issuer, token: Token, door: Door
) -> None:
    """401 token_invalid, without a word on why; no part is asked."""
    before = (server.world.model.called, server.world.embedder.calls)
    status, body, headers = await server.answer(token(issuer), door)
    assert (status, body["code"]) == (401, "token_invalid")
    assert headers["www-authenticate"] == 'Bearer error="token_invalid"'
    assert (server.world.model.called, server.world.embedder.calls) == before


@pytest.mark.parametrize("token", EXPIRED.values(), ids=EXPIRED)
async def test_an_expired_token_says_so(server: Server, issuer: Issuer, token: Token) -> None:
    """401 token_expired."""
    status, body, _ = await server.answer(token(issuer))
    assert (status, body["code"]) == (401, "token_expired")


async def test_an_expired_token_of_somebody_else_is_just_invalid(server: Server) -> None:
    """Nothing is read from a token before its signature holds."""
    other = World().token(ttl_s=-3600)
    status, body, _ = await server.answer(other)
    assert (status, body["code"]) == (401, "token_invalid")
