"""Who holds a place, and for how long: no longer than there is something to do for it."""

import anyio
import anyio.lowlevel

from gateway.adapters.memory.models import ScriptedModel
from tests.harness.serving import serving_world
from tests.harness.wire import ask, connected
from tests.harness.world import Hold, World

PATIENCE_S = 20
TEXT = {"limits.md": "# Limits\n\nThe upload limit is 42 megabytes for every member of staff.\n"}
QUESTION = "What is the upload limit?"


async def test_a_body_that_has_no_end_holds_no_place_of_a_stream() -> None:
    """Its connection is bounded in number and time; places are for those who have asked."""
    world = World(model=ScriptedModel(["42 [1]."]), sse_sessions=1)
    await world.learn(TEXT)
    with anyio.fail_after(PATIENCE_S):
        async with serving_world(world) as port, connected(port) as idle:
            await idle.ask(world.token(), QUESTION, hold_back=5)
            await world.registry.arrived.wait()
            while not world.registry.identified():
                await anyio.lowlevel.checkpoint()
            _, events = await ask(port, world.token(subject="bob"), QUESTION)
            assert events[-1].name == "done"


async def test_a_slow_audit_holds_no_place() -> None:
    """The client has its answer and every place is free while the record is still being written."""
    hold = Hold()
    world = World(model=ScriptedModel(["42 [1]."]), holds={"catalog.append": hold})
    await world.learn(TEXT)
    with anyio.fail_after(PATIENCE_S):
        async with serving_world(world) as port:
            _, events = await ask(port, world.token(), QUESTION)
            assert events[-1].name == "done"
            await hold.gate.reached.wait()
            assert {b.name: b.in_use for b in world.services.bulkheads if b.in_use} == {}
            hold.gate.release.set()
            await world.registry.idle()
    assert len(await world.catalog.entries("acme", 10, "answer")) == 1
