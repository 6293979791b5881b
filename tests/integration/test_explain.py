"""Why it ended like that: told to the asker and to operators, and never more than each may see now."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import anyio
from structlog.testing import capture_logs

from gateway.access.classes import Acl
from gateway.access.principal import Principal
from gateway.context import Deadline
from gateway.ingest.governance import AclChange
from gateway.observe.tracelog import Findings
from gateway.stream.revocation import RevocationKind
from tests.harness.serving import serving_world
from tests.harness.wire import connected, request
from tests.harness.world import World

PATIENCE_S = 60
LIMITS = "# Limits\n\nThe upload limit is 42 megabytes for every member of staff.\n"
SECRET = "# Vault\n\nThe upload limit of the vault is 7421 megabytes.\n"
QUESTION = "What is the upload limit?"
NOWHERE = "What is the upload limit of zebra E-991?"


@dataclass(frozen=True)
class Desk:
    """A served world, and callers with some groups and scopes."""

    world: World
    port: int

    async def send(self, method: str, path: str, token: str, **body: object) -> tuple[int, Any]:
        content = json.dumps(body).encode() if body else b""
        headers = {"Content-Type": "application/json"}
        head, answer = await request(self.port, method, path, token=token, body=content, headers=headers)
        return head.status, json.loads(answer) if answer else None

    async def ask(self, token: str, question: str) -> tuple[str, str, str]:
        """Request id, trace id and status."""
        async with connected(self.port) as wire:
            await wire.ask(token, question)
            events = await wire.all_events()
        await self.world.registry.idle()
        return events[0].data["request_id"], events[0].data["trace_id"], events[-1].data["status"]

    async def explain(self, token: str, **body: object) -> Any:
        status, told = await self.send("POST", "/v1/explain", token, **body)
        assert status == 200, told
        return told

    async def missing(self, token: str, **body: object) -> bool:
        status, problem = await self.send("POST", "/v1/explain", token, **body)
        return (status, problem["code"]) == (404, "not_found")

    async def change(self, source: str, allow: Sequence[str]) -> None:
        documents = await self.world.catalog.documents("acme", "handbook")
        [document_id] = [d.document_id for d in documents if d.source == source]
        acl = Acl.parse(allow, ())
        await self.world.catalog.set_acl(AclChange("acme", document_id, acl, "olga", 600))
        await self.world.services.feed.step()


@asynccontextmanager
async def desk(**settings: Any) -> AsyncIterator[Desk]:
    """Staff may see one document, the board two; ann is of both, bob of the staff."""
    world = World(**settings)
    await world.learn({"limits.md": LIMITS})
    await world.learn({"vault.md": SECRET}, allow=("group:board",))
    with anyio.fail_after(PATIENCE_S):
        async with serving_world(world) as port:
            yield Desk(world, port)


def ann(desk: Desk, *scopes: str) -> str:
    return desk.world.token(groups=("staff", "board"), scopes=scopes or ("ask",))


def bob(desk: Desk, *scopes: str) -> str:
    return desk.world.token(subject="bob", scopes=scopes or ("ask",))


async def test_a_reader_of_his_refusal_sees_why() -> None:
    """By either id, at once and after it was stored: reasons in words, and what was missing."""
    async with desk() as here:
        request_id, trace_id, status = await here.ask(bob(here), NOWHERE)
        assert status == "REFUSED_NO_EVIDENCE"
        told = await here.explain(bob(here), request_id=request_id)
        await here.world.services.traces.flush()
        assert await here.explain(bob(here), trace_id=trace_id) == told
        assert await here.world.catalog.trace("acme", request_id=request_id) is not None
    assert (told["kind"], told["outcome"], told["question"]) == ("answer", status, NOWHERE)
    assert told["explanation"] == "It was refused, for want of evidence."
    assert [one["code"] for one in told["reasons"]] == ["KEY_TERMS_NOT_COVERED"]
    assert all(one["explanation"] for one in told["reasons"])
    assert told["found"]["missing_words"] == ["zebra", "E-991"]
    assert told["found"]["passages"] == len(told["passages"]) == 1
    assert told["passages"][0]["preview"].startswith("The upload limit is 42")
    assert told["may_see"] == {"knowledge_bases": ["handbook"], "documents": 1, "more": False}
    assert "dropped" not in told["found"]
    assert "asked_by" not in told


async def test_every_threshold_of_the_gate_is_told_by_name_and_its_numbers_to_operators() -> None:
    """Of a question and of a trace, stored or not: they weigh words by how often documents have them."""
    async with desk() as here:
        request_id, _, _ = await here.ask(bob(here), NOWHERE)
        fresh = await here.explain(bob(here), question=NOWHERE)
        waiting = await here.explain(bob(here), request_id=request_id)
        await here.world.services.traces.flush()
        stored = await here.explain(bob(here), request_id=request_id)
        inside = await here.explain(bob(here, "ask", "operate"), request_id=request_id)
    for found in (fresh["found"], waiting["found"], stored["found"]):
        assert "score" not in found
        assert {one["passed"] for one in found["checks"]} == {True, False}
        assert all(set(one) == {"name", "passed"} for one in found["checks"])
    assert isinstance(inside["found"]["score"], float)
    assert all(set(one) == {"name", "passed", "value", "threshold"} for one in inside["found"]["checks"])


async def test_a_trace_is_missing_for_everybody_else() -> None:
    """Colleagues and other tenants, also with every scope there; unknown ids look the same."""
    async with desk() as here:
        request_id, trace_id, _ = await here.ask(ann(here), QUESTION)
        foreign = here.world.token("globex", groups=("board",), scopes=("ask", "operate"))
        for token in (bob(here), foreign):
            assert await here.missing(token, request_id=request_id)
            assert await here.missing(token, trace_id=trace_id)
        assert await here.missing(ann(here), request_id="req_of_nobody")
        assert await here.missing(foreign, request_id="req_of_nobody")
        await here.world.services.traces.flush()
        assert await here.missing(bob(here), request_id=request_id)
        assert await here.missing(foreign, trace_id=trace_id)


async def test_an_operator_sees_why_but_no_passage_that_he_may_not_see() -> None:
    """Counts of what the re-check dropped are for him; what he read is in the audit trail."""
    async with desk() as here:
        request_id, _, _ = await here.ask(ann(here), QUESTION)
        both = await here.explain(ann(here), request_id=request_id)
        told = await here.explain(bob(here, "operate"), request_id=request_id)
        outsider = here.world.token(subject="olga", groups=(), scopes=("operate",))
        nothing = await here.explain(outsider, request_id=request_id)
        [read, _] = await here.world.catalog.entries("acme", 10, "trace.read")
    assert {one["title"] for one in both["passages"]} == {"Limits", "Vault"}
    assert [one["title"] for one in told["passages"]] == ["Limits"]
    assert "7421" not in json.dumps(told)
    assert (told["asked_by"], told["found"]["passages"], told["found"]["dropped"]) == ("ann", 2, {})
    assert nothing["passages"] == []
    assert "Limits" not in json.dumps(nothing)
    assert (read.subject, read.details) == ("olga", {"request": request_id})


async def test_a_trace_forgets_for_its_asker_what_he_may_not_see_any_more() -> None:
    """Neither a passage nor a number tells of the document; a wider ACL brings it back."""
    async with desk() as here:
        request_id, _, _ = await here.ask(ann(here), QUESTION)
        before = await here.explain(ann(here), request_id=request_id)
        await here.change("vault.md", ["user:olga"])
        after = await here.explain(ann(here), request_id=request_id)
        reader = Principal("acme", "ann", frozenset({"staff", "board"}), frozenset({"ask"}), 4e9)
        deadline, explainer = Deadline.after(60_000), here.world.services.explainer
        record = await explainer.recorded(reader, deadline, request_id=request_id)
        left = await explainer.explain(reader, record, deadline)
        await here.change("vault.md", ["group:board"])
        assert await here.explain(ann(here), request_id=request_id) == before
    assert before["found"]["passages"] == 2
    one, found = before["search"], left.findings
    kept = Findings(mode=one["mode"], served_by=one["served_by"], fallback=found.fallback)
    assert found == replace(kept, passages=found.passages)
    assert [one["title"] for one in after["passages"]] == ["Limits"]
    assert after["found"] is None
    assert after["may_see"]["documents"] == 1
    assert "7421" not in json.dumps(after)
    assert "vault" not in json.dumps(after).lower()


async def test_a_candidate_that_is_not_quoted_counts_among_what_must_be_seen() -> None:
    """The numbers were counted over it as well."""
    async with desk(evidence_passages=1) as here:
        request_id, _, _ = await here.ask(ann(here), QUESTION)
        before = await here.explain(ann(here), request_id=request_id)
        [quoted] = before["passages"]
        await here.change("vault.md" if quoted["title"] == "Limits" else "limits.md", ["user:olga"])
        after = await here.explain(ann(here), request_id=request_id)
    assert before["found"]["passages"] == 2
    assert after["passages"] == [quoted]
    assert after["found"] is None


async def test_a_trace_of_a_knowledge_base_out_of_reach_is_missing() -> None:
    """After a revocation its name would tell that it is still there."""
    async with desk() as here:
        request_id, _, _ = await here.ask(ann(here), QUESTION)
        await here.world.catalog.revoke("acme", RevocationKind.KNOWLEDGE_BASE, "handbook", "closed", "olga")
        await here.world.services.feed.step()
        assert await here.missing(ann(here), request_id=request_id)
        told = await here.explain(bob(here, "operate"), request_id=request_id)
    assert told["passages"] == []


async def test_a_question_is_explained_without_asking_a_model() -> None:
    """What would be found for the caller now; nothing of it is kept."""
    async with desk() as here:
        told = await here.explain(bob(here), question=NOWHERE)
        good = await here.explain(bob(here), question=QUESTION, knowledge_base="handbook")
        assert here.world.model.called == 0
        assert await here.missing(bob(here), trace_id=told["trace_id"])
        here.world.assert_nothing_held()
    assert [one["code"] for one in told["reasons"]] == ["KEY_TERMS_NOT_COVERED"]
    assert (good["outcome"], good["reasons"]) == ("sufficient", [])
    assert [one["title"] for one in good["passages"]] == ["Limits"]


async def test_a_question_to_explain_is_bound_like_any_other() -> None:
    """A knowledge base that the caller may not see is missing; one of the three ways is given."""
    async with desk() as here:
        stranger = here.world.token(subject="eve", groups=())
        for body in ({"question": QUESTION}, {"question": QUESTION, "knowledge_base": "handbook"}):
            status, problem = await here.send("POST", "/v1/explain", stranger, **body)
            assert (status, problem["code"]) == (404, "knowledge_base_not_found")
        for wrong in (
            {"knowledge_base": "handbook"},
            {"request_id": "a", "trace_id": "b"},
            {"request_id": "a", "knowledge_base": "handbook"},
            {"request_id": ""},
        ):
            status, problem = await here.send("POST", "/v1/explain", bob(here), **wrong)
            assert (status, problem["code"]) == (400, "invalid_field"), wrong
        status, _ = await here.send("POST", "/v1/explain", bob(here, "operate"), question=QUESTION)
        assert status == 403


async def test_a_search_leaves_a_trace_as_well() -> None:
    """By the trace id of its answer, with what was asked for."""
    async with desk() as here:
        _, found = await here.send("GET", "/v1/search?query=upload+limit&mode=sdk", bob(here))
        told = await here.explain(bob(here), trace_id=found["trace_id"])
    assert (told["kind"], told["question"], told["outcome"]) == ("search", "upload limit", found["relevance"])
    assert told["search"]["mode"] == "sdk"
    assert [one["chunk_id"] for one in told["passages"]] == [r["chunk_id"] for r in found["results"]]


async def test_a_deleted_document_leaves_every_trace() -> None:
    """Its clean-up takes what was stored, and what is stored later quotes nothing of it."""
    async with desk() as here:
        first, _, _ = await here.ask(bob(here), QUESTION)
        await here.world.services.traces.flush()
        late, _, _ = await here.ask(bob(here), QUESTION)
        [document, _] = await here.world.catalog.documents("acme", "handbook")
        task_id = await here.world.catalog.delete_document("acme", document.document_id)
        await here.world.work()
        task = await here.world.catalog.task("acme", task_id)
        await here.world.services.traces.flush()
        kept = [await here.world.catalog.trace("acme", request_id=one) for one in (first, late)]
    assert task.report["removed"]["quotes"] == 1
    assert [one.findings.passages for one in kept] == [(), ()]


async def test_people_erase_their_own_traces_and_operators_anybody_s() -> None:
    """Stored or not yet; nobody else's without that scope."""
    async with desk() as here:
        own, _, _ = await here.ask(ann(here), QUESTION)
        await here.ask(bob(here), QUESTION)
        status, _ = await here.send("DELETE", "/v1/traces?subject=bob", ann(here))
        assert status == 403
        assert await here.send("DELETE", "/v1/traces", ann(here)) == (200, {"erased": 1, "turns": 0})
        assert await here.missing(ann(here), request_id=own)
        operator = here.world.token(subject="olga", scopes=("operate",))
        assert await here.send("DELETE", "/v1/traces?subject=bob", operator) == (
            200,
            {"erased": 1, "turns": 0},
        )
        foreign = here.world.token("globex", subject="olga", scopes=("operate",))
        assert await here.send("DELETE", "/v1/traces?subject=ann", foreign) == (
            200,
            {"erased": 0, "turns": 0},
        )


async def test_no_log_holds_what_a_trace_holds() -> None:
    """Neither question nor passage; without days to keep them there are no traces at all."""
    async with desk(trace_days=0) as here:
        with capture_logs() as lines:
            request_id, _, _ = await here.ask(bob(here), NOWHERE)
            await here.explain(bob(here), question=NOWHERE)
        assert await here.missing(bob(here), request_id=request_id)
    written = json.dumps(lines, default=str)
    assert "answer.ended" in written
    assert "zebra" not in written
    assert "megabytes" not in written
