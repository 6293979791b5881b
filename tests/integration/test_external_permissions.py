"""An external permission engine behind the two ports: it may narrow, it fails closed, it can't widen."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import httpx2
import pytest

from gateway.access.authorizer import CatalogRecheck, DocumentRef, DropReason
from gateway.access.principal import Principal
from gateway.access.scope import AccessScope
from gateway.errors import AuthorizerUnavailable
from tests.harness.serving import serving_world
from tests.harness.wire import ask
from tests.harness.world import World

TEXT = {
    "vault.md": "# Vault\n\nThe vault combination is kingfisher.\n",
    "safe.md": "# Safe\n\nThe vault combination of the safe is heron.\n",
}
QUESTION = "What is the vault combination?"


class Engine:
    """A permission service on a socket: knows directory groups, and documents under embargo."""

    def __init__(self) -> None:
        self.groups: dict[str, list[str]] = {}
        self.embargoed: list[str] = []
        self.url = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        subject = request.split(b" ", 2)[1].decode().rpartition("/")[2]
        body = json.dumps({"groups": self.groups.get(subject, []), "embargoed": self.embargoed}).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()

    async def said(self, subject: str) -> Mapping[str, list[str]]:
        """What the engine says about a subject. Raises AuthorizerUnavailable."""
        try:
            async with httpx2.AsyncClient(trust_env=False, timeout=5) as http:
                return dict((await http.get(f"{self.url}/subjects/{subject}")).json())
        except httpx2.HTTPError as error:
            raise AuthorizerUnavailable() from error

    # the two ports

    async def names(self, principal: Principal) -> frozenset[str]:
        """PrincipalSource: the directory's groups instead of the token's."""
        groups = (await self.said(principal.subject))["groups"]
        return frozenset({f"user:{principal.subject}", "public"} | {f"group:{group}" for group in groups})


class EmbargoRecheck:
    """Recheck: what the catalog permits, less what the engine embargoes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._catalog: CatalogRecheck | None = None

    def world(self) -> World:
        """A gateway whose search asks here."""
        world = World(recheck=self)
        self._catalog = CatalogRecheck(world.catalog)
        return world

    async def check(
        self, scope: AccessScope, refs: Sequence[DocumentRef], now: float
    ) -> Mapping[DocumentRef, DropReason | None]:
        assert self._catalog is not None
        verdicts = dict(await self._catalog.check(scope, refs, now))
        embargoed = set((await self._engine.said("any"))["embargoed"])
        return {
            ref: DropReason.ACL if ref.document_id in embargoed else verdict
            for ref, verdict in verdicts.items()
        }


@asynccontextmanager
async def running(engine: Engine) -> AsyncIterator[asyncio.Server]:
    server = await asyncio.start_server(engine.answer, "127.0.0.1", 0)
    engine.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield server


async def test_the_directory_decides_on_groups() -> None:
    """Whatever groups the token states: without the directory's word there is no knowledge base."""
    engine = Engine()
    async with running(engine):
        world = World(principals=engine)
        await world.learn(TEXT)
        async with serving_world(world) as port:
            token = world.token(subject="ann", groups=("staff",))
            head, _ = await ask(port, token, QUESTION)
            assert head.status == 404
            engine.groups["ann"] = ["staff"]
            head, events = await ask(port, token, QUESTION)
    assert (head.status, events[-1].data["status"]) == (200, "ANSWERED")


async def test_the_engine_takes_documents_out_of_an_answer() -> None:
    """An embargoed document is neither a source nor a citation, though the catalog would permit it."""
    engine = Engine()
    async with running(engine):
        world = EmbargoRecheck(engine).world()
        task = await world.learn(TEXT)
        hidden = next(d.document_id for d in task.documents if d.source == "safe.md")
        async with serving_world(world) as port:
            _, events = await ask(port, world.token(), QUESTION)
            assert hidden in {source["document_id"] for source in events[0].data["sources"]}
            engine.embargoed.append(hidden)
            _, events = await ask(port, world.token(), QUESTION)
    sources = {source["document_id"] for source in events[0].data["sources"]}
    assert sources
    assert hidden not in sources


@pytest.mark.parametrize("port_of", ["principals", "recheck"])
async def test_an_engine_that_is_down_permits_nothing(port_of: str) -> None:
    """503, and no model is called."""
    engine = Engine()
    async with running(engine) as server:
        world = World(principals=engine) if port_of == "principals" else EmbargoRecheck(engine).world()
        await world.learn(TEXT)
        server.close()
        await server.wait_closed()
        async with serving_world(world) as port:
            head, _ = await ask(port, world.token(), QUESTION)
    assert head.status == 503
    assert world.model.called == 0
