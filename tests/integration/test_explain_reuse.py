"""Why an answer ended as it did, when it was made for somebody else, or earlier."""

import json
from collections.abc import Sequence
from typing import Any

from gateway.adapters.memory.models import Gate, ScriptedModel
from gateway.client import StreamEvent
from gateway.stream.revocation import RevocationKind
from tests.harness.wire import ask, request
from tests.integration.test_shared_answers import PIECES, QUESTION, Town, rest_of, town


async def test_a_shared_answer_is_explained_to_each_who_got_it() -> None:
    """With what was found for it; that it was made for somebody else too is for operators."""
    gate = Gate()
    async with town(model=ScriptedModel(PIECES, hold={2: gate})) as here:
        async with here.asking("ann", "bob") as wires:
            await gate.reached.wait()
            gate.release.set()
            told = [await rest_of(wire) for wire in wires]
        for subject, events, shared in (("ann", told[0], False), ("bob", told[1], True)):
            found = await explained(here, events, subject, "ask")
            assert (found["outcome"], found["cached"]) == ("ANSWERED", False)
            assert [p["document_id"] for p in found["passages"]] == [
                s["document_id"] for s in events[0].data["sources"]
            ]
            assert found["found"]["passages"] == 1
            assert "shared" not in found
            assert (await explained(here, events, "olga", "operate"))["shared"] is shared


async def test_an_answer_that_was_kept_is_explained_by_what_it_rests_on() -> None:
    """How that was searched for isn't kept with it; a document that its reader loses is left out."""
    async with town(model=ScriptedModel(PIECES), answer_cache_ttl_s=600) as here:
        for subject in ("ann", "bob"):
            _, events = await ask(here.port, here.world.token(subject=subject), QUESTION)
        assert events[0].data["cached"]
        found = await explained(here, events, "bob", "ask")
        assert (found["outcome"], found["cached"]) == ("ANSWERED", True)
        assert (found["found"]["passages"], found["found"]["relevance"]) == (1, "sufficient")
        assert [p["chunk_id"] for p in found["passages"]] == [
            s["chunk_id"] for s in events[0].data["sources"]
        ]
        limits = await here.document_named("limits.md")
        await here.world.catalog.revoke("acme", RevocationKind.DOCUMENT, limits, "leaked", "olga")
        later = await explained(here, events, "bob", "ask")
        assert (later["passages"], later["found"]) == ([], None)


async def explained(here: Town, events: Sequence[StreamEvent], subject: str, scope: str) -> Any:
    body = json.dumps({"request_id": events[0].data["request_id"]}).encode()
    token = here.world.token(subject=subject, scopes=(scope,))
    headers = {"Content-Type": "application/json"}
    head, content = await request(here.port, "POST", "/v1/explain", token=token, body=body, headers=headers)
    assert head.status == 200, content
    return json.loads(content)
