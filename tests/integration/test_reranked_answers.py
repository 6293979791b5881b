"""Answers and searches with a reranker: what it may see, what becomes of its order, and what if it can't."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import anyio
import pytest

from gateway.adapters.memory.models import Gate
from gateway.adapters.memory.rerank import WordReranker
from gateway.adapters.rerank.endpoint import RerankEndpoint
from gateway.client import StreamEvent
from gateway.errors import RerankerUnavailable
from gateway.release.model import RetrievalConfig
from gateway.stream.revocation import RevocationKind
from loadtest.model_stub import ModelStub, serve_stub
from tests.harness.serving import serving_world
from tests.harness.wire import ask, connected, request
from tests.harness.world import OPEN_GATE, World, open_gate

PATIENCE_S = 20
LONG_MS = 60_000
QUESTION = "What is the upload limit?"
BEST = "The upload limit is 42 megabytes."
OTHER = "What the upload page shows is the limit of the day."
TEXTS = {"limits.md": f"# Limits\n\n{BEST}\n", "page.md": f"# Page\n\n{OTHER}\n"}
VERSION = "words/1"


class Opposite(WordReranker):
    """Puts last what the search puts first."""

    async def scores(self, question: str, candidates: Any, *arguments: Any) -> list[float]:
        await super().scores(question, candidates, *arguments)
        return [float(place) for place in range(len(candidates))]


@asynccontextmanager
async def gateway(
    reranker: Any, config: RetrievalConfig | None = None, **settings: Any
) -> AsyncIterator[tuple[World, int]]:
    patient = {"rerank_cap_ms": LONG_MS, "rerank_wait_ms": LONG_MS, "total_cap_ms": LONG_MS, **settings}
    world = World(reranker=reranker, config=config or open_gate(reranker.version), **patient)
    await world.learn(TEXTS)
    async with serving_world(world) as port:
        yield world, port
        await world.registry.idle()
        world.assert_nothing_held()


async def asked(world: World, port: int) -> list[StreamEvent]:
    with anyio.fail_after(PATIENCE_S):
        head, events = await ask(port, world.token(), QUESTION)
    assert head.status == 200
    return events


async def searched(world: World, port: int, more: str = "", *, scopes: Sequence[str] = ("ask",)) -> Any:
    """The answer's body, or of a refusal its status and code."""
    with anyio.fail_after(PATIENCE_S):
        path = f"/v1/search?query={quote(QUESTION)}&knowledge_base=handbook{more}"
        head, body = await request(port, "GET", path, token=world.token(scopes=scopes))
    found = json.loads(body)
    return found if head.status == 200 else (head.status, found["code"])


async def metrics(port: int) -> str:
    return (await request(port, "GET", "/metrics"))[1].decode()


def labels(events: list[StreamEvent]) -> list[str]:
    return [source["score_label"] for source in events[0].data["sources"]]


def titles(passages: list[dict[str, Any]]) -> list[str]:
    return [passage["title"] for passage in passages]


async def fused_order() -> list[str]:
    async with gateway(WordReranker(), OPEN_GATE) as (world, port):
        return titles((await asked(world, port))[0].data["sources"])


async def test_an_answer_rests_on_the_rerankers_order() -> None:
    """Sources say so, in meta as in a search; the stage is measured, the answer may be kept."""
    reranker = Opposite()
    async with gateway(reranker) as (world, port):
        events = await asked(world, port)
        found = await searched(world, port)
        body = await metrics(port)
    sources = events[0].data["sources"]
    assert titles(sources) == titles(found["results"]) == (await fused_order())[::-1]
    assert [source["raw_score"] for source in sources] == [1.0, 0.0]
    assert labels(events) == ["rerank", "rerank"]
    assert sources[0]["hit_reason"].endswith(", rerank #1")
    assert events[-1].data["cacheable"] is True
    assert 'gateway_stage_seconds_count{stage="rerank"} 2.0' in body
    assert 'gateway_rerank_skips_total{reason="not_calibrated"} 0.0' in body


SKIPPED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "down": ({"error": RerankerUnavailable("down")}, {}, "reranker_unavailable"),
    "slow": ({"hold": Gate()}, {"rerank_cap_ms": 1}, "too_slow"),
    "not cleared": ({"max_sensitivity": -1}, {}, "not_cleared"),
}


@pytest.mark.parametrize(("reranker", "settings", "reason"), SKIPPED.values(), ids=SKIPPED)
async def test_a_skipped_reranker_costs_the_order_and_not_the_answer(
    reranker: dict[str, Any], settings: dict[str, Any], reason: str
) -> None:
    """The fused order, its label and its thresholds; such an answer is kept for nobody else."""
    async with gateway(WordReranker(**reranker), **settings) as (world, port):
        events = await asked(world, port)
        body = await metrics(port)
    assert events[-1].data["status"] == "ANSWERED"
    assert events[-1].data["cacheable"] is False
    assert labels(events) == ["rrf", "rrf"]
    assert titles(events[0].data["sources"]) == await fused_order()
    assert f'gateway_rerank_skips_total{{reason="{reason}"}} 1.0' in body
    assert 'gateway_rejections_total{stage="rerank"} 0.0' in body


