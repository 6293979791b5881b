"""While an explanation is on its way: rights that end, a client that leaves, too many at once."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from gateway.access.classes import Acl
from gateway.adapters.memory.models import Gate
from gateway.ingest.governance import AclChange
from gateway.stream.revocation import RevocationKind
from tests.harness.serving import serving_world
from tests.harness.wire import connected, request
from tests.harness.world import Hold, World

PATIENCE_S = 60
LIMITS = "# Limits\n\nThe upload limit is 42 megabytes for every member of staff.\n"
SECRET = "# Vault\n\nThe upload limit of the vault is 7421 megabytes.\n"
QUESTION = "What is the upload limit?"


@asynccontextmanager
async def served(hold: str, **settings: Any) -> AsyncIterator[tuple[World, Hold, int]]:
    """A world whose board may see two documents; the named call waits."""
    held = Hold()
    world = World(holds={hold: held}, **settings)
    await world.learn({"limits.md": LIMITS})
    await world.learn({"vault.md": SECRET}, allow=("group:board",))
    with anyio.fail_after(PATIENCE_S):
        async with serving_world(world) as port:
            yield world, held, port


async def explain(port: int, token: str, **body: object) -> tuple[int, Any]:
    head, answer = await request(
        port,
        "POST",
        "/v1/explain",
        token=token,
        body=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    return head.status, json.loads(answer)


async def vault(world: World) -> str:
    documents = await world.catalog.documents("acme", "handbook")
    return str(next(d.document_id for d in documents if d.source == "vault.md"))


async def asked(world: World, port: int) -> str:
    """The request id of an answer to a member of the board."""
    async with connected(port) as wire:
        await wire.ask(world.token(groups=("staff", "board")), QUESTION)
        events = await wire.all_events()
    await world.registry.idle()
    return str(events[0].data["request_id"])


@pytest.mark.parametrize("call", ["catalog.documents_in", "catalog.append"])
@pytest.mark.parametrize("act", ["narrow", "revoke", "group"])
async def test_what_is_taken_away_while_a_trace_is_read_isn_t_told(call: str, act: str) -> None:
    """Whichever of its reads waits: neither a passage nor a count; an operator's reading is written first."""
    async with served(call) as (world, hold, port):
        hold.gate.release.set()
        request_id = await asked(world, port)
        hold.gate = Gate()
        reader = world.token(subject="olga", groups=("staff", "board"), scopes=("operate",))
        told: list[tuple[int, Any]] = []

        async def read() -> None:
            told.append(await explain(port, reader, request_id=request_id))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await hold.gate.reached.wait()
            if act == "narrow":
                acl = Acl.parse(["user:eve"], ())
                await world.catalog.set_acl(AclChange("acme", await vault(world), acl, "eve", 600))
            else:
                kind = RevocationKind.DOCUMENT if act == "revoke" else RevocationKind.GROUP
                value = await vault(world) if act == "revoke" else "board"
                await world.catalog.revoke("acme", kind, value, "gone", "eve")
            hold.gate.release.set()
    [(status, body)] = told
    assert status == 200
    assert [one["title"] for one in body["passages"]] == ["Limits"]
    assert body["may_see"]["documents"] == 1
    assert "7421" not in json.dumps(body)


async def test_a_question_being_explained_ends_with_the_rights_to_what_it_found() -> None:
    """Also after its search, while the last look is taken."""
    async with served("catalog.documents_in") as (world, hold, port):
        told: list[tuple[int, Any]] = []

        async def read() -> None:
            told.append(await explain(port, world.token(groups=("staff", "board")), question=QUESTION))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await hold.gate.reached.wait()
            await world.catalog.revoke("acme", RevocationKind.DOCUMENT, await vault(world), "gone", "eve")
            hold.gate.release.set()
        world.assert_nothing_held()
    [(status, body)] = told
    assert (status, body["code"]) in {(409, "permissions_changed"), (403, "document_revoked")}


async def test_a_client_that_leaves_ends_the_explaining_of_its_question() -> None:
    """As it ends an answer: its search doesn't go on, its place is free."""
    async with served("vectors.dense") as (world, hold, port):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: explain(port, world.token(), question=QUESTION))
            await hold.gate.reached.wait()
            tasks.cancel_scope.cancel()
        await world.registry.idle()
        assert not hold.gate.release.is_set()
        world.assert_nothing_held()


async def test_explaining_a_question_takes_the_place_of_an_answer() -> None:
    """Those who ask why can't crowd out those who ask."""
    async with served("vectors.dense", sse_sessions=1) as (world, hold, port):
        statuses: list[int] = []

        async def read() -> None:
            statuses.append((await explain(port, world.token(), question=QUESTION))[0])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await hold.gate.reached.wait()
            status, problem = await explain(port, world.token(), question=QUESTION)
            hold.gate.release.set()
    assert (status, problem["code"]) == (503, "overloaded")
    assert statuses == [200]
