"""The HTTP surface as a client meets it: fields, scores, life cycles, revocations, limits, headers.

On twins and on both sides' real parts where a part has a say. Scores at chosen angles, series, headers and
full bulkheads are the gateway's own doing, so twins are enough.
"""

import json
import math
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from gateway.access.principal import SCOPES
from gateway.adapters.memory.models import FixedEmbedder, Gate, ScriptedModel
from gateway.context import Deadline
from gateway.retrieval.chunk import embedded_text
from gateway.web.middleware import CONTENT_SECURITY_POLICY
from tests.acceptance.doors import JSON, MULTIPART, json_body, upload_body
from tests.harness.grounds import MemoryWorlds, Worlds
from tests.harness.serving import serving_world
from tests.harness.wire import Head, connected, request
from tests.harness.wire import ask as ask_wire
from tests.harness.world import World

ALL_SCOPES = tuple(SCOPES)
QUESTION = "What is the upload limit?"
LIMITS = "# Limits\n\nThe upload limit is 42 megabytes for every member of staff.\n"
OTHERS = {"parking.md": "# Parking\n\nThe garage closes at nine in the evening.\n"}
PATIENCE_S = 60

pytestmark = pytest.mark.asyncio(loop_scope="session")


@dataclass(frozen=True)
class Api:
    """One caller with every scope, unless a call names another token."""

    world: World
    port: int

    async def send(
        self, method: str, path: str, body: Mapping[str, object] | bytes | None = None, **arguments: Any
    ) -> tuple[Head, Any]:
        token = arguments.pop("token", self.world.token(scopes=ALL_SCOPES))
        headers = arguments.pop("headers", {"Content-Type": JSON})
        raw = body if isinstance(body, bytes) else b"" if body is None else json_body(**body)
        head, answer = await request(
            self.port, method, path, token=token, body=raw, headers=headers, **arguments
        )
        return head, json.loads(answer) if answer else None

    async def get(self, path: str, **arguments: Any) -> Any:
        head, body = await self.send("GET", path, **arguments)
        assert head.status == 200, body
        return body

    async def upload(
        self, fields: dict[str, str | list[str]] | None = None, *, key: str | None = None, **content: Any
    ) -> tuple[Head, Any]:
        headers = {"Content-Type": MULTIPART} | ({} if key is None else {"Idempotency-Key": key})
        token = content.pop("token", self.world.token(scopes=ALL_SCOPES))
        return await self.send(
            "POST", "/v1/documents", upload_body(fields, **content), headers=headers, token=token
        )

    async def ask(self, **arguments: Any) -> tuple[int, str]:
        """Status, and the code of the problem or the answer's status."""
        async with connected(self.port) as wire:
            await wire.ask(self.world.token(**arguments), QUESTION)
            head = await wire.read_head()
            if head.status != 200:
                return head.status, (await wire.json())["code"]
            events = await wire.all_events()
            return 200, events[-1].data["status"]

    async def only_document(self) -> str:
        (document,) = (await self.get("/v1/documents?knowledge_base=handbook"))["documents"]
        return str(document["document_id"])


@asynccontextmanager
async def api(worlds: Worlds | None = None, **options: Any) -> AsyncIterator[Api]:
    """Over twins, unless told otherwise."""
    with anyio.fail_after(PATIENCE_S):
        async with (worlds or MemoryWorlds()).world(**options) as world, serving_world(world) as port:
            await world.learn({"limits.md": LIMITS})
            yield Api(world, port)


# -- search and sources ----------------------------------------------------------------------------

RESULT_FIELDS = {
    *("chunk_id", "document_id", "document_version", "title", "section", "page", "uri", "content", "risk"),
    *("score", "raw_score", "score_label", "hit_reason"),
}


