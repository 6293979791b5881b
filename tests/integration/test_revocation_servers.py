"""Rights taken away in one gateway while another one answers, both over one PostgreSQL; and over SQLite."""

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
import pytest_asyncio

from gateway.adapters.memory.models import Gate, ScriptedModel
from gateway.adapters.sql.catalog import SqlCatalog, open_catalog, open_postgres
from gateway.adapters.sql.notify import PostgresHints
from gateway.adapters.sql.postgres import PostgresDatabase
from gateway.adapters.sql.postgres_engine import postgres_url
from gateway.adapters.sql.sqlite import SqliteDatabase
from gateway.settings import Settings
from tests.harness.empty_catalog import emptied
from tests.harness.serving import serving
from tests.harness.wire import ask, connected
from tests.harness.world import World, twins
from tests.integration.revocation_world import (
    ACTS,
    PATIENCE_S,
    PIECES,
    QUESTION,
    Act,
    Switchboard,
    Told,
    stops,
    told,
)

if TYPE_CHECKING:
    from tests.harness.postgres import PostgresServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: with hints the feeds needn't look by themselves, without any they must
_SELDOM: dict[str, Any] = {"revocation_poll_ms": 3_600_000, "revocation_bound_ms": 7_200_000}
_OFTEN: dict[str, Any] = {"revocation_poll_ms": 50, "revocation_bound_ms": 60_000}
_PATIENT: dict[str, Any] = {"catalog_cap_ms": 10_000}
by_act = pytest.mark.parametrize("act", ACTS, ids=lambda act: act.name)


@dataclass
class Doors:
    """Two doors to one database, as two processes have them."""

    url: str
    there: PostgresDatabase
    here: PostgresDatabase


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def doors(postgres: "PostgresServer") -> AsyncIterator[Doors]:
    """For all tests of the module; each empties the database."""
    url = postgres.migrated()
    async with open_postgres(url, connections=2, cap_s=10):
        pass  # the first opening leaves an incarnation
    there, here = (PostgresDatabase(postgres_url(url), connections=4, cap_s=10) for _ in range(2))
    yield Doors(url, there, here)
    await there.aclose()
    await here.aclose()


@pytest.fixture(scope="module")
def boards() -> tuple[Switchboard, Switchboard]:
    """One for each gateway."""
    return Switchboard(), Switchboard()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ports(boards: tuple[Switchboard, Switchboard]) -> AsyncIterator[tuple[int, int]]:
    """Of the servers behind the boards."""
    async with serving(boards[0]) as there, serving(boards[1]) as here:
        yield there, here


@by_act
@pytest.mark.parametrize("hinted", [True, False], ids=["notified", "polling"])
async def test_a_stream_of_another_process_ends(
    doors: Doors,
    boards: tuple[Switchboard, Switchboard],
    ports: tuple[int, int],
    act: Act,
    hinted: bool,
) -> None:
    """By PostgreSQL's word alone, or by looking alone; measured from the moment the database took it."""
    gate = Gate()
    model = ScriptedModel(PIECES, hold={5: gate})
    options: dict[str, Any] = {**(_SELDOM if hinted else _OFTEN), **_PATIENT}
    hints = [PostgresHints(doors.url)] if hinted else []
    ground = twins(Settings())
    with anyio.fail_after(PATIENCE_S):
        async with emptied(doors.there) as catalog:
            there = await told(replace(ground, catalog=catalog), **options)
            shared = replace(ground, catalog=SqlCatalog(doors.here))
            here = replace(there, world=World(ground=shared, model=model, hints=hints, **options))
            async with (
                boards[0].connecting(there.world),
                boards[1].connecting(here.world),
                connected(ports[1]) as wire,
            ):
                await wire.ask(there.credentials[act.credential], QUESTION)
                await gate.reached.wait()
                assert await act.over_http(there, ports[0]) in {200, 201, 202, 204}
                *_, last = await wire.all_events()
                assert (last.name, last.data["reason"]) == ("revoked", act.reason)
                await here.world.registry.idle()
                count, seconds = stops(here)
                assert count == (act.reason != "acl_changed")
                assert seconds >= 0
                await refused(here, ports[1], act)


async def refused(here: Told, port: int, act: Act) -> None:
    """A new question, in the process that answered."""
    head, events = await ask(port, here.credentials[act.credential], QUESTION)
    if act.early:
        assert events[-1].data["status"] == act.early
    else:
        assert head.status in {401, 403, 404}


async def test_over_sqlite_every_act_ends_a_stream(
    boards: tuple[Switchboard, Switchboard], ports: tuple[int, int], tmp_path: Path
) -> None:
    """In the one process that owns the file; emptied after each act."""
    async with open_catalog(tmp_path / "catalog.db"):
        pass
    database = SqliteDatabase(tmp_path / "catalog.db", time.time)
    for act in ACTS:
        gate = Gate()
        model = ScriptedModel(PIECES, hold={5: gate})
        with anyio.fail_after(PATIENCE_S):
            async with emptied(database) as catalog:
                ground = replace(twins(Settings()), catalog=catalog)
                known = await told(ground, model=model, **_SELDOM, **_PATIENT)
                async with boards[0].connecting(known.world), connected(ports[0]) as wire:
                    await wire.ask(known.credentials[act.credential], QUESTION)
                    await gate.reached.wait()
                    await act.over_http(known, ports[0])
                    *_, last = await wire.all_events()
                    assert (last.name, last.data["reason"]) == ("revoked", act.reason)
                    await known.world.registry.idle()
    await database.aclose()
