"""Lists in pages over HTTP, and clients that see all of them."""

import base64
import json
from typing import Any
from urllib.parse import quote

import anyio
import anyio.to_thread

from gateway.client import GatewayClient
from gateway.stream.revocation import RevocationKind
from gateway.web.paging import MAX_LIMIT
from tests.contract.catalog_world import import_of, upload
from tests.harness.serving import serving_world
from tests.harness.wire import request
from tests.harness.world import World

PATIENCE_S = 60
SCOPES = ["ingest", "release", "revoke"]
#: one more than a page holds when nobody says how much
MANY = MAX_LIMIT + 1


async def _get(port: int, world: World, path: str, **token: Any) -> tuple[int, Any]:
    head, body = await request(port, "GET", path, token=world.token(scopes=SCOPES, **token))
    return head.status, json.loads(body)


async def _import(world: World, *sources: str, kb: str = "handbook", tenant: str = "acme") -> None:
    await world.catalog.accept_import(import_of(*map(upload, sources), kb=kb, tenant=tenant))


async def test_documents_come_in_pages_of_the_asked_size() -> None:
    """Each names the next, the last names none."""
    world = World()
    await _import(world, "a", "b", "c")
    async with serving_world(world) as port:
        with anyio.fail_after(PATIENCE_S):
            path = "/v1/documents?knowledge_base=handbook&limit=2"
            _, first = await _get(port, world, path)
            await _import(world, "0", "d")
            _, second = await _get(port, world, f"{path}&cursor={first['next_cursor']}")
    assert [document["source"] for document in first["documents"]] == ["a", "b"]
    assert [document["source"] for document in second["documents"]] == ["c", "d"]
    assert second["next_cursor"] is None
    assert first["limits"] == second["limits"] != {}


async def test_a_page_may_end_at_any_name() -> None:
    """Also at one with characters that nobody sees, or of the longest."""
    sources = sorted(["line\nbreak", "全角\u3000空格", "👩\u200d👧", "z" * 500, "🙂" * 500])
    world, seen = World(), list[str]()
    await _import(world, *sources)
    async with serving_world(world) as port:
        with anyio.fail_after(PATIENCE_S):
            path = "/v1/documents?knowledge_base=handbook&limit=1"
            status, page = await _get(port, world, path)
            while status == 200 and page["next_cursor"] is not None:
                seen += [document["source"] for document in page["documents"]]
                status, page = await _get(port, world, f"{path}&cursor={page['next_cursor']}")
    assert (status, [*seen, page["documents"][0]["source"]]) == (200, sources)


async def test_releases_come_in_pages_of_the_asked_size() -> None:
    """Newest first."""
    world = World()
    for number in range(3):
        await world.learn({"limits.md": f"# Limits\n\nThe upload limit is {number} megabytes.\n"})
    async with serving_world(world) as port:
        with anyio.fail_after(PATIENCE_S):
            path = "/v1/releases?knowledge_base=handbook&limit=2"
            _, first = await _get(port, world, path)
            _, second = await _get(port, world, f"{path}&cursor={first['next_cursor']}")
    assert [release["release_sequence"] for release in first["releases"]] == [3, 2]
    assert [release["release_sequence"] for release in second["releases"]] == [1]
    assert second["next_cursor"] is None


async def test_revocations_come_in_pages_of_the_asked_size() -> None:
    """Newest first, each tenant's own; whoever asks for no page gets the first as before."""
    world = World()
    for name in ("bob", "cai", "dan"):
        await world.catalog.revoke("acme", RevocationKind.USER, name, "left", "olga")
    await world.catalog.revoke("globex", RevocationKind.USER, "eve", "left", "olga")
    async with serving_world(world) as port:
        with anyio.fail_after(PATIENCE_S):
            _, first = await _get(port, world, "/v1/revocations?limit=2")
            _, second = await _get(port, world, f"/v1/revocations?limit=2&cursor={first['next_cursor']}")
            _, whole = await _get(port, world, "/v1/revocations")
            _, foreign = await _get(
                port, world, f"/v1/revocations?cursor={first['next_cursor']}", tenant="globex"
            )
    assert [one["id"] for one in first["revocations"]] == ["dan", "cai"]
    assert ([one["id"] for one in second["revocations"]], second["next_cursor"]) == (["bob"], None)
    assert (whole["revocations"], whole["next_cursor"]) == (
        [*first["revocations"], *second["revocations"]],
        None,
    )
    assert foreign["code"] == "invalid_field"


async def test_a_cursor_of_another_list_is_refused() -> None:
    """Of another knowledge base, tenant or kind, as well as one that nobody gave out."""
    world = World()
    await _import(world, "a", "b", "c")
    await _import(world, "a", "b", "c", kb="wiki")
    await _import(world, "a", "b", "c", tenant="globex")
    async with serving_world(world) as port:
        with anyio.fail_after(PATIENCE_S):
            mine = "/v1/documents?knowledge_base=handbook&limit=1"
            _, own = await _get(port, world, mine)
            _, wiki = await _get(port, world, "/v1/documents?knowledge_base=wiki&limit=1")
            _, foreign = await _get(port, world, mine, tenant="globex")
            forged = base64.urlsafe_b64encode(json.dumps(["x", "a"]).encode()).decode()
            nested = base64.urlsafe_b64encode(b"[" * 6000).decode()
            cursors = [nested, wiki["next_cursor"], foreign["next_cursor"], forged, "", "[]", "é", "a" * 9000]
            for cursor in cursors:
                status, problem = await _get(port, world, f"{mine}&cursor={quote(cursor)}")
                assert (status, problem["code"]) == (400, "invalid_field"), cursor
            for other in ("releases?knowledge_base=handbook&", "revocations?"):
                status, problem = await _get(port, world, f"/v1/{other}cursor={own['next_cursor']}")
                assert (status, problem["code"]) == (400, "invalid_field")


async def test_a_limit_that_is_none_is_refused() -> None:
    """With the bounds in the answer."""
    world = World()
    async with serving_world(world) as port:
        with anyio.fail_after(PATIENCE_S):
            for name in (
                "documents?knowledge_base=handbook&",
                "releases?knowledge_base=handbook&",
                "revocations?",
            ):
                for limit in ("0", "-1", "1001", "many", "1e2", "", "²"):
                    path = f"/v1/{name}limit={quote(limit)}"
                    status, problem = await _get(port, world, path)
                    assert (status, problem["code"]) == (400, "invalid_field"), path
                    assert str(MAX_LIMIT) in problem["detail"]


async def test_a_client_sees_all_documents_of_a_large_base() -> None:
    """One that asks for no page gets the first; ours goes on until there is none."""
    world = World()
    sources = [f"{number:05d}" for number in range(MANY)]
    await _import(world, *sources)
    token = world.token(scopes=SCOPES)
    async with serving_world(world) as port:

        def listed() -> dict[str, Any]:
            with GatewayClient(f"http://127.0.0.1:{port}", token) as client:
                return client.documents("handbook")

        with anyio.fail_after(PATIENCE_S):
            _, page = await _get(port, world, "/v1/documents?knowledge_base=handbook")
            found = await anyio.to_thread.run_sync(listed)
    assert len(page["documents"]) == MAX_LIMIT
    assert [document["source"] for document in found["documents"]] == sources
    assert found["limits"] == page["limits"]