async def test_a_search_result_has_every_field_of_the_contract(worlds: Worlds) -> None:
    """Nothing more either: what isn't in the contract is no promise. The gate's number is for operators."""
    async with api(worlds) as gateway:
        body = await gateway.get("/v1/search?query=upload+limit", token=gateway.world.token())
        shown = await gateway.get("/v1/search?query=upload+limit")
    assert set(body) == {"results", "hints", "mode", "served_by", "fallback", "relevance", "trace_id"}
    assert set(shown) - set(body) == {"gate"}
    assert shown["gate"]["score"] >= 0
    assert shown["gate"]["reasons"] == []
    assert (body["mode"], body["served_by"]) == ("auto", "sdk")
    assert body["fallback"] in {"embedded_store", "not_installed"}
    assert body["relevance"] == "sufficient"
    (result,) = body["results"]
    assert set(result) == RESULT_FIELDS
    assert (result["title"], result["uri"], result["document_version"]) == ("Limits", "limits.md", 1)
    assert "42 megabytes" in result["content"]


#: cosine of the question to the only passage -> its squared distance
ANGLES = {
    "equal": (1.0, 0.0),
    "acute": (0.8, 0.4),
    "orthogonal": (-1e-5, 2.00002),  # stored vectors are rounded, so no computed right angle is exact
    "obtuse": (-0.6, 3.2),
    "opposite": (-1.0, 4.0),
}


def at_angle(vector: Sequence[float], cosine: float) -> tuple[float, ...]:
    """A unit vector with this cosine to the given unit vector."""
    across = [0.0] * len(vector)
    across[0], across[1] = -vector[1], vector[0]
    length = math.hypot(across[0], across[1])
    sine = math.sqrt(1 - cosine * cosine)
    return tuple(cosine * v + sine * a / length for v, a in zip(vector, across, strict=True))


async def stored_vector() -> tuple[float, ...]:
    """The vector of the only passage, made from what search shows of it."""
    async with api() as gateway:
        (result,) = (await gateway.get("/v1/search?query=upload"))["results"]
    text = embedded_text(result["title"], result["section"], result["content"])
    (vector,) = await FixedEmbedder().embed([text], Deadline.after(1000))
    return tuple(vector)


@pytest.mark.parametrize(("cosine", "distance"), ANGLES.values(), ids=ANGLES)
async def test_a_score_is_the_squared_distance_of_unit_vectors(cosine: float, distance: float) -> None:
    """2 - 2 cos: smaller is nearer; the similarity itself is never shown as a score."""
    query = at_angle(await stored_vector(), cosine)
    async with api(embedder=FixedEmbedder(vectors={"upload": query, QUESTION: query})) as gateway:
        body = await gateway.get("/v1/search?query=upload")
        outcome = await gateway.ask()
    (result,) = body["results"]
    assert result["score"] == pytest.approx(distance, abs=1e-6)
    assert result["score_label"] == "rrf"
    assert result["raw_score"] == pytest.approx(1 / 61 + 2 / 61)
    assert result["hit_reason"] == "dense #1, bm25 #1"
    assert body["relevance"] == ("sufficient" if cosine > 0.1 else "weak")
    assert outcome == (200, "ANSWERED" if cosine > 0.1 else "REFUSED_NO_EVIDENCE")


async def test_a_hit_of_the_words_alone_has_no_distance() -> None:
    """With one candidate a route, the dense route finds one passage and BM25 another."""
    texts = {"alpha.md": "alpha beta gamma delta", "omega.md": "omega sigma tau upsilon"}
    embedder = FixedEmbedder()
    (near_omega,) = await embedder.embed(["omega\nomega sigma tau upsilon"], Deadline.after(1000))
    world = World(candidates=1, embedder=FixedEmbedder(vectors={"alpha beta": near_omega}))
    await world.learn(texts)
    async with serving_world(world) as port:
        body = await Api(world, port).get("/v1/search?query=alpha+beta")
    by_uri = {result["uri"]: result for result in body["results"]}
    assert by_uri["alpha.md"]["score"] is None
    assert by_uri["alpha.md"]["hit_reason"] == "bm25 #1"
    assert by_uri["omega.md"]["score"] == pytest.approx(0, abs=1e-6)
    assert by_uri["omega.md"]["hit_reason"] == "dense #1"