async def test_without_thresholds_for_the_fused_order_nothing_is_guessed() -> None:
    """503 where the reranker is skipped; answered where it works."""
    config = replace(open_gate(VERSION), bias=None)
    reranker = WordReranker(error=RerankerUnavailable("down"))
    async with gateway(reranker, config) as (world, port):
        with anyio.fail_after(PATIENCE_S):
            async with connected(port) as wire:
                await wire.ask(world.token(), QUESTION)
                assert (await wire.read_head()).status == 503
                assert (await wire.json())["code"] == "not_calibrated"
        assert world.model.called == 0
        reranker.error = None
        assert (await asked(world, port))[-1].data["status"] == "ANSWERED"


async def test_a_search_comes_in_the_order_of_an_answer() -> None:
    """Where thresholds are fitted for another order it isn't reranked, and is judged by them."""
    reranker = Opposite(version="new/1")
    async with gateway(reranker, open_gate(VERSION)) as (world, port):
        events = await asked(world, port)
        found = await searched(world, port)
        body = await metrics(port)
    assert reranker.seen == []
    assert (labels(events), events[-1].data["cacheable"]) == (["rrf", "rrf"], True)
    assert [result["score_label"] for result in found["results"]] == ["rrf", "rrf"]
    assert titles(found["results"]) == titles(events[0].data["sources"])
    assert found["relevance"] == "sufficient"
    assert 'gateway_rerank_skips_total{reason="not_calibrated"} 2.0' in body


async def test_an_operator_may_have_a_search_reranked_without_thresholds() -> None:
    """They are fitted from it. It is asked for by name, and by nobody else."""
    reranker = Opposite(version="new/1")
    async with gateway(reranker, open_gate(VERSION)) as (world, port):
        found = await searched(world, port, "&rerank=always", scopes=("ask", "operate"))
        assert await searched(world, port, "&rerank=always") == (403, "scope_missing")
        assert await searched(world, port, "&rerank=never") == (400, "invalid_field")
    assert len(reranker.seen) == 1
    assert [result["score_label"] for result in found["results"]] == ["rerank", "rerank"]
    assert (found["relevance"], "gate" in found) == ("uncalibrated", False)


async def test_where_nothing_is_calibrated_a_search_is_reranked() -> None:
    """No answer comes of it, and a better order is all that can be had."""
    reranker = Opposite(version="new/1")
    async with gateway(reranker, replace(OPEN_GATE, bias=None)) as (world, port):
        found = await searched(world, port)
    assert [result["score_label"] for result in found["results"]] == ["rerank", "rerank"]
    assert found["relevance"] == "uncalibrated"


@asynccontextmanager
async def judged_by(stub: ModelStub) -> AsyncIterator[RerankEndpoint]:
    reranker = RerankEndpoint(
        f"{stub.base_url}/rerank", "judge", None, max_sensitivity=1, connect_cap_ms=5000
    )
    try:
        yield reranker
    finally:
        await reranker.aclose()


async def test_only_what_the_caller_may_see_now_leaves_for_the_endpoint() -> None:
    """Neither another group's passages, nor what was revoked since the release, nor what is withheld."""
    async with serve_stub() as stub, judged_by(stub) as reranker:
        async with gateway(reranker, risk_policy="withhold") as (world, port):
            await world.learn(
                {"board.md": "# Board\n\nThe board's upload limit is 7."}, allow=["group:board"]
            )
            await world.learn({"odd.md": "# Odd\n\nThe odd upload limit is 9."}, risk=("external",))
            old = await world.learn({"old.md": "# Old\n\nThe old upload limit was 8."})
            document_id = old.documents[0].document_id
            await world.catalog.revoke("acme", RevocationKind.DOCUMENT, document_id, "wrong", "root")
            events = await asked(world, port)
            found = await searched(world, port)
    sent = [call.user_message for call in stub.calls]
    assert len(sent) == 2
    for text in sent:
        assert BEST in text
        assert not {"board", "odd", "old"} & set(text.casefold().replace("'", " ").split())
    assert labels(events) == ["rerank", "rerank"]
    assert [(r["title"], r["score_label"]) for r in found["results"]][2:] == [("Odd", "rrf")]


async def test_a_document_revoked_while_it_is_reranked_ends_the_call_on_the_wire() -> None:
    """Its text is with the endpoint: the call is closed at once and nothing is answered from it."""
    async with serve_stub() as stub, judged_by(stub) as reranker:
        stub.script_model("judge", gate_after_tokens=0)
        async with gateway(reranker) as (world, port), connected(port) as wire:
            with anyio.fail_after(PATIENCE_S):
                await wire.ask(world.token(), QUESTION)
                await stub.until(lambda s: bool(s.calls))
                (session,) = world.registry.identified()
                document_id = min(ref.document_id for ref in session.documents)
                await world.catalog.revoke("acme", RevocationKind.DOCUMENT, document_id, "wrong", "root")
                world.services.feed.wake()
                await stub.until(lambda s: s.calls[0].closed_at is not None)
                head = await wire.read_head()
    assert stub.calls[0].reason == "client_gone"
    assert head.status == 409
    assert world.model.called == 0
