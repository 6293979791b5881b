"""Contract of acts: under one key a change happens once, and its audit entry is part of it."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from gateway.access.act import Act
from gateway.errors import IdempotencyMismatch, KnowledgeBaseNotFound, ReleaseConflict
from gateway.stream.revocation import RevocationKind
from tests.contract.catalog_world import World, import_of, upload

#: a PostgreSQL database is kept for the whole module
pytestmark = pytest.mark.asyncio(loop_scope="module")

_Change = Callable[[World, Act | None], Awaitable[object]]


async def _import(world: World, act: Act | None) -> object:
    request = import_of(upload("c"))
    if act is not None:
        request = replace(
            request, subject=act.subject, idempotency_key=act.key, request_hash=act.request_hash
        )
    return await world.catalog.accept_import(request)


async def _build(world: World, act: Act | None) -> object:
    return await world.catalog.accept_release("acme", "handbook", 60, act=act)


async def _activate(world: World, act: Act | None) -> object:
    newest = (await world.catalog.releases("acme", "handbook"))[0]
    return await world.catalog.activate("acme", newest.release_id, None, act=act)


async def _roll_back(world: World, act: Act | None) -> object:
    return await world.catalog.roll_back("acme", "handbook", act=act)


async def _revoke(world: World, act: Act | None) -> object:
    return await world.catalog.revoke("acme", RevocationKind.USER, "mallory", "left", "olga", act=act)


_CHANGES: dict[str, _Change] = {
    "import": _import,
    "build": _build,
    "activate": _activate,
    "roll back": _roll_back,
    "revoke": _revoke,
}


@pytest.fixture(params=_CHANGES, name="change")
def _change(request: pytest.FixtureRequest) -> _Change:
    return _CHANGES[request.param]


async def _prepared(world: World, *, active: int = 2) -> None:
    """So many releases have been active and another one is READY: each change can happen."""
    for number in range(active):
        await world.import_ready(upload("a", f"text {number}"))
        await world.release()
    await world.import_ready(upload("b"))
    await world.ready_release()


def _act(key: str | None = "a key", *, subject: str = "olga", asked: str = "a hash") -> Act:
    return Act("acme", subject, "an.act", asked, key, {"given": "with it"})


async def _state(world: World) -> tuple[object, ...]:
    """Everything that any of the changes changes."""
    return (
        await world.catalog.releases("acme", "handbook"),
        await world.catalog.list_revocations("acme"),
        await world.catalog.documents("acme", "handbook"),
        await world.epoch(),
        await world.catalog.entries("acme", 99),
    )


async def test_the_same_key_answers_the_same_and_changes_nothing(world: World, change: _Change) -> None:
    """However often it is sent. One audit entry names who did what, and what came of it."""
    await _prepared(world)
    entries = await world.catalog.entries("acme", 99)
    answer = await change(world, _act())
    entry, *older = await world.catalog.entries("acme", 99)
    assert older == entries
    assert (entry.tenant, entry.subject, entry.at) == ("acme", "olga", world.clock())
    assert entry.details.keys() & {"task", "sequence", "revocation"}
    if change is not _import:
        assert (entry.action, entry.details["given"]) == ("an.act", "with it")
    after = await _state(world)
    for _ in range(2):
        assert await change(world, _act()) == answer
    assert await _state(world) == after


async def test_the_same_key_with_another_request_is_refused(world: World, change: _Change) -> None:
    """And nothing of it happens."""
    await _prepared(world)
    await change(world, _act())
    after = await _state(world)
    with pytest.raises(IdempotencyMismatch):
        await change(world, _act(asked="another hash"))
    assert await _state(world) == after


async def test_keys_of_two_people_are_two_keys(world: World) -> None:
    """The other one's answer isn't given out; without a key each time counts."""
    await _prepared(world, active=4)
    first = await world.catalog.roll_back("acme", "handbook", act=_act())
    second = await world.catalog.roll_back("acme", "handbook", act=_act(subject="otto"))
    third = await world.catalog.roll_back("acme", "handbook", act=_act(None))
    assert second.release_sequence == first.release_sequence + 1
    assert third.release_sequence == second.release_sequence + 1


async def test_one_key_is_for_one_kind_of_act(world: World) -> None:
    """Every kind's request hash is another."""
    await world.import_ready(upload("a"))
    await _build(world, _act())
    with pytest.raises(IdempotencyMismatch):
        await _revoke(world, _act(asked="of a revocation"))


async def test_a_change_that_fails_keeps_nothing(world: World) -> None:
    """Neither an answer nor an entry: the same key may be used again."""
    await world.import_ready(upload("a"))
    entries = await world.catalog.entries("acme", 99)
    with pytest.raises(ReleaseConflict):
        await world.catalog.roll_back("acme", "handbook", act=_act())
    with pytest.raises(KnowledgeBaseNotFound):
        await world.catalog.accept_release("acme", "no such", 60, act=_act())
    assert await world.catalog.entries("acme", 99) == entries
    await world.catalog.accept_release("acme", "handbook", 60, act=_act())


async def test_keys_of_long_ago_are_forgotten(world: World) -> None:
    """Then the same key is a new one."""
    await world.import_ready(upload("a"))
    first = await world.catalog.accept_release("acme", "handbook", 60, act=_act())
    world.clock.advance(100)
    await world.catalog.purge(100, 1e9)
    assert await world.catalog.accept_release("acme", "handbook", 60, act=_act()) == first
    world.clock.advance(1)
    await world.catalog.purge(100, 1e9)
    assert await world.catalog.accept_release("acme", "handbook", 60, act=_act()) != first