async def test_search_keeps_rank_order_top_k_and_category(worlds: Worlds) -> None:
    """Best first by raw score; the category filters, it doesn't boost."""
    async with worlds.world() as world, serving_world(world) as port:
        await world.learn({f"limit{i}.md": f"{LIMITS}{'filler ' * i}" for i in range(9)}, category="rules")
        await world.learn(OTHERS, category="house")
        gateway = Api(world, port)
        ranked = [r["raw_score"] for r in (await gateway.get("/v1/search?query=limit"))["results"]]
        assert len(ranked) == world.settings.top_k
        assert ranked == sorted(ranked, reverse=True)
        assert len((await gateway.get("/v1/search?query=limit&top_k=3"))["results"]) == 3
        for category, uris in (("house", ["parking.md"]), ("none", [])):
            found = (await gateway.get(f"/v1/search?query=limit&category={category}"))["results"]
            assert [result["uri"] for result in found] == uris


async def test_a_source_is_checked_again_each_time_it_is_looked_at(worlds: Worlds) -> None:
    """The chip of an old answer shows nothing once the document was revoked or deleted."""
    async with api(worlds) as gateway:
        (result,) = (await gateway.get("/v1/search?query=limit"))["results"]
        path = f"/v1/sources/{result['chunk_id']}"
        passage = await gateway.get(path)
        assert passage == {name: result[name] for name in passage}
        outsider = gateway.world.token(groups=["visitors"])
        unknown = await gateway.send("GET", "/v1/sources/none", token=outsider)
        assert (await gateway.send("GET", path, token=outsider))[1] == unknown[1]
        revocation = await revoke(gateway, "document", result["document_id"])
        assert (await gateway.send("GET", path))[0].status == 404
        await gateway.send("POST", f"/v1/revocations/{revocation}/lift")
        assert await gateway.get(path) == passage
        head, _ = await gateway.send("DELETE", f"/v1/documents/{result['document_id']}")
        assert head.status == 204
        assert (await gateway.send("GET", path))[0].status == 404


# -- documents and tasks -----------------------------------------------------------------------------


async def test_a_document_is_accepted_built_listed_and_deleted(worlds: Worlds) -> None:
    """202 with its id; the task ends SUCCEEDED; the release with it is active; then it is gone at once."""
    async with api(worlds) as gateway:
        head, accepted = await gateway.upload(
            {"activate": "true", "category": "rules", "deny": "group:temps"}
        )
        assert head.status == 202
        (document,) = accepted["documents"]
        assert set(document) == {"document_id", "document_version", "source"}
        assert (document["document_version"], document["source"]) == (1, "note.md")
        await gateway.world.work()
        task = await gateway.get(f"/v1/tasks/{accepted['task_id']}")
        assert (task["kind"], task["state"], task["error"]) == ("import", "SUCCEEDED", None)
        assert [d["state"] for d in task["documents"]] == ["READY"]
        found = await gateway.get(f"/v1/documents/{document['document_id']}")
        assert (found["source"], found["category"], found["state"]) == ("note.md", "rules", "READY")
        assert (found["allow"], found["deny"]) == (["group:staff"], ["group:temps"])
        listed = (await gateway.get("/v1/documents?knowledge_base=handbook"))["documents"]
        assert [d["source"] for d in listed] == ["limits.md", "note.md"]
        assert listed[1] == found
        path = f"/v1/documents/{document['document_id']}"
        assert (await gateway.send("DELETE", path))[0].status == 204
        assert (await gateway.send("GET", path))[0].status == 404
        assert (await gateway.send("DELETE", path))[0].status == 404
        results = (await gateway.get("/v1/search?query=archive"))["results"]
        assert [result["uri"] for result in results] == ["limits.md"]


async def test_the_same_upload_is_the_same_version_and_other_bytes_are_the_next(worlds: Worlds) -> None:
    """Same knowledge base and source: one document."""
    async with api(worlds) as gateway:
        first = (await gateway.upload())[1]["documents"][0]
        again = (await gateway.upload())[1]["documents"][0]
        other = (await gateway.upload(content=b"# Note\n\nThe code is 9999 now.\n"))[1]["documents"][0]
    assert first == again
    assert (other["document_id"], other["document_version"]) == (first["document_id"], 2)


async def test_an_idempotency_key_names_one_upload(worlds: Worlds) -> None:
    """The same request gets the same answer, another one 422; another tenant's key is another key."""
    async with api(worlds) as gateway:
        _, first = await gateway.upload(key="k-1")
        head, again = await gateway.upload(key="k-1")
        assert (head.status, again) == (202, first)
        head, problem = await gateway.upload({"deny": "group:temps"}, key="k-1")
        assert (head.status, problem["code"]) == (422, "idempotency_mismatch")
        stranger = gateway.world.token("globex", scopes=ALL_SCOPES)
        head, other = await gateway.upload(key="k-1", token=stranger)
        assert head.status == 202
        assert other["task_id"] != first["task_id"]


