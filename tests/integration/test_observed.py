"""What an answer leaves behind: one record, an audit entry, counters; and none of its words."""

import json

import pytest
import structlog

from gateway.adapters.memory.models import FixedEmbedder, Gate, ScriptedModel
from gateway.errors import EmbedderUnavailable
from tests.harness.serving import serving_world
from tests.harness.wire import ask, connected, request
from tests.harness.world import World

SECRET_WORDS = "The vault combination is kingfisher."
TEXT = {"vault.md": f"# Vault\n\n{SECRET_WORDS}\n"}
QUESTION = "What is the combination of the vault, please, heliotrope?"


async def metric(port: int, name: str) -> float:
    _, body = await request(port, "GET", "/metrics")
    (value,) = [line.split()[-1] for line in body.decode().splitlines() if line.split()[0] == name]
    return float(value)


async def test_one_record_tells_the_whole_path_and_quotes_nothing() -> None:
    """One line with both ids, the version chain, counts, stage times and the end; no words of anybody."""
    world = World(model=ScriptedModel(["Kingfisher [1]."]))
    await world.learn(TEXT)
    with structlog.testing.capture_logs() as lines:
        async with serving_world(world) as port:
            _, events = await ask(port, world.token(), QUESTION)
    (line,) = [line for line in lines if line["event"] == "answer.ended"]
    assert line["request_id"] == events[0].data["request_id"]
    assert line["trace_id"] == events[0].data["trace_id"]
    expected = {
        "tenant", "knowledge_base", "scope", "acl_revision", "release", "release_sequence", "space",
        "retrieval_config", "candidates", "permitted", "model", "exported", "close_reason", "status",
        "identify_ms", "authorize_ms", "bind_ms", "embed_ms", "retrieve_ms", "recheck_ms", "gate_ms",
        "generate_ms", "ttft_ms", "total_ms",
    }  # fmt: skip
    assert expected <= set(line)
    quoted = json.dumps(lines, default=str).lower()
    assert not [word for word in ("kingfisher", "combination", "heliotrope") if word in quoted]


async def test_the_audit_trail_says_who_was_shown_what_and_quotes_nothing() -> None:
    """Subject, scope digest, release, evidence ids, model and outcome of answers and refusals alike."""
    world = World(model=ScriptedModel(["Kingfisher [1]."]))
    await world.learn(TEXT)
    async with serving_world(world) as port:
        _, events = await ask(port, world.token(subject="ann"), QUESTION)
    (entry,) = await world.catalog.entries("acme", 10, "answer")
    assert entry.subject == "ann"
    assert entry.request_id == events[0].data["request_id"]
    details = dict(entry.details)
    sources = events[0].data["sources"]
    assert details["exported"] == [source["chunk_id"] for source in sources]
    assert details["documents"] == [f"{s['document_id']}@{s['document_version']}" for s in sources]
    assert details["model"] == "scripted"
    assert details["status"] == "ANSWERED"
    assert {"scope", "release", "candidates"} <= set(details)
    quoted = json.dumps(details).lower()
    assert not [word for word in ("kingfisher", "combination", "heliotrope") if word in quoted]


async def test_the_five_capacity_metrics_count_what_happened() -> None:
    """Questions, retrievals, generation starts, whole answers, active streams: each on its own."""
    world = World(model=ScriptedModel(["Kingfisher [1]."]))
    await world.learn(TEXT)
    async with serving_world(world) as port:
        await ask(port, world.token(), QUESTION)
        await ask(port, "no token", QUESTION)
        await ask(port, world.token(tenant="globex"), QUESTION)
        assert await metric(port, "gateway_questions_total") == 3
        assert await metric(port, "gateway_retrievals_total") == 1
        assert await metric(port, 'gateway_model_calls_total{kind="generation"}') == 1
        assert await metric(port, 'gateway_answers_total{status="ANSWERED"}') == 1
        assert await metric(port, "gateway_active_streams") == 0


async def test_who_is_turned_away_is_counted_and_told_when_to_come_again() -> None:
    """No place: a status with its budget in headers, a count; no audit entry, for nothing was looked at."""
    gate = Gate()
    world = World(
        model=ScriptedModel(["42 [1]."], hold={0: gate}), generation_concurrency=1, generation_wait_ms=0
    )
    await world.learn(TEXT)
    async with serving_world(world) as port, connected(port) as first:
        await first.ask(world.token(), QUESTION)
        await gate.reached.wait()
        head, _ = await ask(port, world.token(), QUESTION)
        gate.release.set()
        await first.all_events()
        assert head.status == 503
        assert head.headers["retry-after"] == "1"
        assert head.headers["ratelimit-policy"] == '"generation";q=1;qu="concurrent-requests"'
        assert head.headers["ratelimit"] == '"generation";r=0;t=1'
        assert await metric(port, 'gateway_rejections_total{stage="generation"}') == 1
        await world.registry.idle()
    assert len(await world.catalog.entries("acme", 10, "answer")) == 1


async def test_failures_and_a_process_that_leaves_are_counted() -> None:
    """Each by its code; who comes while it drains counts as turned away."""
    world = World(embedder=FixedEmbedder(error=EmbedderUnavailable()))
    await world.learn(TEXT)
    async with serving_world(world) as port:
        await ask(port, world.token(), QUESTION)
        world.registry.refuse_new()
        head, _ = await ask(port, world.token(), QUESTION)
        assert head.status == 503
        assert await metric(port, 'gateway_failures_total{code="embedder_unavailable"}') == 1
        assert await metric(port, 'gateway_rejections_total{stage="draining"}') == 1


@pytest.mark.parametrize("dimension", [32, 16])
async def test_a_question_of_another_embedding_space_is_refused(dimension: int) -> None:
    """Also when the dimensions agree: 503, no search, no model."""
    world = World(embedder=FixedEmbedder(space_id="other-v1", dimension=dimension))
    await world.learn(TEXT)
    async with serving_world(world) as port:
        head, _ = await ask(port, world.token(), QUESTION)
        assert head.status == 503
        assert await metric(port, "gateway_retrievals_total") == 0
    assert world.model.called == 0
