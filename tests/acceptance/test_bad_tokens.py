"""Tokens that are wrong in one way each: 401 at the stream as at the plain routes."""

import base64
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.asymmetric import ec

from gateway.access.principal import IdentityVerifier
from gateway.adapters.identity.oidc import OidcVerifier
from gateway.adapters.identity.tokens import LOCAL_ISSUER, LocalKey
from tests.acceptance.doors import Door, door
from tests.harness.issuer import AUDIENCE, Issuer, SigningKey, serving_issuer
from tests.harness.serving import serving_world
from tests.harness.token_attacks import ACCEPTED, EXPIRED, INVALID, LOCAL_INVALID, Token, changed
from tests.harness.wire import request
from tests.harness.world import World

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = {"limits.md": "# Limits\n\nThe upload limit is 42 megabytes for every member of staff.\n"}
ASK, SEARCH = door("POST", "/v1/answers"), door("GET", "/v1/search")
SENT = {**ACCEPTED, "a blank around": changed(lambda token: f" {token}  ")}
REFUSED = INVALID | LOCAL_INVALID


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


@asynccontextmanager
async def serving_with(verifier: IdentityVerifier) -> AsyncIterator[Server]:
    world = World(requests_per_minute=1_000_000)
    world.services = replace(world.services, verifier=verifier)
    await world.learn(TEXT)
    async with serving_world(world) as port:
        yield Server(world, port)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with a signing key in it."""
    folder = tmp_path_factory.mktemp("issuer")
    LocalKey.load(folder)
    return folder


@pytest.fixture(scope="module")
def key(folder: Path) -> SigningKey:
    """The local key's private half, as somebody who holds the file could use it."""
    jwk = json.loads((folder / "keys" / "es256.json").read_text())
    secret = int.from_bytes(base64.urlsafe_b64decode(jwk["d"] + "="), "big")
    return SigningKey(jwk["kid"], ec.derive_private_key(secret, ec.SECP256R1()), LOCAL_ISSUER)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def server(folder: Path) -> AsyncIterator[Server]:
    """A gateway that trusts this very key."""
    async with serving_with(LocalKey.load(folder).verifier(AUDIENCE, leeway_s=30)) as one:
        yield one


@pytest.mark.parametrize("token", SENT.values(), ids=SENT)
async def test_a_good_token_is_accepted(server: Server, key: SigningKey, token: Token) -> None:
    """So that the refusals below are refusals of what they name."""
    status, body, _ = await server.answer(token(key))
    assert status == 200, body
    assert body["results"]


@pytest.mark.parametrize("door", [ASK, SEARCH], ids=str)
@pytest.mark.parametrize("token", REFUSED.values(), ids=REFUSED)
async def test_an_invalid_token_is_no_identity(
    server: Server, key: SigningKey, token: Token, door: Door
) -> None:
    """401 token_invalid, without a word on why; no part is asked."""
    before = (server.world.model.called, server.world.embedder.calls)
    status, body, headers = await server.answer(token(key), door)
    assert (status, body["code"]) == (401, "token_invalid")
    assert headers["www-authenticate"] == 'Bearer error="token_invalid"'
    assert (server.world.model.called, server.world.embedder.calls) == before


@pytest.mark.parametrize("token", EXPIRED.values(), ids=EXPIRED)
async def test_an_expired_token_says_so(server: Server, key: SigningKey, token: Token) -> None:
    """401 token_expired."""
    status, body, _ = await server.answer(token(key))
    assert (status, body["code"]) == (401, "token_expired")


async def test_an_expired_token_of_somebody_else_is_just_invalid(server: Server) -> None:
    """Nothing is read from a token before its signature holds."""
    other = World().token(ttl_s=-3600)
    status, body, _ = await server.answer(other)
    assert (status, body["code"]) == (401, "token_invalid")


# -- an outside issuer -----------------------------------------------------------------------------


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with serving_issuer() as one:
        yield one


async def test_without_the_issuers_keys_nobody_is_turned_away_for_good(issuer: Issuer) -> None:
    """503 with a time to come back while it is down; once it is up its tokens pass and all others are 401."""
    now = [0.0]
    verifier = OidcVerifier(issuer.url, AUDIENCE, leeway_s=30, clock=lambda: now[0])
    good, bad = issuer.rs256.sign(), INVALID["another key, our kid"](issuer.rs256)
    issuer.down()
    async with serving_with(verifier) as server:
        for token, door in ((good, ASK), (good, SEARCH), (bad, SEARCH)):
            status, body, headers = await server.answer(token, door)
            assert (status, body["code"], headers["retry-after"]) == (503, "identity_unavailable", "5")
        issuer.up()
        now[0] += 5
        assert [(await server.answer(token))[0] for token in (good, bad)] == [200, 401]
        issuer.down()
        assert [(await server.answer(token))[0] for token in (good, bad)] == [200, 401]
    await verifier.aclose()


@pytest.mark.parametrize("kind", ["es256", "rs256"])
async def test_the_worst_attacks_on_an_outside_issuer_end_alike(issuer: Issuer, kind: str) -> None:
    """The verifier's own tests have them all; here is one of each family through the whole gateway."""
    families = ("alg none", "HS256 with the public PEM", "kid unknown", "embedded jwk", "exp 1e400")
    verifier = OidcVerifier(issuer.url, AUDIENCE, leeway_s=30)
    key: SigningKey = getattr(issuer, kind)
    async with serving_with(verifier) as server:
        assert (await server.answer(key.sign()))[0] == 200
        for family in families:
            status, body, _ = await server.answer(INVALID[family](key), ASK)
            assert (status, body["code"]) == (401, "token_invalid"), family
    await verifier.aclose()