async def test_a_waiting_task_can_be_cancelled_once(worlds: Worlds) -> None:
    """202, and it never runs; afterwards there is nothing left to cancel."""
    async with api(worlds) as gateway:
        _, accepted = await gateway.upload()
        path = f"/v1/tasks/{accepted['task_id']}"
        before = await gateway.get(path)
        assert (before["state"], before["progress"]["done"]) == ("PENDING", 0)
        assert (await gateway.send("DELETE", path))[0].status == 202
        await gateway.world.work()
        assert (await gateway.get(path))["state"] == "CANCELLED"
        assert (await gateway.send("DELETE", path))[0].status == 404


# -- releases -----------------------------------------------------------------------------------------


async def test_a_release_is_built_activated_and_rolled_back(worlds: Worlds) -> None:
    """Sequences only rise; the wrong expectation is a conflict and changes nothing."""
    async with api(worlds) as gateway:
        await gateway.upload()
        head, accepted = await gateway.send("POST", "/v1/releases", {"knowledge_base": "handbook"})
        assert head.status == 202
        await gateway.world.work()
        task = await gateway.get(f"/v1/tasks/{accepted['task_id']}")
        assert (task["kind"], task["state"]) == ("release", "SUCCEEDED")
        before = await releases(gateway)
        assert [r["state"] for r in before] == ["READY", "ACTIVE"]
        assert (before[0]["documents"], before[0]["release_id"]) == (2, task["release_id"])
        path = f"/v1/releases/{task['release_id']}/activate"
        head, problem = await gateway.send("POST", path, {"expected_sequence": 7})
        assert (head.status, problem["code"]) == (409, "release_conflict")
        assert await releases(gateway) == before
        head, active = await gateway.send("POST", path, {"expected_sequence": 1})
        assert (head.status, active["release_sequence"]) == (200, 2)
        assert set(active) == {"knowledge_base", "knowledge_revision", "release_sequence"}
        assert active["knowledge_revision"] == before[0]["knowledge_revision"]
        head, back = await gateway.send("POST", "/v1/releases/rollback", {"knowledge_base": "handbook"})
        assert (head.status, back["release_sequence"]) == (200, 3)
        assert back["knowledge_revision"] == before[1]["knowledge_revision"]
        assert [r["state"] for r in await releases(gateway)] == ["RETIRED", "ACTIVE"]
        results = (await gateway.get("/v1/search?query=archive"))["results"]
        assert [result["uri"] for result in results] == ["limits.md"]


async def test_there_is_nothing_to_roll_back_to_after_one_release(worlds: Worlds) -> None:
    """409, not an empty knowledge base."""
    async with api(worlds) as gateway:
        head, problem = await gateway.send("POST", "/v1/releases/rollback", {"knowledge_base": "handbook"})
        assert (head.status, problem["code"]) == (409, "release_conflict")
        assert await gateway.ask() == (200, "ANSWERED")


async def releases(gateway: Api) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = (await gateway.get("/v1/releases?knowledge_base=handbook"))["releases"]
    return listed


# -- revocations --------------------------------------------------------------------------------------

REVOKED: dict[str, tuple[str, tuple[int, str]]] = {
    "user": ("ann", (403, "principal_revoked")),
    "group": ("staff", (404, "knowledge_base_not_found")),
    "document": ("", (200, "REFUSED_NO_EVIDENCE")),
    "knowledge_base": ("handbook", (404, "knowledge_base_not_found")),
}


async def revoke(gateway: Api, kind: str, subject: str) -> str:
    body = {"kind": kind, "id": subject, "reason": "a test"}
    operator = gateway.world.token(subject="operator", groups=(), scopes=ALL_SCOPES)
    head, answer = await gateway.send("POST", "/v1/revocations", body, token=operator)
    assert head.status == 201
    assert set(answer) == {"revocation_id", "revocation_epoch", "task_id"}
    return str(answer["revocation_id"])


