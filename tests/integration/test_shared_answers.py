"""One making for all who ask the same meanwhile, over real sockets: who leaves, loses, reads and fails."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from gateway.adapters.memory.models import Gate, ScriptedModel
from gateway.client import StreamEvent
from gateway.errors import UpstreamFailed
from gateway.stream.revocation import RevocationKind
from gateway.stream.session import CloseReason
from loadtest.model_stub import serve_stub
from tests.harness.serving import serving_world
from tests.harness.wire import Wire, connected
from tests.harness.world import Hold, World
from tests.integration.test_model_calls import endpoint
from tests.unit.calling_bench import InTurn, working

TEXT = {"limits.md": "# Limits\n\nThe upload limit is 42 megabytes for every member of staff.\n"}
QUESTION = "What is the upload limit?"
PIECES = ["The limit ", "is ", "42 ", "megabytes ", "[1]."]
WHOLE = "".join(PIECES)
PATIENCE_S = 20


@dataclass
class Town:
    """A gateway that shares answers and keeps none, and its port."""

    world: World
    port: int

    def counted(self, name: str, **labels: str) -> float:
        value = self.world.services.metrics.registry.get_sample_value(name, labels)
        assert value is not None, (name, labels)
        return value

    @property
    def members(self) -> tuple[float, float]:
        """Leaders and followers so far."""
        name = "gateway_flight_members_total"
        return self.counted(name, role="leader"), self.counted(name, role="follower")

    @asynccontextmanager
    async def asking(self, *subjects: str) -> AsyncIterator[list[Wire]]:
        """Their questions are sent one after the other, each once the one before has a session."""
        async with AsyncExitStack() as stack:
            before, wires = len(self.world.registry), []
            for subject in subjects:
                wires.append(await stack.enter_async_context(connected(self.port)))
                await wires[-1].ask(self.world.token(subject=subject), QUESTION)
                await self.until_there_are(before + len(wires))
            yield wires

    async def until_there_are(self, sessions: int) -> None:
        """Each of somebody who is known."""
        while len(self.world.registry.of_tenant("acme")) != sessions:
            await anyio.lowlevel.checkpoint()

    async def document_named(self, source: str) -> str:
        """Its id."""
        documents = await self.world.catalog.documents("acme", "handbook")
        return str(next(d.document_id for d in documents if d.source == source))

    async def revoke(self, subject: str) -> None:
        await self.world.catalog.revoke("acme", RevocationKind.USER, subject, "left", "olga")
        await self.world.services.feed.step()


@asynccontextmanager
async def town(**options: Any) -> AsyncIterator[Town]:
    given: dict[str, Any] = {"answer_sharing": True, "total_cap_ms": 60_000, **options}
    world = World(**given)
    await world.learn(TEXT)
    with anyio.fail_after(PATIENCE_S):
        async with serving_world(world) as port:
            yield Town(world, port)
            await world.registry.idle()
    world.assert_nothing_held()


async def until_told(wires: Sequence[Wire]) -> None:
    """Returns once each of them has read text of the one answer, which is held further on."""
    for wire in wires:
        async for event in wire.events():
            if event.name == "delta":
                break


async def rest_of(wire: Wire) -> list[StreamEvent]:
    return await wire.all_events()


def text_of(events: Sequence[StreamEvent]) -> str:
    return "".join(str(event.data["text"]) for event in events if event.name == "delta")


async def test_fifty_askers_share_one_call_and_the_first_of_them_may_leave() -> None:
    """The other 49 are told the whole answer of the same call, each in a session of his own."""
    gate = Gate()
    subjects = [f"user{n}" for n in range(50)]
    async with town(model=ScriptedModel(PIECES, hold={2: gate})) as here:
        async with here.asking(*subjects) as (first, *others):
            await until_told([first])
            first.abort()
            await here.until_there_are(49)
            gate.release.set()
            told = [await rest_of(wire) for wire in others]
        assert here.world.model.called == 1
        assert here.members == (1, 49)
    assert {text_of(events) for events in told} == {WHOLE}
    assert {events[-1].data["status"] for events in told} == {"ANSWERED"}
    assert len({events[0].data["request_id"] for events in told}) == 49
    assert {events[-1].data["usage"]["output_tokens"] for events in told} == {len(PIECES)}


async def test_the_call_is_closed_on_the_wire_when_the_last_asker_leaves() -> None:
    """Not with the first, nor with the second; nothing more is generated for nobody."""
    async with serve_stub(tokens=["The limit ", "is 42 [1]."], gate_after_tokens=1) as stub:
        model = endpoint(stub.base_url)
        async with town(model=model) as here:
            async with here.asking("ann", "bob", "eve") as wires:
                await until_told(wires)
                for wire in wires[:2]:
                    wire.abort()
                await here.until_there_are(1)
                assert stub.calls[0].closed_at is None
                wires[2].abort()
                await here.world.registry.idle()
                await stub.until(lambda seen: seen.calls[0].closed_at is not None)
        await model.aclose()
    assert [call.reason for call in stub.calls] == ["client_gone"]


@pytest.mark.parametrize("piece", [0, 2], ids=["before_the_first_delta", "after_it"])
@pytest.mark.parametrize("lost", [0, 2], ids=["the_leader", "a_follower"])
async def test_whose_rights_end_is_told_so_alone(lost: int, piece: int) -> None:
    """The others read on, to the end of the same call."""
    gate = Gate()
    subjects = ("ann", "bob", "eve")
    async with town(model=ScriptedModel(PIECES, hold={piece: gate})) as here:
        async with here.asking(*subjects) as wires:
            for wire in wires:
                await wire.read_head()
            await gate.reached.wait()
            await here.revoke(subjects[lost])
            gone = await rest_of(wires[lost])
            gate.release.set()
            told = [await rest_of(wire) for wire in wires if wire is not wires[lost]]
        assert here.world.model.called == 1
    assert (gone[-1].name, gone[-1].data["reason"]) == ("revoked", "user")
    assert [text_of(events) for events in told] == [WHOLE, WHOLE]


async def test_who_joins_after_a_document_was_revoked_is_answered_without_it() -> None:
    """The flight was begun before, and no feed has looked yet; the catalog's word is asked for him."""
    gate = Gate()
    seldom = {"revocation_poll_ms": 3_600_000, "revocation_bound_ms": 7_200_000}
    async with town(model=ScriptedModel(PIECES, hold={2: gate}), **seldom) as here:
        await here.world.learn({"more.md": "# More\n\nAn upload limit of 7 megabytes is for guests.\n"})
        async with here.asking("ann") as (leader,):
            await until_told([leader])
            limits = await here.document_named("limits.md")
            await here.world.catalog.revoke("acme", RevocationKind.DOCUMENT, limits, "leaked", "olga")
            async with here.asking("bob") as (follower,):
                await follower.read_head()
                gate.release.set()
                events = await rest_of(follower)
        assert here.members == (2, 0)
    assert {source["title"] for source in events[0].data["sources"]} == {"More"}
    assert limits not in repr(events)


