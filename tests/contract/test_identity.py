"""Contract of IdentityVerifier: a credential is a whole principal, or it is no identity."""

import base64
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import anyio
import pytest

from gateway.access.principal import SCOPES, IdentityVerifier, Principal
from gateway.adapters.identity.oidc import OidcVerifier
from gateway.adapters.identity.tokens import LocalKey
from gateway.adapters.memory.identity import MemoryIdentities
from gateway.errors import TokenExpired, TokenInvalid
from tests.harness.issuer import AUDIENCE, Issuer, serving_issuer

LEEWAY_S = 30


class Source(Protocol):
    """Where credentials come from: a table, a key, an issuer."""

    def credential(self, principal: Principal) -> str: ...


class Table:
    def __init__(self) -> None:
        self.known: dict[str, Principal] = {}

    def credential(self, principal: Principal) -> str:
        bearer = uuid.uuid4().hex
        self.known[bearer] = principal
        return bearer


class Local:
    def __init__(self, folder: Path) -> None:
        self.key = LocalKey.load(folder)

    def credential(self, principal: Principal) -> str:
        return self.key.sign(
            tenant=principal.tenant,
            subject=principal.subject,
            groups=principal.groups,
            scopes=principal.scopes,
            ttl_s=principal.expires_at - int(time.time()),
            audience=AUDIENCE,
        )


class Outside:
    def __init__(self, issuer: Issuer) -> None:
        self.issuer = issuer

    def credential(self, principal: Principal) -> str:
        return self.issuer.sign(
            tenant=principal.tenant,
            sub=principal.subject,
            groups=sorted(principal.groups),
            scope=" ".join(sorted(principal.scopes)),
            exp=principal.expires_at,
            nbf=0,
            iat=0,
        )


class World:
    """A verifier, its source, and one that it doesn't know."""

    def __init__(self, verifier: IdentityVerifier, source: Source, stranger: Source) -> None:
        self.verifier = verifier
        self.source = source
        self.stranger = stranger


@pytest.fixture(scope="module")
def issuers() -> Iterator[tuple[Issuer, Issuer]]:
    with serving_issuer() as ours, serving_issuer() as theirs:
        yield ours, theirs


@asynccontextmanager
async def outside(ours: Issuer, theirs: Issuer) -> AsyncIterator[World]:
    verifier = OidcVerifier(ours.url, AUDIENCE, leeway_s=LEEWAY_S)
    yield World(verifier, Outside(ours), Outside(theirs))
    await verifier.aclose()


@pytest.fixture(params=["memory", "embedded", "real"])
async def world(
    request: pytest.FixtureRequest, issuers: tuple[Issuer, Issuer], tmp_path: Path
) -> AsyncIterator[World]:
    if request.param == "memory":
        table = Table()
        yield World(MemoryIdentities(table.known), table, Table())
    elif request.param == "embedded":
        local = Local(tmp_path / "ours")
        yield World(local.key.verifier(AUDIENCE, LEEWAY_S), local, Local(tmp_path / "theirs"))
    else:
        async with outside(*issuers) as one:
            yield one


def principal(
    tenant: str = "acme",
    subject: str = "ann",
    groups: tuple[str, ...] = ("staff",),
    scopes: tuple[str, ...] = ("ask",),
    ttl_s: int = 600,
) -> Principal:
    return Principal(tenant, subject, frozenset(groups), frozenset(scopes), int(time.time()) + ttl_s)


PEOPLE: dict[str, Principal] = {
    "one of the staff": principal(),
    "in no group": principal(groups=()),
    "without a right": principal(scopes=()),
    "with every right": principal(groups=("a", "b", "c"), scopes=tuple(SCOPES)),
    "with hostile names": principal("it's", "x'; DROP TABLE users; --", ('a"b', "%_*", "${x}")),
    "with names in other letters": principal("手册", "ann@例え.example", ("Zoë", "e\u0301", "🙂")),
    "with names that look alike": principal("аcme", "аnn"),
    "with a long name": principal("t" * 256, "s" * 256),
}


@pytest.mark.parametrize("person", PEOPLE.values(), ids=PEOPLE)
async def test_a_principal_comes_back_whole(world: World, person: Principal) -> None:
    """Tenant, subject, groups, scopes and end, byte for byte."""
    assert await world.verifier.verify(world.source.credential(person)) == person


async def test_two_callers_are_told_apart(world: World) -> None:
    """Also at once, and as often as they come."""
    people = [principal(tenant, subject) for tenant in ("acme", "globex") for subject in ("ann", "bob")]
    credentials = [world.source.credential(person) for person in people]
    found: dict[int, Principal] = {}

    async def verify(number: int) -> None:
        found[number] = await world.verifier.verify(credentials[number % len(people)])

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(verify, number)
    assert all(found[number] == people[number % len(people)] for number in range(20))


async def test_an_expired_credential_says_so(world: World) -> None:
    """Beyond any leeway."""
    bearer = world.source.credential(principal(ttl_s=-3600))
    with pytest.raises(TokenExpired):
        await world.verifier.verify(bearer)


async def test_a_strangers_credential_is_no_identity(world: World) -> None:
    """However well it is made; an expired one tells no more."""
    await world.verifier.verify(world.source.credential(principal()))
    for ttl_s in (600, -3600):
        with pytest.raises(TokenInvalid):
            await world.verifier.verify(world.stranger.credential(principal(ttl_s=ttl_s)))


async def test_part_of_a_credential_is_no_identity(world: World) -> None:
    """Nor more than the whole of it."""
    bearer = world.source.credential(principal())
    for changed in (bearer[:-1], bearer[1:], bearer + "A", bearer * 2, f" {bearer}", f"{bearer}\n"):
        with pytest.raises(TokenInvalid):
            await world.verifier.verify(changed)
    assert await world.verifier.verify(bearer)


GARBAGE = {
    "nothing": "",
    "a word": "hunter2",
    "dots": "..",
    "NUL": "\0",
    "letters of others": "Ключ.клю.ч",
    "half a surrogate pair": "\ud800",
    "long": "x" * 100_000,
    "an object": base64.b64encode(b'{"tenant": "acme"}').decode(),
    "an API key": f"qak_{'0' * 24}_{'A' * 43}",
}


@pytest.mark.parametrize("bearer", GARBAGE.values(), ids=GARBAGE)
async def test_garbage_is_no_identity(world: World, bearer: str) -> None:
    """token_invalid, never another error."""
    with pytest.raises(TokenInvalid):
        await world.verifier.verify(bearer)
