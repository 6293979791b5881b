"""Places and numbers of search results tell nothing of passages that their reader may not see any more."""

import json
from typing import Any
from urllib.parse import quote

import anyio

from gateway.stream.revocation import RevocationKind
from tests.harness.serving import serving_world
from tests.harness.wire import request
from tests.harness.world import World

QUESTION = "What is the upload limit?"
ALONE = {"limits.md": "# Limits\n\nThe upload limit is 42 megabytes for every member of staff, as a rule.\n"}
BOTH = {**ALONE, "vault.md": "# Upload limit\n\nWhat is the upload limit? The upload limit.\n"}


async def _results(revoked: str | None, documents: dict[str, str]) -> list[dict[str, Any]]:
    world = World()
    await world.learn(documents)
    for document in await world.catalog.documents("acme", "handbook"):
        if document.source == revoked:
            await world.catalog.revoke("acme", RevocationKind.DOCUMENT, document.document_id, "gone", "olga")
    with anyio.fail_after(30):
        async with serving_world(world) as port:
            path = f"/v1/search?query={quote(QUESTION)}&knowledge_base=handbook"
            head, body = await request(port, "GET", path, token=world.token())
    assert head.status == 200
    return list(json.loads(body)["results"])


async def test_a_dropped_passage_leaves_no_gap_in_the_ranks() -> None:
    """The result is the one that there would be without it."""
    both = await _results(None, BOTH)
    assert [found["hit_reason"] for found in both] == ["dense #1, bm25 #1", "dense #2, bm25 #2"]
    (left,) = await _results("vault.md", BOTH)
    (alone,) = await _results(None, ALONE)
    told = ("uri", "hit_reason", "raw_score", "score")
    assert [left[name] for name in told] == [alone[name] for name in told]
    assert (left["uri"], left["hit_reason"]) == ("limits.md", "dense #1, bm25 #1")
