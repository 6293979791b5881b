"""Workers that race for tasks on one PostgreSQL; and what of a database's own tables is forgotten."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from sqlalchemy import Connection, insert, select

from gateway.adapters.sql.catalog import SqlCatalog, open_catalog, open_postgres
from gateway.adapters.sql.sqlite import SqliteDatabase
from gateway.adapters.sql.tables import outbox
from gateway.ingest.task import Ending, TaskClaim, TaskQuery, TaskState
from tests.contract.catalog_world import Clock, import_of, upload

if TYPE_CHECKING:
    from tests.harness.postgres import PostgresServer

_PATIENCE_S = 120.0
_TENANTS = ("acme", "globex", "initech")
_EACH = 2


async def _accept_all(catalog: SqlCatalog, round_: int) -> None:
    for tenant in _TENANTS:
        for number in range(_EACH):
            await catalog.accept_import(import_of(upload(f"{round_}"), kb=f"kb-{number}", tenant=tenant))


async def _serve(catalog: SqlCatalog, name: str, wanted: int, ended: list[TaskClaim]) -> None:
    """Claims and ends tasks until so many are done; every first try of a task meets trouble."""
    while len(ended) < wanted:
        claim = await catalog.claim(name, 300, 5)
        if claim is None:
            await asyncio.sleep(0)
        elif claim.put_offs == 0:
            await catalog.put_off(claim, "embedder_unavailable", 0)
        else:
            await catalog.progress(claim, "building", 1, 1)
            await catalog.finish(claim, Ending(TaskState.SUCCEEDED))
            ended.append(claim)


async def test_racing_workers_end_every_task_once(postgres: "PostgresServer") -> None:
    """Three of them in two processes, while imports keep coming: no deadlock, no loss, no double."""
    url, wanted = postgres.migrated(), 2 * len(_TENANTS) * _EACH
    ended: list[TaskClaim] = []
    async with (
        open_postgres(url, connections=8, cap_s=30) as one,
        open_postgres(url, connections=8, cap_s=30) as other,
    ):
        await _accept_all(one, 0)
        with anyio.fail_after(_PATIENCE_S):
            async with anyio.create_task_group() as group:
                for number in range(3):
                    group.start_soon(_serve, (one, other)[number % 2], f"worker-{number}", wanted, ended)
                group.start_soon(_accept_all, other, 1)
        assert Counter(claim.task_id for claim in ended).most_common(1)[0][1] == 1
        assert {claim.fence for claim in ended} == {2}
        for tenant in _TENANTS:
            states = [task.state for task in await one.tasks(tenant, TaskQuery(limit=99))]
            assert states == [TaskState.SUCCEEDED] * (2 * _EACH)


async def test_workers_of_two_processes_share_the_tenants(postgres: "PostgresServer") -> None:
    """As many claims at once as there are tenants: each tenant has one, whoever's queue is the longest."""
    url = postgres.migrated()
    async with (
        open_postgres(url, connections=8, cap_s=30) as one,
        open_postgres(url, connections=8, cap_s=30) as other,
    ):
        await _accept_all(one, 0)
        with anyio.fail_after(_PATIENCE_S):
            claims = await asyncio.gather(*((one, other)[n % 2].claim(f"w-{n}", 300, 5) for n in range(3)))
    assert sorted(claim.tenant for claim in claims if claim is not None) == sorted(_TENANTS)


async def test_an_outbox_entry_is_kept_until_it_is_sent(tmp_path: Path) -> None:
    """However old it is; workers look at the tasks themselves, so theirs is forgotten after a day."""
    path, clock = tmp_path / "catalog.sqlite3", Clock()
    async with open_catalog(path):
        pass
    database = SqliteDatabase(path, clock)
    catalog = SqlCatalog(database)

    def add(connection: Connection, now: float) -> None:
        for topic, sent_at in (("journal.sent", now), ("journal.unsent", None)):
            connection.execute(
                insert(outbox).values(topic=topic, payload="{}", created_at=now, sent_at=sent_at)
            )

    def topics(connection: Connection) -> list[str]:
        return list(connection.execute(select(outbox.c.topic).order_by(outbox.c.topic)).scalars())

    await database.write(add)
    await catalog.accept_import(import_of(upload("a"), deadline_s=1e9))
    await catalog.purge(1, 3 * 86_400)
    assert await database.read(topics) == ["journal.sent", "journal.unsent", "task.accepted"]
    clock.advance(2 * 86_400)
    await catalog.purge(1, 3 * 86_400)
    assert await database.read(topics) == ["journal.sent", "journal.unsent", "task.accepted"]
    clock.advance(2 * 86_400)
    await catalog.purge(1, 3 * 86_400)
    assert await database.read(topics) == ["journal.unsent", "task.accepted"]  # no number is given twice
    await database.aclose()
