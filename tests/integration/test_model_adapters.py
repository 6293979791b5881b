"""Which model answers: the one that the bound release names, until that is rolled back on its own."""

import json
from typing import Any

import anyio

from gateway.adapters.memory.models import ScriptedModel
from gateway.settings import Settings
from tests.harness.serving import serving_world
from tests.harness.wire import ask, connected
from tests.harness.world import Ground, World, twins

PATIENCE_S = 30
_ADDRESS = "http://127.0.0.1:1/v1"  # the scripted models stand in for what would answer there
_KB = {"knowledge_base": "handbook"}


def _model(name: str) -> ScriptedModel:
    return ScriptedModel(["The limit is 42 [1]."], name=name, max_sensitivity={"old": 3, "new": 0}[name])


def _world(ground: Ground, first: str, second: str | None = None) -> World:
    """As a process whose settings name these models."""
    fallback: dict[str, Any] = {"fallback_model_base_url": _ADDRESS, "fallback_model_name": second}
    return World(
        ground=ground,
        model=_model(first),
        second_model=_model(second) if second else None,
        model_base_url=_ADDRESS,
        model_name=first,
        **(fallback if second else {}),
    )


def _ground() -> Ground:
    return twins(Settings())


async def _post(world: World, path: str, body: dict[str, Any], scope: str = "release") -> tuple[int, Any]:
    async with serving_world(world) as port, connected(port) as wire:
        token = world.token(scopes=[scope])
        content = json.dumps(body).encode()
        await wire.send("POST", path, token=token, body=content, headers={"Content-Type": "application/json"})
        return (await wire.read_head()).status, await wire.json()


async def _asked(world: World) -> tuple[str, str]:
    """The model that ``meta`` names, and how the answer ended."""
    async with serving_world(world) as port:
        _, events = await ask(port, world.token(), "What is the upload limit?")
    return events[0].data["model"], events[-1].data["status"]


async def test_the_model_goes_back_on_its_own_and_answers_first() -> None:
    """In every process that has it, under a new sequence; what it is cleared for goes with it."""
    ground = _ground()
    with anyio.fail_after(PATIENCE_S):
        await _world(ground, "old").learn({"a.md": "# Limits\n\nThe upload limit is 42.\n"}, sensitivity=2)
        world = _world(ground, "new", "old")
        assert await _asked(world) == ("old", "ANSWERED")
        await world.learn({"b.md": "# Colours\n\nThe logo is blue.\n"}, sensitivity=2)
        assert await _asked(world) == ("new", "REFUSED_NO_EVIDENCE")
        status, back = await _post(world, "/v1/releases/rollback", {**_KB, "what": "model"})
        assert (status, back["release_sequence"]) == (200, 3)
        assert await _asked(world) == ("old", "ANSWERED")
        newest, _ = await ground.catalog.releases("acme", "handbook")
        assert (newest.model, newest.kb_revision) == ("old", back["knowledge_revision"])
    assert world.model.called == 0


async def test_a_model_that_is_not_configured_is_neither_asked_nor_gone_back_to() -> None:
    """The first one that is answers; going back is refused in words that name it."""
    ground = _ground()
    with anyio.fail_after(PATIENCE_S):
        await _world(ground, "new").learn({"a.md": "# Limits\n\nThe upload limit is 42.\n"})
        alone = _world(ground, "old")
        assert await _asked(alone) == ("old", "ANSWERED")
        await alone.learn({"b.md": "# Colours\n\nThe logo is blue.\n"})
        status, problem = await _post(alone, "/v1/releases/rollback", {**_KB, "what": "model"})
    assert (status, problem["code"]) == (409, "release_conflict")
    assert "new" in problem["detail"]
    assert "configured" in problem["detail"]


async def test_without_an_endpoint_releases_name_the_extractive_model() -> None:
    """It has a version of its own; there is none before it."""
    world = World()
    with anyio.fail_after(PATIENCE_S):
        await world.learn({"a.md": "# Limits\n\nThe upload limit is 42.\n"})
        status, _ = await _post(world, "/v1/releases/rollback", {**_KB, "what": "model"})
        async with serving_world(world) as port, connected(port) as wire:
            path = "/v1/releases?knowledge_base=handbook"
            await wire.send("GET", path, token=world.token(scopes=["release"]))
            await wire.read_head()
            [release] = (await wire.json())["releases"]
    assert status == 409
    assert release["model_adapter"] == "extractive/1"