@pytest.mark.parametrize("kind", REVOKED)
async def test_a_revocation_blocks_the_next_question_and_a_lift_restores_it(
    worlds: Worlds, kind: str
) -> None:
    """At once, without a model call, and only while it is in force; revoking twice is one revocation."""
    subject, expected = REVOKED[kind]
    async with api(worlds) as gateway:
        subject = subject or await gateway.only_document()
        assert await gateway.ask() == (200, "ANSWERED")
        revocation = await revoke(gateway, kind, subject)
        assert await revoke(gateway, kind, subject) == revocation
        called = gateway.world.model.called
        assert await gateway.ask() == expected
        assert gateway.world.model.called == called
        operator = gateway.world.token(subject="operator", scopes=ALL_SCOPES)
        listed = (await gateway.get("/v1/revocations", token=operator))["revocations"]
        assert [(r["revocation_id"], r["kind"], r["id"]) for r in listed] == [(revocation, kind, subject)]
        assert (listed[0]["reason"], listed[0]["revoked_by"]) == ("a test", "operator")
        assert listed[0]["lifted_at"] is None
        path = f"/v1/revocations/{revocation}/lift"
        head, lifted = await gateway.send("POST", path, token=operator)
        assert head.status == 200
        assert lifted["lifted_at"] is not None
        assert await gateway.ask() == (200, "ANSWERED")


@pytest.mark.parametrize("kind", ["user", "group"])
async def test_a_revoked_name_touches_nobody_else(worlds: Worlds, kind: str) -> None:
    """Names are compared whole: `an` and `Ann` aren't `ann`, and another tenant's ann stays."""
    async with api(worlds) as gateway:
        for other in ("an", "Ann", "annn", "staf", "STAFF"):
            await revoke(gateway, kind, other)
        assert await gateway.ask() == (200, "ANSWERED")
        stranger = gateway.world.token("globex", subject="operator", scopes=ALL_SCOPES)
        body = {"kind": kind, "id": "ann" if kind == "user" else "staff", "reason": "elsewhere"}
        assert (await gateway.send("POST", "/v1/revocations", body, token=stranger))[0].status == 201
        assert await gateway.ask() == (200, "ANSWERED")


# -- sessions -----------------------------------------------------------------------------------------


async def test_an_operator_sees_and_kills_a_running_answer(worlds: Worlds) -> None:
    """Listed without its question; killed once; the stream ends with `killed`."""
    gate = Gate()
    async with api(worlds, model=ScriptedModel(["The limit ", "is 42 [1]."], hold={1: gate})) as gateway:
        async with connected(gateway.port) as wire:
            await wire.ask(gateway.world.token(), QUESTION)
            await gate.reached.wait()
            (session,) = (await gateway.get("/v1/sessions"))["sessions"]
            assert time.time() - session.pop("started_at") < 60
            assert session == {
                "request_id": gateway.world.registry.only_request_id(),
                "subject": "ann",
                "streaming": True,
                "documents": 1,
                "process": "serve",
            }
            path = f"/v1/sessions/{session['request_id']}"
            assert (await gateway.send("DELETE", path))[0].status == 204
            events = await wire.all_events()
            assert (events[-1].name, events[-1].data["code"]) == ("error", "killed")
        await gateway.world.registry.idle()
        assert (await gateway.send("DELETE", path))[0].status == 404
        assert await gateway.get("/v1/sessions") == {"sessions": [], "processes": ["serve"]}


@pytest.mark.parametrize("subject", ["bob", "Ann", "ann2"])
async def test_only_the_asker_stops_an_answer(worlds: Worlds, subject: str) -> None:
    """Somebody else of the same tenant gets the 404 of an unknown id, and the answer goes on."""
    gate = Gate()
    async with api(worlds, model=ScriptedModel(["The limit ", "is 42 [1]."], hold={1: gate})) as gateway:
        async with connected(gateway.port) as wire:
            await wire.ask(gateway.world.token(), QUESTION)
            await gate.reached.wait()
            path = f"/v1/answers/{gateway.world.registry.only_request_id()}"
            other = gateway.world.token(subject=subject)
            foreign = await gateway.send("DELETE", path, token=other)
            unknown = await gateway.send("DELETE", "/v1/answers/none", token=other)
            assert (foreign[0].status, foreign[1]) == (404, unknown[1])
            gate.release.set()
            assert (await wire.all_events())[-1].name == "done"


