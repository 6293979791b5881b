"""Comparing, reindexing and rolling back over HTTP, as an operator does it with the command line."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import pytest
from anyio import to_thread

from gateway.adapters.memory.models import FixedEmbedder
from gateway.cli.reindexing import reindex
from gateway.client import ApiError, GatewayClient
from gateway.release.model import RetrievalConfig
from tests.harness.serving import serving_world
from tests.harness.world import OPEN_GATE, World, twins

KB = "handbook"
LIMITS = "# Limits\n\nThe upload limit is 42 megabytes.\n"
HOURS = "# Hours\n\nThe office opens at nine.\n"


def started_again(world: World, space_id: str, config: RetrievalConfig = OPEN_GATE) -> World:
    """Another process over the same knowledge, with an embedder of this space."""
    parts = {name: getattr(world, name) for name in ("catalog", "vectors", "objects")}
    embedder = FixedEmbedder(space_id=space_id)
    ground = replace(twins(world.settings, embedder), offline_embedder=embedder, config=config, **parts)
    return World(ground=ground, previous_embedder=FixedEmbedder())


@asynccontextmanager
async def working(world: World) -> AsyncIterator[tuple[str, str]]:
    """The address, and a token of an operator, of a world whose worker runs."""
    with anyio.fail_after(30):
        async with serving_world(world) as port, anyio.create_task_group() as group:
            group.start_soon(world.worker.run)
            yield f"http://127.0.0.1:{port}", world.token(scopes=("release",))
            group.cancel_scope.cancel()


async def called(world: World, call: Callable[[GatewayClient], Any]) -> Any:
    async with working(world) as (url, token):
        with GatewayClient(url, token) as client:
            return await to_thread.run_sync(call, client)


async def reindexed(
    world: World, capsys: pytest.CaptureFixture[str], **options: Any
) -> tuple[int, list[Any]]:
    """The exit code and the lines of ``qa-gateway reindex --json``."""
    async with working(world) as (url, token):
        code = await to_thread.run_sync(lambda: reindex(as_json=True, url=url, token=token, **options))
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines() if line[:1] == "{"]


async def test_an_operator_compares_a_release_with_the_active_one() -> None:
    """Documents by name, passages and vectors by number."""
    world = World()
    await world.learn({"limits.md": LIMITS, "hours.md": HOURS}, knowledge_base=KB)
    await world.learn({"limits.md": LIMITS.replace("42", "7"), "new.md": HOURS + "\nOr at ten.\n"})
    newest, first = await world.catalog.releases("acme", KB)
    diff = await called(world, lambda client: client.diff_releases(newest.release_id, first.release_id))
    names = {
        kind: [document["source"] for document in diff["documents"][kind]]
        for kind in ("added", "changed", "removed", "moved")
    }
    assert names == {"added": ["new.md"], "changed": ["limits.md"], "removed": [], "moved": []}
    assert diff["documents"]["counts"] == {"added": 1, "changed": 1, "removed": 0, "moved": 0}
    assert (diff["from"], diff["to"]) == (first.release_id, newest.release_id)
    assert diff["chunks"] == {"from": 2, "to": 3, "added": 2, "removed": 1, "unchanged": 1}
    assert diff["vectors"] == {"reused": 1, "embedded": 2}
    same = await called(world, lambda client: client.diff_releases(newest.release_id))
    assert same["documents"]["counts"] == {"added": 0, "changed": 0, "removed": 0, "moved": 0}


async def test_reindex_builds_every_knowledge_base_in_the_present_space(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One line each; nothing is shown before it is told to, and a second run embeds nothing."""
    world = World()
    await world.learn({"limits.md": LIMITS}, knowledge_base=KB)
    await world.learn({"hours.md": HOURS}, knowledge_base="wiki")
    again = started_again(world, "new-space")
    code, lines = await reindexed(again, capsys)
    assert (code, [line["knowledge_base"] for line in lines]) == (0, [KB, "wiki"])
    assert {(line["state"], line["embedding_space_id"]) for line in lines} == {("READY", "new-space")}
    assert {one.space_id for one in await world.catalog.knowledge_bases("acme")} == {"fixed-32-v1"}
    code, lines = await reindexed(again, capsys, activate=True)
    assert (code, {(line["state"], line["release_sequence"]) for line in lines}) == (0, {("ACTIVE", 2)})
    assert {one.space_id for one in await world.catalog.knowledge_bases("acme")} == {"new-space"}
    assert [release.vectors for release in await world.catalog.releases("acme", KB)][:2] == [
        {"reused": 1, "embedded": 0},
        {"reused": 0, "embedded": 1},
    ]
    code, lines = await reindexed(again, capsys, activate=True, kb=["wiki"])
    assert (code, lines[0]["state"], lines[0]["release_sequence"]) == (0, "ACTIVE", 2)


async def test_reindex_shows_nothing_that_no_gate_can_judge(capsys: pytest.CaptureFixture[str]) -> None:
    """A space without thresholds is built and not activated, unless that is wanted."""
    world = World()
    await world.learn({"limits.md": LIMITS}, knowledge_base=KB)
    embedder = FixedEmbedder(space_id="new-space")
    again = started_again(world, "new-space", RetrievalConfig.uncalibrated(embedder.space))
    code, [line] = await reindexed(again, capsys, activate=True)
    assert (code, line["error"]) == (1, "not_calibrated: built, not activated")
    (kb,) = await world.catalog.knowledge_bases("acme")
    assert (kb.sequence, kb.space_id) == (1, "fixed-32-v1")
    code, [line] = await reindexed(again, capsys, activate=True, uncalibrated=True)
    assert (code, line["release_sequence"]) == (0, 2)


async def test_reindex_says_why_a_build_failed_and_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    """One document that can't be taken into the new space stands for itself."""
    world = World()
    await world.learn({"secret.md": LIMITS}, knowledge_base=KB, sensitivity=3)
    await world.learn({"hours.md": HOURS}, knowledge_base="wiki")
    outside = FixedEmbedder(space_id="new-space", max_sensitivity=1)
    parts = {name: getattr(world, name) for name in ("catalog", "vectors", "objects")}
    again = World(ground=replace(twins(world.settings, outside), offline_embedder=outside, **parts))
    code, lines = await reindexed(again, capsys)
    assert (code, [line["state"] for line in lines]) == (1, ["FAILED", "READY"])
    assert lines[0]["error"].startswith("document_unusable: secret.md: ")


async def test_the_retrieval_config_is_rolled_back_over_http() -> None:
    """``what`` says which part; anything else is refused and changes nothing."""
    world = World()
    await world.learn({"limits.md": LIMITS}, knowledge_base=KB)
    again = started_again(world, "fixed-32-v1", replace(OPEN_GATE, version="open/2"))
    await again.catalog.accept_release("acme", KB, 600)
    await again.work()
    newest, _ = await world.catalog.releases("acme", KB)
    await world.catalog.activate("acme", newest.release_id, None)

    def roll_back(client: GatewayClient) -> Any:
        with pytest.raises(ApiError) as refused:
            client.roll_back(KB, what="gate")
        assert refused.value.problem_code == "invalid_field"
        return client.roll_back(KB, what="config")

    activation = await called(again, roll_back)
    assert (activation["release_sequence"], activation["knowledge_revision"]) == (3, newest.kb_revision)
    listed = await called(again, lambda client: client.releases(KB))
    assert [(one["retrieval_config"], one["calibrated"]) for one in listed] == [("open/1", True)] * 2
    assert listed[0]["barrier"]["vectors"] == {"reused": 1, "embedded": 0}
