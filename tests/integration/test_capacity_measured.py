"""The arithmetic of capacity beside a gateway that counts: kept, shared, refused, lost and made answers."""

import asyncio

import anyio
import pytest

from gateway.adapters.memory.models import Gate, ScriptedModel
from gateway.evaluation.demand import Measured, measured
from gateway.evaluation.watching import watched
from gateway.observe.exposition import Course, Growth, Reading
from loadtest import repeated
from tests.harness.serving import serving_world
from tests.harness.wire import ask, connected
from tests.harness.world import World

TEXT = {"limits.md": "# Limits\n\nThe upload limit is 42 megabytes.\n"}
PATIENCE_S = 30


def world_of(model: ScriptedModel) -> World:
    return World(model=model, answer_cache_ttl_s=600, answer_sharing=True)


def between(world: World, before: bytes) -> Measured:
    """What the world has counted since, as in one second."""
    readings = (Reading(text.decode()) for text in (before, world.services.metrics.exposition()))
    return measured(Growth([Course(*readings)]), 1.0)


async def test_what_keeps_a_question_from_the_model_is_counted_once_and_nothing_is_left_over() -> None:
    """Of ten questions: two turned away, four told again (one of them a refusal), one told what another was
    having made, one refused. Two generations, and the product of the shares says so.
    """
    gate = Gate()
    world = world_of(ScriptedModel(["42 [1]."], max_sensitivity=2, hold={0: gate}))
    await world.learn(TEXT)
    await world.learn(TEXT, knowledge_base="vault", sensitivity=3)  # nothing of it may leave to the model
    before = world.services.metrics.exposition()
    token = world.token()
    async with serving_world(world) as port:
        with anyio.fail_after(PATIENCE_S):
            async with connected(port) as first, connected(port) as second:
                await first.ask(token, "What is the limit?", knowledge_base="handbook")
                await gate.reached.wait()
                await second.ask(token, "What is the limit?", knowledge_base="handbook")
                await second.read_head()
                gate.release.set()
                await asyncio.gather(first.all_events(), second.all_events())
        for question in ("What is the limit?", "What is the limit?", "Which limit?", "Which limit?"):
            await ask(port, token, question, knowledge_base="handbook")
        for _ in range(2):
            await ask(port, token, "Which limit?", knowledge_base="vault")
        await ask(port, "no token", "Which limit?")
        await ask(port, world.token(tenant="globex"), "Which limit?")
        await world.registry.idle()
    found = between(world, before)
    assert (found.questions, found.lost, found.hits, found.shared) == (10, 2, 4, 1)
    assert (found.refused, found.starts) == (1, 2)
    assert world.model.called == 2
    assert found.load.starts == pytest.approx(2)
    assert found.load.tokens == pytest.approx(2)


async def test_an_answer_that_is_wanted_for_oneself_alone_is_a_start_of_its_own() -> None:
    """With sharing and cache switched off every answer is."""
    world = World(model=ScriptedModel(["42 [1]."]))
    await world.learn(TEXT)
    before = world.services.metrics.exposition()
    async with serving_world(world) as port:
        for _ in range(3):
            await ask(port, world.token(), "What is the limit?")
        await world.registry.idle()
    found = between(world, before)
    assert (found.hits, found.shared, found.starts) == (0, 0, 3)
    assert found.load.starts == pytest.approx(3)


async def test_a_gateway_is_watched_while_it_answers() -> None:
    """One answer stands still all the time: one place, of as many as that gateway has, at every look."""
    gate = Gate()
    world = World(model=ScriptedModel(["42 [1]."], hold={0: gate}), generation_concurrency=7)
    await world.learn(TEXT)
    async with serving_world(world) as port, connected(port) as standing:
        await standing.ask(world.token(), "What is the limit?")
        await gate.reached.wait()
        growth, seconds = await anyio.to_thread.run_sync(watched, [f"http://127.0.0.1:{port}/"], 0.1)
        gate.release.set()
        await standing.all_events()
    assert seconds > 0
    assert growth.looks >= 2
    assert growth.level("gateway_bulkhead_in_use", name="generation") == 1
    assert growth.least("gateway_bulkhead_places", name="generation") == 7
    assert growth.of("gateway_questions_total") == 0


@pytest.mark.soak
async def test_repeated_questions_start_as_many_generations_as_arithmetic_says() -> None:
    """A real gateway, an open loop of ten seconds, four questions in five asked before."""
    found = await repeated.run(repeated.options(["--seconds", "10", "--max-lag-ms", "1000"]))
    assert [one for one in found["checks"] if not one["met"]] == []
    assert found["clients"]["cached"] > 20