# -- health and metrics --------------------------------------------------------------------------------

SERIES = (
    "gateway_questions_total",
    "gateway_retrievals_total",
    *(f'gateway_model_calls_total{{kind="{kind}"}}' for kind in ("generation", "rewrite", "moderation")),
    *(f'gateway_answers_total{{status="{status}"}}' for status in ("ANSWERED", "REFUSED_NO_EVIDENCE")),
    "gateway_active_streams",
    *(
        f'gateway_bulkhead_in_use{{name="{name}"}}'
        for name in ("embedding", "retrieval", "generation", "sessions")
    ),
    *(
        f'gateway_rejections_total{{stage="{stage}"}}'
        for stage in ("rate", "quota", "sessions", "generation", "embedding", "retrieval", "draining")
    ),
    *(
        f'gateway_stage_seconds_count{{stage="{stage}"}}'
        for stage in ("identify", "authorize", "bind", "embed", "retrieve", "recheck", "gate", "generate")
    ),
    *(
        f'gateway_cancels_total{{reason="{reason}"}}'
        for reason in ("client_gone", "client_stop", "operator_kill", "deadline", "revoked", "upstream")
    ),
    "gateway_tokens_after_cancel_total",
    "gateway_revocation_stop_seconds_count",
    "gateway_first_token_seconds_count",
    "gateway_completion_seconds_count",
    "gateway_cancel_seconds_count",
    "gateway_client_ack_seconds_count",
    *(
        f'gateway_recheck_drops_total{{reason="{reason}"}}'
        for reason in ("acl", "revoked", "deleted", "expired")
    ),
    *(f'gateway_cache_total{{result="{result}"}}' for result in ("hit", "miss")),
    *(f'gateway_flight_members_total{{role="{role}"}}' for role in ("leader", "follower")),
    *(f'gateway_makings_total{{result="{result}"}}' for result in ("generation", "refusal")),
    *(f'gateway_model_tokens_total{{kind="{kind}"}}' for kind in ("input", "output", "rewrite_input")),
    *(f'gateway_rewrites_total{{result="{result}"}}' for result in ("used", "too_slow", "strayed")),
)


