"""Hints in a whole gateway: they raise what the caller may see and tell of nothing else."""

import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlencode

import pytest_asyncio

from tests.harness.serving import serving_world
from tests.harness.wire import request
from tests.harness.world import World

CHATTER = "The payment gateway page and its form fields are described here for people who pay by card."
SECRET = "PAY_SECRET_77 is raised by vault-service when the second key is missing."


@pytest_asyncio.fixture
async def world() -> World:
    """What everybody of staff may read, and one document that only the vault's people may."""
    world = World(rrf_lexical_weight=0.0, evidence_neighbours=0)
    texts = {f"page{n}.md": f"# Page {n}\n\n{CHATTER}\n" for n in range(4)}
    await world.learn(
        {**texts, "code.md": "# Codes\n\nPAY_LIMIT_9 means that too much was asked of payment-service.\n"}
    )
    await world.learn({"vault.md": f"# Vault\n\n{SECRET}\n"}, allow=["group:vault"])
    return world


@pytest_asyncio.fixture
async def port(world: World) -> AsyncIterator[int]:
    async with serving_world(world) as port:
        yield port


async def searched(port: int, token: str, query: str, **fields: str) -> Any:
    head, body = await request(
        port, "GET", f"/v1/search?{urlencode({'query': query, **fields})}", token=token
    )
    assert head.status == 200, body
    return json.loads(body)


async def test_a_hint_is_shown_and_raises_its_passage(world: World, port: int) -> None:
    """In the question's own spelling, which isn't the index's; the words around it are about other pages."""
    question = "When people pay by card on the gateway page, its form fields say PAY-LIMIT-9: why?"
    found = await searched(port, world.token(), question)
    assert found["hints"] == [{"kind": "error_code", "value": "PAY-LIMIT-9", "effect": "boost"}]
    assert (found["results"][0]["title"], found["results"][0]["hit_reason"][-7:]) == ("Codes", "hint #1")
    assert len(found["results"]) == 5, "a hint leaves nothing out"


async def test_a_hint_tells_nothing_of_a_hidden_document(world: World, port: int) -> None:
    """A code and a service that only others' passages have look like ones that don't exist."""
    there = await searched(port, world.token(), "What is PAY_SECRET_77 of vault-service?")
    missing = await searched(port, world.token(), "What is PAY_NOBODY_12 of fault-service?")
    assert there["hints"] == missing["hints"] == []
    assert "hint" not in json.dumps([result["hit_reason"] for result in there["results"]])
    allowed = await searched(port, world.token(groups=["staff", "vault"]), "What is PAY_SECRET_77?")
    assert [hint["value"] for hint in allowed["hints"]] == ["PAY_SECRET_77"]


async def test_a_hint_is_gone_with_its_document(world: World, port: int) -> None:
    """At once, although the vocabulary still counts the passage until the next build."""
    (document,) = [d for d in await world.catalog.documents("acme", "handbook") if d.source == "code.md"]
    await world.catalog.delete_document("acme", document.document_id)
    found = await searched(port, world.token(), "What is PAY_LIMIT_9?")
    assert found["hints"] == []
    assert all(result["title"] != "Codes" for result in found["results"])


async def test_a_category_holds_for_hints_too(world: World, port: int) -> None:
    """A passage of another category isn't found by its code either."""
    await world.learn({"faq.md": "# Questions\n\nPAY_FAQ_5 is asked about a lot.\n"}, category="faq")
    inside = await searched(port, world.token(), "What is PAY_FAQ_5?", category="faq")
    outside = await searched(port, world.token(), "What is PAY_FAQ_5?", category="howto")
    assert [hint["value"] for hint in inside["hints"]] == ["PAY_FAQ_5"]
    assert [result["title"] for result in inside["results"]] == ["Questions"]
    assert (outside["hints"], outside["results"]) == ([], [])
