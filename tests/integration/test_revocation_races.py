"""Rights that end while a question is on its way: between every check, the revocation and the first byte."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import anyio
import pytest
import pytest_asyncio

from gateway.adapters.memory.models import Gate, ScriptedModel
from tests.harness.serving import serving
from tests.harness.wire import Wire, connected
from tests.integration.revocation_world import (
    ACTS,
    PATIENCE_S,
    PIECES,
    QUESTION,
    Act,
    Stopping,
    Switchboard,
    Told,
    stopping_ground,
    told,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: nobody looks again by himself
_SELDOM: dict[str, Any] = {"revocation_poll_ms": 3_600_000, "revocation_bound_ms": 7_200_000}


@dataclass(frozen=True)
class Place:
    """Where the question waits: at the nth call of a part's method, its answer on the way (or not yet asked).

    ``found``: its evidence was read before the rights ended. ``blind``: nobody but the feed can notice.
    """

    name: str
    part: str
    method: str
    call: int = 1
    after: bool = True
    found: bool = False
    blind: bool = False


PLACES = (
    Place("before_the_stamp", "catalog", "tenant_stamp", after=False),
    Place("stamp_read", "catalog", "tenant_stamp"),
    Place("revocations_read", "catalog", "revocations"),
    Place("classes_read", "catalog", "acl_classes"),
    Place("release_read", "catalog", "active"),
    Place("statistics_read", "catalog", "statistics"),
    Place("embedding", "embedder", "embed"),
    Place("searching", "vectors", "dense", after=False),
    Place("searched", "vectors", "lexical"),
    Place("before_the_recheck", "catalog", "standings", after=False),
    Place("rechecked", "catalog", "standings", found=True),
    Place("second_stamp_read", "catalog", "tenant_stamp", call=2, found=True),
    Place("before_the_last_stamp", "catalog", "tenant_stamp", call=3, after=False, found=True),
    Place("last_stamp_read", "catalog", "tenant_stamp", call=3, found=True, blind=True),
)


@pytest.fixture(scope="module")
def board() -> Switchboard:
    """Connects the module's one server with the world of the moment."""
    return Switchboard()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def port(board: Switchboard) -> AsyncIterator[int]:
    """Of the module's server."""
    async with serving(board) as port:
        yield port


#: with the feed's help every way, without it one for each kind of check that the question makes
_KINDS = ("user", "document", "acl", "key")
CELLS = [
    pytest.param(place, act, looked, id=f"{place.name}-{act.name}-{'feed' if looked else 'question'}")
    for place in PLACES
    for act in ACTS
    for looked in (True, False)
    if act.name != "maker" and (looked or (act.name in _KINDS and not place.blind))
]


async def waiting_at(place: Place) -> tuple[Told, Gate]:
    ground = stopping_ground()
    known = await told(ground, model=ScriptedModel(PIECES), **_SELDOM)
    part: Stopping = getattr(ground, place.part)
    return known, part.gate(place.method, call=place.call, after=place.after)


@pytest.mark.parametrize(("place", "act", "looked"), CELLS)
async def test_nothing_leaves_once_the_rights_have_ended(
    board: Switchboard, port: int, place: Place, act: Act, looked: bool
) -> None:
    """Whether the feed has looked or not; the one moment that only the feed can see is its own."""
    known, gate = await waiting_at(place)
    with anyio.fail_after(PATIENCE_S):
        async with board.connecting(known.world), connected(port) as wire:
            await wire.ask(known.credentials[act.credential], QUESTION)
            await gate.reached.wait()
            await act.in_catalog(known)
            if looked:
                await known.world.services.feed.step()
            gate.release.set()
            assert await outcome(wire) == (act.code if place.found else act.code_early)
        await known.world.registry.idle()
    assert known.world.model.called == 0
    known.world.assert_nothing_held()


async def outcome(wire: Wire) -> str:
    """The code of the problem, or the status of a refusal, which shows nothing."""
    head = await wire.read_head()
    if head.status != 200:
        return str((await wire.json())["code"])
    meta, done = await wire.all_events()
    assert (meta.data["sources"], done.data["citations"]) == ([], [])
    return str(done.data["status"])
