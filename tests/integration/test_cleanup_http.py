"""Deletions and revocations over HTTP: each answer names the task that cleans up, and the task its report."""

import json
from typing import Any

import anyio

from tests.harness.serving import serving_world
from tests.harness.wire import connected
from tests.harness.world import World

PATIENCE_S = 30
_SCOPES = ["ask", "ingest", "release", "revoke"]
_JSON = {"Content-Type": "application/json"}


async def _ask(
    port: int, world: World, method: str, path: str, body: dict[str, Any] | None = None, **token: Any
) -> tuple[Any, Any]:
    """Head and JSON body."""
    async with connected(port) as wire:
        credential = world.token(scopes=_SCOPES, **token)
        content = None if body is None else json.dumps(body).encode()
        await wire.send(method, path, token=credential, body=content or b"", headers=_JSON)
        head = await wire.read_head()
        return head, None if head.status == 204 else await wire.json()


async def test_a_deletion_names_the_task_whose_report_tells_what_remains() -> None:
    """204 with its place; a second deletion finds nothing, and nobody of another tenant finds the task."""
    world = World()
    await world.learn({"limits.md": "# Limits\n\nThe upload limit is 42 megabytes.\n"})
    [document] = await world.catalog.documents("acme", "handbook")
    path = f"/v1/documents/{document.document_id}"
    with anyio.fail_after(PATIENCE_S):
        async with serving_world(world) as port:
            head, _ = await _ask(port, world, "DELETE", path)
            assert head.status == 204
            place = head.headers["location"]
            assert (await _ask(port, world, "DELETE", path))[0].status == 404
            assert (await _ask(port, world, "GET", place, tenant="globex"))[0].status == 404
            await world.work()
            _, task = await _ask(port, world, "GET", place)
    assert (task["kind"], task["state"], task["target"]) == ("cleanup", "SUCCEEDED", document.document_id)
    removed = {"rows": 1, "chunk_files": 1, "vector_files": 1, "originals": 1, "quotes": 0, "answers": 0}
    assert task["report"]["removed"] == removed
    assert {"what", "why", "until"} == set(task["report"]["remains"][0])


async def test_a_revocation_names_its_clean_up_and_one_of_a_person_has_none() -> None:
    """The document's files stay for a lift, and the report says so."""
    world = World()
    await world.learn({"limits.md": "# Limits\n\nThe upload limit is 42 megabytes.\n"})
    [document] = await world.catalog.documents("acme", "handbook")
    with anyio.fail_after(PATIENCE_S):
        async with serving_world(world) as port:
            body = {"kind": "document", "id": document.document_id, "reason": "leak"}
            head, revoked = await _ask(port, world, "POST", "/v1/revocations", body)
            assert head.status == 201
            await world.work()
            _, task = await _ask(port, world, "GET", f"/v1/tasks/{revoked['task_id']}")
            _, person = await _ask(
                port, world, "POST", "/v1/revocations", {"kind": "user", "id": "eve", "reason": "left"}
            )
    assert (task["kind"], task["state"]) == ("cleanup", "SUCCEEDED")
    assert set(task["report"]["removed"].values()) == {0}
    assert "originals" in {one["what"] for one in task["report"]["remains"]}
    assert person["task_id"] is None


async def test_what_follows_from_a_revocation_is_not_called_off() -> None:
    """Whoever may import reads such tasks, and can't keep rows where they lie."""
    world = World()
    await world.learn({"limits.md": "# Limits\n\nThe upload limit is 42 megabytes.\n"})
    [document] = await world.catalog.documents("acme", "handbook")
    with anyio.fail_after(PATIENCE_S):
        async with serving_world(world) as port:
            body = {"kind": "document", "id": document.document_id, "reason": "leak"}
            await _ask(port, world, "POST", "/v1/revocations", body)
            _, waiting = await _ask(port, world, "GET", "/v1/tasks?state=PENDING")
            assert {task["kind"] for task in waiting["tasks"]} == {"move", "cleanup"}
            for task in waiting["tasks"]:
                head, problem = await _ask(port, world, "DELETE", f"/v1/tasks/{task['task_id']}")
                assert (head.status, problem["code"]) == (409, "illegal_transition")
                assert f"a {task['kind']} task" in problem["detail"]
            await world.work()
            _, done = await _ask(port, world, "GET", "/v1/tasks?state=SUCCEEDED")
    assert {"move", "cleanup"} <= {task["kind"] for task in done["tasks"]}
