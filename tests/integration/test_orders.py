"""Stops, kills and looks that reach the process they aren't for: two gateways over one real database."""

import asyncio
import dataclasses
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest
import pytest_asyncio
from pydantic import SecretStr

from gateway.access.principal import Principal
from gateway.adapters.memory.models import Gate, ScriptedModel
from gateway.adapters.sql.catalog import SqlCatalog, open_postgres
from gateway.app import create_app
from gateway.bootstrap.opening import open_services
from gateway.settings import Settings
from gateway.stream.hints import ChangeHints
from gateway.stream.orders import Order, OrderDesk, OrderKind, SharedHints
from tests.harness.process import eventually
from tests.harness.serving import followed, serving
from tests.harness.wire import Head, Wire, connected, request
from tests.harness.world import Ground, World, twins

if TYPE_CHECKING:
    from tests.harness.postgres import PostgresServer

TEXT = {"limits.md": "# Limits\n\nThe upload limit is 42 megabytes for every member of staff.\n"}
QUESTION = "What is the upload limit?"
PATIENCE_S = 20
UNKNOWN = "/v1/answers/req_" + "0" * 32
#: for what some process has, and for what nobody has: each wait ends as soon as it can
LONG_S, SHORT_S = 15.0, 0.3
#: a machine that is busy with something else must not end an answer here
UNHURRIED: dict[str, Any] = {
    "total_cap_ms": 60_000,
    "catalog_cap_ms": 10_000,
    "retrieval_cap_ms": 10_000,
    "embed_cap_ms": 10_000,
    "revocation_bound_ms": 60_000,
}


@dataclasses.dataclass
class Node:
    """One gateway process, as far as orders are concerned."""

    name: str
    world: World
    desk: OrderDesk
    port: int
    gate: Gate

    async def call(self, method: str, path: str, *scopes: str, **who: str) -> tuple[Head, Any]:
        token = self.world.token(scopes=scopes or ("ask",), **who)  # type: ignore[arg-type]  # tenant, subject
        head, body = await request(self.port, method, path, token=token)
        return head, json.loads(body) if body else None

    @asynccontextmanager
    async def answering(self, **who: str) -> AsyncIterator[tuple[Wire, str]]:
        """An answer that is held in its middle, and its request id."""
        async with connected(self.port) as wire:
            await wire.ask(self.world.token(**who), QUESTION)  # type: ignore[arg-type]  # tenant, subject
            await self.gate.reached.wait()
            yield wire, self.world.registry.only_request_id()
        await self.world.registry.idle()


@pytest_asyncio.fixture
async def ground(catalog: SqlCatalog) -> Ground:
    """What both stand on: twins, but for the catalog."""
    return dataclasses.replace(twins(World().settings), catalog=catalog)


@pytest_asyncio.fixture
async def catalog(postgres: "PostgresServer") -> AsyncIterator[SqlCatalog]:
    """A database of this test's own."""
    async with open_postgres(postgres.migrated(), connections=4, cap_s=10) as opened:
        yield opened


@asynccontextmanager
async def node(name: str, ground: Ground, wait_s: float, *hints: ChangeHints) -> AsyncIterator[Node]:
    """A gateway whose desk looks for orders, as in a server."""
    gate = Gate()
    model = ScriptedModel(["The limit ", "is 42 [1]."], hold={1: gate})
    world = World(ground=ground, model=model, **UNHURRIED)
    desk = OrderDesk(world.registry, name, ground.catalog, hints=hints, poll_s=0.05, wait_s=wait_s)
    services = dataclasses.replace(world.services, orders=desk)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(followed(world))
        port = await stack.enter_async_context(serving(create_app(world.settings, services)))
        looking = asyncio.create_task(desk.run())
        try:
            yield Node(name, world, desk, port, gate)
        finally:
            looking.cancel()
            await asyncio.wait({looking})


@pytest_asyncio.fixture
async def nodes(ground: Ground) -> AsyncIterator[tuple[Node, Node]]:
    """Two gateways with documents to answer from, whose askers wait for as long as it takes."""
    async with node("one", ground, LONG_S) as one, node("two", ground, LONG_S) as two:
        await one.world.learn(TEXT)
        yield one, two


@pytest_asyncio.fixture
async def hasty_nodes(ground: Ground) -> AsyncIterator[tuple[Node, Node]]:
    """The same, whose askers wait for a moment only."""
    async with node("one", ground, SHORT_S) as one, node("two", ground, SHORT_S) as two:
        await one.world.learn(TEXT)
        yield one, two


async def test_a_stop_reaches_the_process_that_answers(nodes: tuple[Node, Node], catalog: SqlCatalog) -> None:
    """204 from the one that doesn't; the stream ends with `stopped`, and the order is gone."""
    one, two = nodes
    with anyio.fail_after(PATIENCE_S):
        async with one.answering() as (wire, request_id):
            assert (await two.call("DELETE", f"/v1/answers/{request_id}"))[0].status == 204
            last = (await wire.all_events())[-1]
            assert (last.name, last.data["code"]) == ("error", "stopped")
    assert await catalog.open_orders() == []


