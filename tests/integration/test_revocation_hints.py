"""Hints between processes: they come at once, survive what carries them, and hurt nobody when they don't."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import pytest
from structlog.testing import capture_logs

from gateway.adapters.redis.hints import RedisHints
from gateway.adapters.sql.catalog import SqlCatalog, open_postgres
from gateway.adapters.sql.notify import PostgresHints
from gateway.errors import ConfigurationError
from gateway.stream.hints import ChangeHints
from gateway.stream.orders import Order, OrderKind, Reply
from gateway.stream.revocation import RevocationKind
from tests.contract.catalog_world import SALES, import_of, upload
from tests.harness.proxy import proxy_to
from tests.integration.revocation_world import PATIENCE_S

if TYPE_CHECKING:
    from tests.harness.postgres import PostgresServer
    from tests.harness.redis_server import RedisServer


#: a port on which nobody listens
NOBODY = 9


class Heard:
    """Counts hints, and waits for the next one."""

    def __init__(self) -> None:
        self.count = 0
        self._news = asyncio.Event()

    def __call__(self) -> None:
        self.count += 1
        self._news.set()

    async def next(self) -> None:
        await self._news.wait()
        self._news.clear()


@asynccontextmanager
async def following(hints: ChangeHints) -> AsyncIterator[Heard]:
    """Somebody who follows, and has been told that he does."""
    heard = Heard()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hints.follow, heard)
        with anyio.fail_after(PATIENCE_S):
            await heard.next()
            yield heard
        tasks.cancel_scope.cancel()


@pytest.fixture
async def catalog(postgres: "PostgresServer") -> AsyncIterator[tuple[str, SqlCatalog]]:
    """An empty one in PostgreSQL, and its URL."""
    url = postgres.migrated()
    async with open_postgres(url, connections=4, cap_s=10) as opened:
        yield url, opened


async def test_every_commit_that_changes_rights_is_told(catalog: tuple[str, SqlCatalog]) -> None:
    """Revoking, lifting, importing, narrowing, deleting, revoking a key; not what changes nothing."""
    url, rights = catalog
    async with following(PostgresHints(url)) as heard:
        record = await rights.revoke("acme", RevocationKind.USER, "ann", "left", "olga")
        await heard.next()
        await rights.lift("acme", record.revocation_id)
        await heard.next()
        accepted = await rights.accept_import(import_of(upload("a")))
        await heard.next()
        await rights.accept_import(import_of(upload("a", acl=SALES)))
        await heard.next()
        await rights.delete_document("acme", accepted.documents[0].document_id)
        await heard.next()
        await rights.revoke("acme", RevocationKind.GROUP, "staff", "dissolved", "olga")
        await heard.next()
        before = heard.count
        await rights.revoke("acme", RevocationKind.GROUP, "staff", "again", "olga")
        await rights.lift("acme", record.revocation_id)
        await rights.revoke("acme", RevocationKind.GROUP, "others", "dissolved", "olga")
        await heard.next()
        assert heard.count == before + 1


async def test_listening_goes_on_after_a_lost_connection(
    postgres: "PostgresServer", catalog: tuple[str, SqlCatalog]
) -> None:
    """It listens again, and says that it may have missed something; the log has the loss and its end."""
    url, rights = catalog
    with capture_logs() as lines:
        async with following(PostgresHints(url)) as heard:
            for _ in range(2):
                postgres.terminate_backends()
                await heard.next()
            await rights.revoke("acme", RevocationKind.USER, "ann", "left", "olga")
            await heard.next()
    told = [line["event"].removeprefix("revocations.") for line in lines]
    assert told == ["hints_lost", "hints_back"] * 2


async def test_an_order_is_told_like_a_change_of_rights(catalog: tuple[str, SqlCatalog]) -> None:
    """Without it a stop would wait for the others' next poll; nobody needs to hear of its end."""
    url, board = catalog
    async with following(PostgresHints(url)) as heard:
        await board.post_order(Order("o1", OrderKind.STOP, "acme", "ann", "r1"))
        await heard.next()
        await board.reply_to_orders({"o1": Reply("p1", True)})
        await board.withdraw_order("o1")
        before = heard.count
        await board.post_order(Order("o2", OrderKind.STOP, "acme", "ann", "r1"))
        await heard.next()
        assert heard.count == before + 1


async def test_a_database_that_is_away_raises_nothing(catalog: tuple[str, SqlCatalog]) -> None:
    """While nobody answers it only tries again."""
    url, _ = catalog
    port = int(url.rpartition(":")[2].partition("/")[0])
    async with proxy_to(port) as proxy:
        async with following(PostgresHints(url.replace(f":{port}/", f":{proxy.port}/"))) as heard:
            await proxy.refuse()
            await proxy.accept()
            await heard.next()


@pytest.fixture
async def redis_hints(redis: "RedisServer") -> AsyncIterator[Callable[[str], RedisHints]]:
    """Makes doors to Redis, closed afterwards."""
    opened: list[RedisHints] = []

    def door(url: str) -> RedisHints:
        opened.append(RedisHints(url))
        return opened[-1]

    yield door
    for hints in opened:
        await hints.aclose()


async def test_what_one_process_tells_all_others_hear(
    redis: "RedisServer", redis_hints: Callable[[str], RedisHints]
) -> None:
    """At once, also those that came later."""
    url = redis.fresh()
    teller = redis_hints(url)
    await teller.tell()
    async with following(redis_hints(url)) as one, following(redis_hints(url)) as other:
        for _ in range(3):
            await teller.tell()
            await one.next()
            await other.next()


async def test_what_was_told_during_a_cut_is_not_lost(
    redis: "RedisServer", redis_hints: Callable[[str], RedisHints]
) -> None:
    """The follower reads on from where it stopped."""
    url = redis.fresh()
    async with proxy_to(redis.port) as proxy:
        async with following(redis_hints(redis.through(proxy.port, url))) as heard:
            await proxy.refuse()
            before = heard.count
            await redis_hints(url).tell()
            await proxy.accept()
            while heard.count < before + 2:  # one for the gap, one that was told in it
                await heard.next()


async def test_redis_that_is_away_raises_nothing(
    redis: "RedisServer", redis_hints: Callable[[str], RedisHints]
) -> None:
    """Telling gives up, following tries again."""
    url = redis.fresh()
    async with proxy_to(redis.port) as proxy:
        away = redis_hints(redis.through(proxy.port, url))
        async with following(away) as heard:
            proxy.stall()
            await away.tell()
            await proxy.refuse()
            await away.tell()
            proxy.flow()
            await proxy.accept()
            await heard.next()


def test_an_address_that_means_nothing_is_refused() -> None:
    """Without quoting it: it may hold a password."""
    for make in (PostgresHints, RedisHints):
        with pytest.raises(ConfigurationError) as raised:
            make("http://secret-word")
        assert "secret-word" not in str(raised.value)


async def test_a_cluster_that_is_away_hurts_nobody() -> None:
    """Its client has errors of a family of its own: neither who follows nor who tells hears of them."""
    hints = RedisHints(f"redis+cluster://127.0.0.1:{NOBODY}")
    with capture_logs() as lines, anyio.fail_after(PATIENCE_S):
        await hints.tell()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hints.follow, Heard())
            while not any(line["event"] == "revocations.hints_lost" for line in lines):
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        await hints.aclose()
    assert lines[0]["event"] == "revocations.hint_untold"
