"""Every attack on a token, against both kinds of keys of an OIDC issuer and against the local key."""

import base64
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.asymmetric import ec

from gateway.access.principal import IdentityVerifier
from gateway.adapters.identity.oidc import OidcVerifier
from gateway.adapters.identity.tokens import LOCAL_ISSUER, LocalKey
from gateway.errors import TokenExpired, TokenInvalid
from tests.harness.issuer import AUDIENCE, JWKS, Issuer, SigningKey, serving_issuer
from tests.harness.token_attacks import ACCEPTED, EXPIRED, INVALID, LOCAL_INVALID, UNSENDABLE, Token

pytestmark = pytest.mark.asyncio(loop_scope="module")

LEEWAY_S = 30
KINDS = ("local ES256", "OIDC ES256", "OIDC RS256")


@dataclass(frozen=True)
class Target:
    """A key that may sign, and the verifier that believes it."""

    key: SigningKey
    verifier: IdentityVerifier


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with serving_issuer() as one:
        yield one


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def targets(
    issuer: Issuer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[dict[str, Target]]:
    folder = tmp_path_factory.mktemp("local")
    verifier = OidcVerifier(issuer.url, AUDIENCE, leeway_s=LEEWAY_S)
    yield {
        "local ES256": Target(local_key(folder), LocalKey.load(folder).verifier(AUDIENCE, LEEWAY_S)),
        "OIDC ES256": Target(issuer.es256, verifier),
        "OIDC RS256": Target(issuer.rs256, verifier),
    }
    await verifier.aclose()


def local_key(folder: Path) -> SigningKey:
    """The private half, as somebody who holds the key file could use it."""
    LocalKey.load(folder)
    jwk = json.loads((folder / "keys" / "es256.json").read_text())
    secret = int.from_bytes(base64.urlsafe_b64decode(jwk["d"] + "="), "big")
    return SigningKey(jwk["kid"], ec.derive_private_key(secret, ec.SECP256R1()), LOCAL_ISSUER)


async def test_there_are_at_least_forty_attacks() -> None:
    """A table that shrank would still be green."""
    assert len(INVALID) + len(UNSENDABLE) + len(EXPIRED) >= 40


by_kind = pytest.mark.parametrize("kind", KINDS)
ATTACKS = INVALID | UNSENDABLE


@by_kind
@pytest.mark.parametrize("token", ACCEPTED.values(), ids=ACCEPTED)
async def test_a_good_token_is_accepted(targets: dict[str, Target], kind: str, token: Token) -> None:
    """So that the refusals below are refusals of what they name."""
    target = targets[kind]
    principal = await target.verifier.verify(token(target.key))
    assert (principal.tenant, principal.subject) == ("acme", "ann")
    assert "staff" in principal.groups
    assert "ask" in principal.scopes


@by_kind
@pytest.mark.parametrize("token", ATTACKS.values(), ids=ATTACKS)
async def test_an_attack_is_no_identity(targets: dict[str, Target], kind: str, token: Token) -> None:
    """token_invalid and no word more: neither a principal nor another error."""
    target = targets[kind]
    with pytest.raises(TokenInvalid):
        await target.verifier.verify(token(target.key))


@by_kind
@pytest.mark.parametrize("token", EXPIRED.values(), ids=EXPIRED)
async def test_an_expired_token_says_so(targets: dict[str, Target], kind: str, token: Token) -> None:
    """Its holder may fetch a new one."""
    target = targets[kind]
    with pytest.raises(TokenExpired):
        await target.verifier.verify(token(target.key))


@by_kind
@pytest.mark.parametrize("token", LOCAL_INVALID.values(), ids=LOCAL_INVALID)
async def test_what_an_outside_issuer_grants_beside_ours_is_passed_over(
    targets: dict[str, Target], kind: str, token: Token
) -> None:
    """From our own issuer it is a mistake; from another it gives no right."""
    target = targets[kind]
    if kind.startswith("local"):
        with pytest.raises(TokenInvalid):
            await target.verifier.verify(token(target.key))
    else:
        principal = await target.verifier.verify(token(target.key))
        assert principal.scopes <= {"ask"}


async def test_no_attack_has_sent_the_gateway_anywhere(issuer: Issuer, targets: dict[str, Target]) -> None:
    """The keys came from one place, and unknown names fetched them at most once more."""
    await targets["OIDC ES256"].verifier.verify(issuer.sign())
    assert issuer.requests[JWKS] <= 2