async def test_nobody_else_ends_it_from_elsewhere(hasty_nodes: tuple[Node, Node]) -> None:
    """Another subject, another tenant's namesake and its operator get the 404 of an unknown id; the answer
    goes on.
    """
    one, two = hasty_nodes
    with anyio.fail_after(PATIENCE_S):
        async with one.answering() as (wire, request_id):
            path = f"/v1/answers/{request_id}"
            unknown = await two.call("DELETE", UNKNOWN)
            assert unknown[0].status == 404
            for who in ({"subject": "bob"}, {"tenant": "globex"}):
                head, problem = await two.call("DELETE", path, **who)
                assert (head.status, problem) == (404, unknown[1])
            kill = await two.call("DELETE", f"/v1/sessions/{request_id}", "operate", tenant="globex")
            assert kill[0].status == 404
            one.gate.release.set()
            assert (await wire.all_events())[-1].name == "done"


async def test_an_operator_kills_what_runs_elsewhere(nodes: tuple[Node, Node]) -> None:
    """204 and `killed`, within his tenant."""
    one, two = nodes
    with anyio.fail_after(PATIENCE_S):
        async with one.answering() as (wire, request_id):
            path = f"/v1/sessions/{request_id}"
            assert (await two.call("DELETE", path, "operate", subject="op"))[0].status == 204
            last = (await wire.all_events())[-1]
            assert (last.name, last.data["code"]) == ("error", "killed")


async def test_an_operator_sees_what_runs_in_every_process(hasty_nodes: tuple[Node, Node]) -> None:
    """Sessions of both, each with its process; another tenant sees the processes and nothing else."""
    one, two = hasty_nodes
    with anyio.fail_after(PATIENCE_S):
        async with one.answering() as (_, first), two.answering(subject="bob") as (_, second):
            listed = await seen_by_both(two, subject="op")
            seen = [(s["request_id"], s["subject"], s["process"]) for s in listed["sessions"]]
            assert seen == [(first, "ann", "one"), (second, "bob", "two")]
            assert {(s["streaming"], s["documents"]) for s in listed["sessions"]} == {(True, 1)}
            assert (await seen_by_both(one, tenant="globex"))["sessions"] == []
            one.gate.release.set()
            two.gate.release.set()


async def seen_by_both(asked: Node, **who: str) -> Any:
    """What is listed, once both processes were quick enough to reply."""

    async def look() -> Any:
        _, listed = await asked.call("GET", "/v1/sessions", "operate", **who)
        return listed if listed["processes"] == ["one", "two"] else None

    return await eventually(look, within_s=PATIENCE_S)


async def test_a_row_is_never_believed(nodes: tuple[Node, Node], catalog: SqlCatalog) -> None:
    """Whoever wrote it: what the registry wouldn't do for its asker isn't done."""
    one, _ = nodes
    with anyio.fail_after(PATIENCE_S):
        async with one.answering() as (wire, request_id):
            await catalog.post_order(Order("ord_1", OrderKind.KILL, "globex", "op", request_id))
            await catalog.post_order(Order("ord_2", OrderKind.LIST, "globex", "op"))
            while len(replies := await catalog.order_replies("ord_2")) < 2:  # who has, has seen the first too
                await anyio.lowlevel.checkpoint()
            assert {reply.found for reply in replies} == {False}
            assert await catalog.order_replies("ord_1") == []
            one.gate.release.set()
            assert (await wire.all_events())[-1].name == "done"


async def test_a_hint_makes_the_others_look_before_their_turn(ground: Ground) -> None:
    """As revocations do: one way between processes serves both."""
    hints = Whisper()
    async with node("one", ground, SHORT_S) as one, node("two", ground, SHORT_S, hints) as two:
        await one.world.learn(TEXT)
        woken = anyio.Event()
        shared = SharedHints(hints, woken.set)
        following = asyncio.create_task(shared.follow(lambda: None))
        with anyio.fail_after(PATIENCE_S):
            assert (await two.call("DELETE", UNKNOWN))[0].status == 404
            await woken.wait()
        following.cancel()
        await asyncio.wait({following})


class Whisper:
    """ChangeHints within one process."""

    def __init__(self) -> None:
        self._said = anyio.Event()

    async def follow(self, hinted: Any) -> None:
        while True:
            await self._said.wait()
            self._said = anyio.Event()
            hinted()

    async def tell(self) -> None:
        self._said.set()


@pytest.mark.soak
async def test_a_gateway_that_may_be_one_of_several_looks_for_orders(
    postgres: "PostgresServer", tmp_path: Path
) -> None:
    """With PostgreSQL: once its parts are open it replies, under a name of its own."""
    url = postgres.migrated()
    settings = Settings(data_dir=tmp_path, database_url=SecretStr(url))
    async with open_postgres(url, connections=2, cap_s=10) as board, open_services(settings) as services:
        await board.post_order(Order("ord_1", OrderKind.LIST, "acme", "op"))
        with anyio.fail_after(PATIENCE_S):
            while not (replies := await board.order_replies("ord_1")):
                await anyio.lowlevel.checkpoint()
        assert [reply.found for reply in replies] == [False]
        operator = Principal("acme", "op", frozenset(), frozenset({"operate"}), time.time() + 60)
        assert (await services.orders.overview(operator)).processes == (replies[0].process,)