async def metrics(gateway: Api) -> dict[str, float]:
    _, body = await request(gateway.port, "GET", "/metrics")
    lines = [line for line in body.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


async def test_every_series_exists_at_zero_from_the_start() -> None:
    """A scraper never meets a series that begins at 1, and no label tells of tenants or people."""
    async with api() as gateway:
        before = await metrics(gateway)
        assert {name: before.get(name) for name in SERIES} == dict.fromkeys(SERIES, 0.0)
        labels = {label for name in before for label in re.findall(r'(\w+)="', name)}
        assert labels <= {"kind", "status", "name", "stage", "reason", "result", "code", "path", "role", "le"}
        await gateway.ask()
        after = await metrics(gateway)
        assert set(after) == set(before)
        changed = {name for name in SERIES if after[name] != before[name]}
        assert {
            "gateway_questions_total",
            "gateway_retrievals_total",
            'gateway_model_calls_total{kind="generation"}',
            'gateway_answers_total{status="ANSWERED"}',
        } <= changed
        assert after["gateway_active_streams"] == 0


async def test_health_is_about_the_process_and_readiness_about_its_parts() -> None:
    """Open to anybody; draining turns readiness off and leaves health alone."""
    async with api() as gateway:
        for path, expected in (("/healthz", {"status": "ok"}), ("/readyz", None)):
            head, body = await gateway.send("GET", path, token=None)
            assert head.status == 200
            assert expected is None or body == expected
        gateway.world.registry.refuse_new()
        head, body = await gateway.send("GET", "/readyz", token=None)
        assert (head.status, body["ready"], body["parts"]["accepting"]) == (503, False, False)
        assert (await gateway.send("GET", "/healthz", token=None))[0].status == 200
        assert await gateway.ask() == (503, "shutting_down")


# -- headers and limits ---------------------------------------------------------------------------------

EVERYWHERE = ("/", "/healthz", "/readyz", "/metrics", "/v1/search?query=limit", "/none", "/static/none")


@pytest.mark.parametrize("path", EVERYWHERE)
async def test_every_answer_carries_the_safety_headers(path: str) -> None:
    """Pages, problems, JSON and metrics alike; nothing names the server's software."""
    async with api() as gateway:
        head, _ = await request(gateway.port, "GET", path, token=gateway.world.token())
    assert head.headers["x-content-type-options"] == "nosniff"
    assert head.headers["referrer-policy"] == "no-referrer"
    assert head.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert "access-control-allow-origin" not in head.headers


async def test_a_stream_has_the_headers_that_keep_it_a_stream() -> None:
    """No store, no buffering, no coding; X-Request-Id is the one in meta and new for each question."""
    async with api() as gateway:
        seen = set()
        for _ in range(2):
            head, events = await ask_wire(gateway.port, gateway.world.token(), QUESTION)
            assert head.headers["content-type"].startswith("text/event-stream")
            assert head.headers["cache-control"] == "no-store"
            assert head.headers["x-accel-buffering"] == "no"
            assert "content-encoding" not in head.headers
            assert head.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
            assert head.headers["x-request-id"] == events[0].data["request_id"]
            seen.add(head.headers["x-request-id"])
        assert len(seen) == 2


async def test_a_client_cannot_choose_its_request_id() -> None:
    """The id is the server's: quotas and stops hang on it."""
    async with api() as gateway:
        body, headers = json_body(question=QUESTION), {"Content-Type": JSON, "X-Request-Id": "mine"}
        head, _ = await request(
            gateway.port, "POST", "/v1/answers", token=gateway.world.token(), body=body, headers=headers
        )
        assert re.fullmatch(r"req_[0-9a-f]{32}", head.headers["x-request-id"])


async def test_a_problem_names_its_request_too() -> None:
    """Header and body agree."""
    async with api() as gateway:
        head, problem = await gateway.send("POST", "/v1/answers", {"question": ""})
        assert problem["request_id"] == head.headers["x-request-id"]


async def test_the_rate_is_counted_for_each_caller() -> None:
    """429 rate_limited with Retry-After; another subject and another tenant have buckets of their own."""
    async with api(requests_per_minute=3) as gateway:
        answers = [await gateway.ask() for _ in range(4)]
        assert answers == [(200, "ANSWERED")] * 3 + [(429, "rate_limited")]
        head, problem = await gateway.send("GET", "/v1/search?query=limit")
        assert (head.status, problem["code"], head.headers["retry-after"]) == (429, "rate_limited", "20")
        assert await gateway.ask(subject="bob") == (200, "ANSWERED")
        assert (await gateway.ask(tenant="globex"))[0] == 404
        assert (await metrics(gateway))['gateway_rejections_total{stage="rate"}'] >= 1


FULL: dict[str, tuple[dict[str, int], str]] = {
    "sessions": ({"sse_sessions": 1}, "sessions"),
    "generation": ({"generation_concurrency": 1, "generation_wait_ms": 0}, "generation"),
}


@pytest.mark.parametrize(("settings", "stage"), FULL.values(), ids=FULL)
async def test_a_full_bulkhead_turns_away_at_once(settings: dict[str, int], stage: str) -> None:
    """503 overloaded with Retry-After, before any embedding; the place is usable again afterwards."""
    gate = Gate()
    model = ScriptedModel(["The limit is 42 [1]."], hold={0: gate})
    async with api(None, model=model, **settings) as gateway:
        async with connected(gateway.port) as wire:
            await wire.ask(gateway.world.token(), QUESTION)
            await gate.reached.wait()
            embedded = gateway.world.embedder.calls
            head, problem = await gateway.send("POST", "/v1/answers", {"question": QUESTION})
            assert (head.status, problem["code"]) == (503, "overloaded")
            assert int(head.headers["retry-after"]) >= 1
            assert gateway.world.embedder.calls == embedded
            assert (await metrics(gateway))[f'gateway_rejections_total{{stage="{stage}"}}'] == 1
            gate.release.set()
            assert (await wire.all_events())[-1].name == "done"
        await gateway.world.registry.idle()
        assert await gateway.ask() == (200, "ANSWERED")
        await gateway.world.registry.idle()
        gateway.world.assert_nothing_held()
