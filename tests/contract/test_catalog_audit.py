"""Contract of AuditLog: entries come back whole, newest first, to their own tenant only."""

import pytest

from gateway.observe.audit import AuditRecord
from tests.contract.catalog_world import HOSTILE_NAMES, World

#: a PostgreSQL database is kept for the whole module
pytestmark = pytest.mark.asyncio(loop_scope="module")


def _record(
    world: World, action: str = "answer", tenant: str = "acme", request_id: str = "r", **details: object
) -> AuditRecord:
    return AuditRecord(world.clock(), tenant, "ann", action, request_id, details)


async def test_entries_come_back_whole(world: World) -> None:
    """Numbers, lists, nesting and nulls included."""
    record = _record(
        world,
        chunks=["a", "b"],
        counts={"candidates": 24, "dropped": 0},
        score=0.25,
        cached=False,
        model=None,
        release="R\u00fcck 🙂",
    )
    await world.catalog.append(record)
    assert await world.catalog.entries("acme", 10) == [record]


async def test_entries_are_newest_first_and_limited(world: World) -> None:
    """The limit takes the newest, also among those of one moment."""
    for number in range(5):
        await world.catalog.append(_record(world, request_id=f"r{number}"))
        world.clock.advance(number % 2)
    assert [e.request_id for e in await world.catalog.entries("acme", 3)] == ["r4", "r3", "r2"]
    assert len(await world.catalog.entries("acme", 100)) == 5


async def test_entries_can_be_narrowed_to_an_action(world: World) -> None:
    """Before the limit is applied."""
    for action in ("answer", "revoke", "answer", "answer"):
        await world.catalog.append(_record(world, action=action))
    assert [e.action for e in await world.catalog.entries("acme", 1, "revoke")] == ["revoke"]
    assert len(await world.catalog.entries("acme", 10, "answer")) == 3
    assert await world.catalog.entries("acme", 10, "no-such-action") == []


async def test_equal_entries_are_all_kept(world: World) -> None:
    """A trail counts what happened."""
    for _ in range(2):
        await world.catalog.append(_record(world))
    assert len(await world.catalog.entries("acme", 10)) == 2


async def test_entries_of_another_tenant_are_never_returned(world: World) -> None:
    """With or without an action."""
    await world.catalog.append(_record(world, tenant="acme"))
    assert await world.catalog.entries("globex", 10) == []
    assert await world.catalog.entries("globex", 10, "answer") == []


async def test_a_kept_entry_does_not_follow_its_details(world: World) -> None:
    """What was written is what was true then."""
    chunks = ["a"]
    await world.catalog.append(_record(world, chunks=chunks))
    chunks.append("b")
    [entry] = await world.catalog.entries("acme", 10)
    assert entry.details == {"chunks": ["a"]}


async def test_details_that_are_no_json_are_a_defect(world: World) -> None:
    """It shows at once, in every implementation, and nothing is kept."""
    with pytest.raises(TypeError):
        await world.catalog.append(_record(world, classes=frozenset({1})))
    assert await world.catalog.entries("acme", 10) == []


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=lambda name: ascii(name[:12]))
async def test_hostile_names_are_kept_literally(world: World, name: str) -> None:
    """In every field, and as a filter."""
    record = AuditRecord(world.clock(), name, name, name, name, {name: name})
    await world.catalog.append(record)
    await world.catalog.append(_record(world))
    assert await world.catalog.entries(name, 10, name) == [record]
    assert await world.catalog.entries("acme", 10, name) == []
