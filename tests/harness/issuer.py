"""A small OIDC issuer on a real socket: two keys, tokens of any form, and faults of every kind.

``python -m tests.harness.issuer acme/ann/staff/ask,ingest …`` runs it alone, for a dry run of a deployment:
it prints its address, then a token a TENANT/SUBJECT/GROUPS/SCOPES, good for a day.
"""

import argparse
import base64
import contextlib
import functools
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

AUDIENCE = "qa-gateway"
DISCOVERY = "/.well-known/openid-configuration"
JWKS = "/jwks"
JSON = "application/json"
_PATIENCE_S = 30


def b64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def b64_int(number: int) -> str:
    return b64(number.to_bytes((number.bit_length() + 7) // 8, "big"))


def raw_signature(key: ec.EllipticCurvePrivateKey, content: bytes) -> bytes:
    """r and s as JWS writes them (RFC 7518, section 3.4)."""
    r, s = decode_dss_signature(key.sign(content, ec.ECDSA(hashes.SHA256())))
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")


@functools.cache
def rsa_key(generation: int) -> rsa.RSAPrivateKey:
    """One for each generation of keys in a test process: making one is slow and says nothing new."""
    return rsa.generate_private_key(65537, 2048)


@dataclass(frozen=True)
class SigningKey:
    """A private key, its public forms, and any token somebody who holds it could make."""

    kid: str
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
    issuer: str
    #: algorithm in the header, unless a header says otherwise
    algorithm: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "algorithm", "RS256" if isinstance(self.key, rsa.RSAPrivateKey) else "ES256")

    @property
    def jwk(self) -> dict[str, Any]:
        """The public half."""
        members: dict[str, Any]
        if isinstance(self.key, rsa.RSAPrivateKey):
            rsa_numbers = self.key.public_key().public_numbers()
            members = {"kty": "RSA", "n": b64_int(rsa_numbers.n), "e": b64_int(rsa_numbers.e)}
        else:
            numbers = self.key.public_key().public_numbers()
            x, y = (b64(n.to_bytes(32, "big")) for n in (numbers.x, numbers.y))
            members = {"kty": "EC", "crv": "P-256", "x": x, "y": y}
        return {**members, "kid": self.kid, "use": "sig", "alg": self.algorithm}

    def public_bytes(self, encoding: serialization.Encoding) -> bytes:
        return self.key.public_key().public_bytes(encoding, serialization.PublicFormat.SubjectPublicKeyInfo)

    def header(self, **changes: object) -> dict[str, object]:
        """A good header with changes; a change to None leaves the field out."""
        header = {"alg": self.algorithm, "kid": self.kid, "typ": "JWT"} | changes
        return {name: value for name, value in header.items() if value is not None}

    def claims(self, **changes: object) -> dict[str, object]:
        """Good claims with changes; a change to None leaves the claim out."""
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": AUDIENCE,
            "tenant": "acme",
            "sub": "ann",
            "groups": ["staff"],
            "scope": "ask",
            "iat": now,
            "nbf": now,
            "exp": now + 600,
        } | changes
        return {name: value for name, value in claims.items() if value is not None}

    def token(
        self, header: object, payload: object, signature: Callable[[bytes], bytes] | None = None
    ) -> str:
        """Header and payload as objects, or as the bytes that stand for them."""
        parts = [part if isinstance(part, bytes) else json.dumps(part).encode() for part in (header, payload)]
        content = ".".join(map(b64, parts))
        return f"{content}.{b64((signature or self.signature)(content.encode()))}"

    def sign(self, **claims: object) -> str:
        return self.token(self.header(), self.claims(**claims))

    def signature(self, content: bytes) -> bytes:
        if isinstance(self.key, rsa.RSAPrivateKey):
            return self.key.sign(content, padding.PKCS1v15(), hashes.SHA256())
        return raw_signature(self.key, content)


@dataclass
class Answer:
    """What the issuer says instead of a document."""

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": JSON})


class Issuer:
    """Serves its discovery document and its keys; ``requests`` counts by path.

    ``answers`` replaces a path's document, ``hold()`` lets requests wait, ``down()`` closes the port.
    """

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.answers: dict[str, Answer] = {}
        self.arrived = threading.Semaphore(0)
        self._go = threading.Event()
        self._go.set()
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None
        self._port = 0
        self.up()
        self._generation = 0
        self.rotate()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def jwks_url(self) -> str:
        return self.url + JWKS

    @property
    def key_set(self) -> dict[str, Any]:
        return {"keys": [self.es256.jwk, self.rs256.jwk]}

    def sign(self, **claims: object) -> str:
        """A good token of the ES256 key, with changed claims."""
        return self.es256.sign(**claims)

    def rotate(self) -> None:
        """New keys under new names; the old ones are published no more."""
        self._generation += 1
        self.es256 = SigningKey(f"ec-{self._generation}", ec.generate_private_key(ec.SECP256R1()), self.url)
        self.rs256 = SigningKey(f"rsa-{self._generation}", rsa_key(self._generation), self.url)

    def publish(self, *keys: Mapping[str, Any]) -> None:
        """These keys, in place of its own."""
        self.answers[JWKS] = Answer(json.dumps({"keys": list(keys)}).encode())

    def hold(self) -> None:
        """Requests wait, after they were counted, until ``release``."""
        self._go.clear()

    def release(self) -> None:
        self._go.set()

    def down(self) -> None:
        """Nobody listens any more; returns when every answer has ended."""
        self._go.set()
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._thread.join(_PATIENCE_S)
            self._server.server_close()
            self._server = None

    def up(self) -> None:
        """Listens, on the port it had before."""
        self._server = _Server(("127.0.0.1", self._port), _handler(self))
        self._port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def answer(self, path: str) -> Answer:
        self.requests[path] += 1
        self.arrived.release()
        self._go.wait(_PATIENCE_S)
        if path in self.answers:
            return self.answers[path]
        documents: dict[str, object] = {
            DISCOVERY: {"issuer": self.url, "jwks_uri": self.jwks_url},
            JWKS: self.key_set,
        }
        if path not in documents:
            return Answer(b"{}", 404)
        return Answer(json.dumps(documents[path]).encode())


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # joined when the server closes
    allow_reuse_address = True


def _handler(issuer: Issuer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = issuer.answer(self.path)
            with contextlib.suppress(OSError):  # whoever asked has gone
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer.body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Says nothing on the terminal."""

    return Handler


@contextlib.contextmanager
def serving_issuer() -> Iterator[Issuer]:
    """An issuer until the end of the block."""
    issuer = Issuer()
    try:
        yield issuer
    finally:
        issuer.down()


def main() -> None:
    parser = argparse.ArgumentParser(description="An issuer to try a deployment with.")
    parser.add_argument("who", nargs="*", metavar="TENANT/SUBJECT/GROUPS/SCOPES")
    with serving_issuer() as issuer:
        said = [issuer.url]
        for who in parser.parse_args().who:
            tenant, subject, groups, scopes = who.split("/")
            claims = {"tenant": tenant, "sub": subject, "groups": groups.split(",")}
            scope, until = scopes.replace(",", " "), int(time.time()) + 86_400
            said.append(issuer.sign(**claims, scope=scope, exp=until))
        sys.stdout.write("\n".join([*said, ""]))
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
