"""Idempotency-Key over HTTP: the same act sent again is answered again, and done once."""

import json
from typing import Any

import anyio
import pytest

from tests.contract.catalog_world import import_of, upload
from tests.harness.serving import serving_world
from tests.harness.wire import connected
from tests.harness.world import World

PATIENCE_S = 30
_JSON = {"Content-Type": "application/json"}
_SCOPES = ["ask", "ingest", "release", "revoke"]


async def _released(world: World, times: int) -> None:
    for number in range(times):
        await world.learn({"limits.md": f"# Limits\n\nThe upload limit is {number} megabytes.\n"})


async def _post(
    port: int, world: World, path: str, body: dict[str, Any], key: str | None, **token: Any
) -> tuple[int, Any]:
    headers = _JSON if key is None else {**_JSON, "Idempotency-Key": key}
    async with connected(port) as wire:
        credential = world.token(scopes=_SCOPES, **token)
        await wire.send("POST", path, token=credential, body=json.dumps(body).encode(), headers=headers)
        return (await wire.read_head()).status, await wire.json()


async def _ready_release(port: int, world: World) -> str:
    text = "Nothing is known of it.\n"
    document = upload("other.txt", text)
    await world.objects.put(document.original_key, text.encode())
    await world.catalog.accept_import(import_of(document))
    await world.work()
    _, accepted = await _post(port, world, "/v1/releases", {"knowledge_base": "handbook"}, None)
    await world.work()
    return str(accepted["release_id"])


_KB = {"knowledge_base": "handbook"}
_USER = {"kind": "user", "id": "mallory", "reason": "left"}
#: path, a body, another one, and the status of the first
_ACTS: dict[str, tuple[str, dict[str, Any], dict[str, Any], int]] = {
    "build": ("/v1/releases", _KB, {"knowledge_base": "wiki"}, 202),
    "activate": ("/v1/releases/{release_id}/activate", {}, {"expected_sequence": 1}, 200),
    "roll back": ("/v1/releases/rollback", _KB, {**_KB, "expected_sequence": 1}, 200),
    "revoke": ("/v1/revocations", _USER, {**_USER, "id": "eve"}, 201),
}


@pytest.mark.parametrize("act", _ACTS)
async def test_the_same_key_is_answered_with_the_same(act: str) -> None:
    """Status and body; done once, and written down once. Another body is refused."""
    world = World()
    await _released(world, 3)
    path, body, other, good = _ACTS[act]
    with anyio.fail_after(PATIENCE_S):
        async with serving_world(world) as port:
            if act == "activate":
                path = path.format(release_id=await _ready_release(port, world))
            entries = len(await world.catalog.entries("acme", 99))
            first = await _post(port, world, path, body, "a key")
            assert first[0] == good
            after = await world.catalog.releases("acme", "handbook")
            reordered = dict(reversed(body.items()))
            assert await _post(port, world, path, reordered, "a key") == first
            assert await world.catalog.releases("acme", "handbook") == after
            assert len(await world.catalog.entries("acme", 99)) == entries + 1
            status, problem = await _post(port, world, path, other, "a key")
            assert (status, problem["code"]) == (422, "idempotency_mismatch")
            assert await world.catalog.releases("acme", "handbook") == after


async def test_without_a_key_each_rollback_counts() -> None:
    """And under another key, or another person's."""
    world = World()
    await _released(world, 4)
    body = {"knowledge_base": "handbook"}
    with anyio.fail_after(PATIENCE_S):
        async with serving_world(world) as port:
            calls = [(None, "ann"), ("a key", "ann"), ("a key", "bob")]
            answers = [
                await _post(port, world, "/v1/releases/rollback", body, key, subject=subject)
                for key, subject in calls
            ]
    assert [status for status, _ in answers] == [200, 200, 200]
    assert len({answer["release_sequence"] for _, answer in answers}) == 3


@pytest.mark.parametrize("key", ["", "k" * 201])
async def test_a_bad_key_is_refused(key: str) -> None:
    """Before anything is done."""
    world = World()
    await _released(world, 2)
    before = await world.catalog.releases("acme", "handbook")
    with anyio.fail_after(PATIENCE_S):
        async with serving_world(world) as port:
            status, problem = await _post(
                port, world, "/v1/releases/rollback", {"knowledge_base": "handbook"}, key
            )
    assert (status, problem["code"]) == (400, "invalid_field")
    assert await world.catalog.releases("acme", "handbook") == before