async def test_a_leader_whose_rights_end_during_his_search_leaves_it_to_the_next() -> None:
    """Nothing that was begun with his rights is told to anybody; another search is made with the other's."""
    hold = Hold()
    async with town(holds={"vectors.dense": hold}) as here:
        async with here.asking("ann", "bob") as (leader, follower):
            await hold.gate.reached.wait()
            await here.revoke("ann")
            assert (await leader.read_head()).status == 403
            hold.gate.release.set()
            events = await rest_of(follower)
        assert here.counted("gateway_retrievals_total") == 2
        assert here.members == (1, 0)
    assert events[-1].data["status"] == "ANSWERED"


async def test_each_is_told_of_a_failure_behind_what_came_before_it() -> None:
    """Nobody else is asked then; what they were told can't be taken back."""
    gate = Gate()
    failing = ScriptedModel(PIECES, hold={2: gate}, fail={2: UpstreamFailed()})
    broken = InTurn(failing, working(*PIECES))
    async with town(model=broken) as here:
        async with here.asking("ann", "bob", "eve") as wires:
            for wire in wires:
                await wire.read_head()
            gate.release.set()
            told = [await rest_of(wire) for wire in wires]
        assert broken.called == 1
    assert [text_of(events) for events in told] == ["The limit is"] * 3
    assert {(e[-1].name, e[-1].data["code"], e[-1].data["partial"]) for e in told} == {
        ("error", "upstream_failed", True)
    }


async def test_a_call_that_fails_before_its_first_text_is_made_once_more_for_all() -> None:
    """Not once for each of them."""
    gate = Gate()
    failing = ScriptedModel(PIECES, hold={-1: gate}, fail={0: UpstreamFailed()})
    broken = InTurn(failing, working(*PIECES))
    async with town(model=broken) as here:
        async with here.asking("ann", "bob", "eve") as wires:
            for wire in wires:
                await wire.read_head()
            gate.release.set()
            told = [await rest_of(wire) for wire in wires]
        assert broken.called == 2
    assert [text_of(events) for events in told] == [WHOLE] * 3


async def test_a_follower_who_stops_reading_holds_up_nobody_but_himself() -> None:
    """The one who reads gets all of it while the other's buffers are full."""
    flood = ["x" * 65_536] * 40
    gate = Gate()
    async with town(model=ScriptedModel(flood, hold={0: gate}), send_timeout_s=60) as here:
        async with connected(here.port, receive_buffer=4096) as stuck:
            await stuck.ask(here.world.token(subject="bob"), QUESTION)
            await gate.reached.wait()
            async with here.asking("ann") as (reader,):
                await reader.read_head()
                gate.release.set()
                events = await rest_of(reader)
            assert here.world.model.called == 1
            stuck.abort()
    assert len(text_of(events)) == 40 * 65_536


async def test_a_drain_ends_every_members_session_and_the_one_call() -> None:
    """Each is told; the call is closed once."""
    gate = Gate()
    async with town(model=ScriptedModel(PIECES, hold={2: gate})) as here:
        async with here.asking("ann", "bob") as wires:
            await until_told(wires)
            here.world.registry.cancel_all(CloseReason.SHUTTING_DOWN)
            told = [await rest_of(wire) for wire in wires]
        await here.world.registry.idle()
        assert (here.world.model.called, here.world.model.closed) == (1, 1)
    assert {events[-1].data["code"] for events in told} == {"shutting_down"}


async def test_who_asks_with_no_store_is_answered_alone() -> None:
    """He neither joins, nor is joined."""
    gate = Gate()
    async with town(model=ScriptedModel(PIECES, hold={2: gate})) as here:
        async with here.asking("ann"), connected(here.port) as wire:
            await gate.reached.wait()
            await ask_no_store(wire, here.world.token(subject="bob"))
            await wire.read_head()
            async with here.asking("eve"):
                gate.release.set()
                assert text_of(await rest_of(wire)) == WHOLE
        await here.world.registry.idle()
        assert here.world.model.called == 2
        assert here.members == (2, 1)


async def ask_no_store(wire: Wire, token: str) -> None:
    body = f'{{"question": "{QUESTION}"}}'.encode()
    headers = {"Content-Type": "application/json", "Cache-Control": "max-age=0, No-Store"}
    await wire.send("POST", "/v1/answers", token=token, body=body, headers=headers)
