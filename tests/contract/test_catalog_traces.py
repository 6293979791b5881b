"""Contract of TraceStore: traces come back whole to their own tenant, and lose what was deleted."""

from dataclasses import replace

import pytest

from gateway.access.authorizer import DocumentRef
from gateway.access.classes import Acl
from gateway.errors import StaleFence
from gateway.ingest.task import Ending, TaskClaim, TaskKind, TaskState
from gateway.observe.tracelog import NOTHING_FOUND, Findings, TracedCheck, TracedPassage, TraceRecord
from tests.contract.catalog_world import HOSTILE_NAMES, World, upload

pytestmark = pytest.mark.asyncio(loop_scope="module")


def passage(ref: DocumentRef, n: int = 1, text: str = "The limit is 42.") -> TracedPassage:
    return TracedPassage(
        n=n,
        chunk_id=f"chunk {n}",
        document_id=ref.document_id,
        document_version=ref.document_version,
        title="Limits 手册",
        section="Limits > Upload",
        page=3,
        score=0.25,
        raw_score=1.5,
        score_label="rerank",
        hit_reason="dense #1",
        preview=text,
    )


def found(*refs: DocumentRef) -> Findings:
    """A passage of each, and a document more that none is quoted of."""
    return Findings(
        mode="auto",
        served_by="sdk",
        fallback="embedded_store",
        category="hr",
        candidates=len(refs),
        dropped={"acl": 2, "expired": 1},
        documents=(*refs, DocumentRef("doc_other", 7)),
        passages=tuple(passage(ref, n) for n, ref in enumerate(refs, start=1)),
        hints=("E-42",),
        reranker="linear/1",
        rerank_skipped="too_slow",
        relevance="weak",
        score=-0.125,
        checks=(TracedCheck("similarity", True, 0.5, 0.25), TracedCheck("key_terms", False)),
        missing=("zebra", "斑马"),
    )


def record(
    world: World, number: int = 1, tenant: str = "acme", findings: Findings = NOTHING_FOUND
) -> TraceRecord:
    return TraceRecord(
        trace_id=f"{tenant} trace {number}",
        request_id=f"request {number}",
        at=world.clock(),
        tenant=tenant,
        subject="ann",
        kind="answer",
        kb_id="kb_1",
        knowledge_base="handbook",
        release_id="rel_1",
        release_sequence=4,
        config="config/1",
        question="What is the limit for E-42?",
        searched="",
        outcome="REFUSED_NO_EVIDENCE",
        reasons=("BELOW_THRESHOLD", "KEY_TERMS_NOT_COVERED"),
        findings=findings,
        timings={"embed_ms": 1.5},
        told="shared",
        rewritten_by="model",
    )


async def kept(world: World, number: int = 1, tenant: str = "acme") -> TraceRecord | None:
    return await world.catalog.trace(tenant, request_id=f"request {number}")


async def test_a_trace_comes_back_whole_by_both_of_its_ids(world: World) -> None:
    """Every field of it, its passages in order."""
    whole = record(world, findings=found(DocumentRef("doc_a", 1), DocumentRef("doc_b", 2)))
    await world.catalog.append_traces([whole])
    assert await kept(world) == whole
    assert await world.catalog.trace("acme", trace_id=whole.trace_id) == whole
    assert await world.catalog.trace("acme", request_id="another") is None
    assert await world.catalog.trace("acme", trace_id="another") is None


async def test_a_trace_is_never_found_from_another_tenant(world: World) -> None:
    """By no id of it; equal request ids of two tenants are two traces."""
    await world.catalog.append_traces([record(world), record(world, tenant="globex")])
    assert await world.catalog.trace("globex", trace_id="acme trace 1") is None
    assert (await kept(world, tenant="globex")) == record(world, tenant="globex")
    assert await kept(world, tenant="initech") is None


async def test_hostile_questions_and_previews_come_back_as_they_are(world: World) -> None:
    """And as ids they match nothing but themselves."""
    for name in HOSTILE_NAMES:
        await comes_back(world, name)


async def comes_back(world: World, name: str) -> None:
    told = replace(
        record(world, findings=Findings(passages=(passage(DocumentRef(name, 1), text=name + "\x00"),))),
        question=name,
        subject=name,
    )
    await world.catalog.append_traces([told])
    assert await kept(world) == told
    assert await world.catalog.trace("acme", request_id=name) is None
    assert await world.catalog.erase_traces("acme", name) == 1
    assert await kept(world) is None


async def test_storing_a_trace_again_changes_nothing(world: World) -> None:
    """A process that doesn't know whether it was stored may try again."""
    first = record(world, findings=found(DocumentRef("doc_a", 1)))
    await world.catalog.append_traces([first, first])
    await world.catalog.append_traces([replace(first, question="another")])
    assert await kept(world) == first


async def test_what_quotes_a_document_very_often_is_erased_to_the_last(world: World) -> None:
    """And so is all of a person's: more than one transaction takes."""
    [gone] = await world.import_ready(upload("a", "one"))
    quoting = found(gone)
    await world.catalog.append_traces([record(world, number, findings=quoting) for number in range(501)])
    await world.catalog.delete_document("acme", gone.document_id)
    assert await world.catalog.erase_quotes(await cleanup(world), [1]) == 501
    assert await world.catalog.erase_traces("acme", "ann") == 501
    assert await kept(world, 500) is None


async def test_a_person_s_traces_are_erased_and_nobody_else_s(world: World) -> None:
    """Of this tenant only."""
    other = replace(record(world, 2), subject="bob")
    await world.catalog.append_traces([record(world), other, record(world, tenant="globex")])
    assert await world.catalog.erase_traces("acme", "ann") == 1
    assert await world.catalog.erase_traces("acme", "ann") == 0
    assert await kept(world) is None
    assert await kept(world, 2) == other
    assert await kept(world, tenant="globex") is not None


async def test_old_traces_are_purged(world: World) -> None:
    """Of every tenant; what isn't old enough stays."""
    await world.catalog.append_traces([record(world, findings=found(DocumentRef("doc_a", 1)))])
    world.clock.advance(100)
    await world.catalog.append_traces([record(world, 2)])
    assert await world.catalog.purge_traces(100) == 0
    world.clock.advance(1)
    assert await world.catalog.purge_traces(100) == 1
    assert await kept(world) is None
    assert await kept(world, 2) is not None


async def cleanup(world: World) -> TaskClaim:
    while True:
        claim = await world.catalog.claim("worker", 30.0, 5)
        assert claim is not None
        if claim.kind is TaskKind.CLEANUP:
            return claim
        await world.catalog.finish(claim, Ending(TaskState.SUCCEEDED))


async def test_a_clean_up_takes_what_traces_quote_of_a_deleted_document(world: World) -> None:
    """Of the versions that it names, in every trace; other documents' passages stay."""
    old, other = await world.import_ready(upload("a", "one"), upload("b", "two"))
    newer = DocumentRef(old.document_id, 2)
    await world.catalog.append_traces(
        [record(world, 1, findings=found(old, other)), record(world, 2, findings=found(newer))]
    )
    await world.catalog.delete_document("acme", old.document_id)
    claim = await cleanup(world)
    assert await world.catalog.erase_quotes(claim, [1]) == 1
    assert await world.catalog.erase_quotes(claim, [1]) == 0
    first, second = await kept(world, 1), await kept(world, 2)
    assert first is not None
    assert [one.ref for one in first.findings.passages] == [other]
    assert first.question == record(world).question
    assert second is not None
    assert [one.ref for one in second.findings.passages] == [newer]


async def test_what_comes_after_the_clean_up_quotes_nothing_of_it_either(world: World) -> None:
    """A trace may wait in some process while its document is deleted and cleaned up."""
    gone, other = await world.import_ready(upload("a", "one"), upload("b", "two"))
    await world.catalog.delete_document("acme", gone.document_id)
    late = record(world, findings=found(gone, other))
    await world.catalog.append_traces([late])
    told = await kept(world)
    assert told == replace(late, findings=replace(late.findings, passages=late.findings.passages[1:]))


async def test_a_clean_up_that_lost_its_claim_takes_nothing(world: World) -> None:
    """Somebody else does it now."""
    [ref] = await world.import_ready(upload("a", "one"))
    await world.catalog.append_traces([record(world, findings=found(ref))])
    await world.catalog.delete_document("acme", ref.document_id)
    claim = await cleanup(world)
    await world.catalog.release_claim(claim)
    with pytest.raises(StaleFence):
        await world.catalog.erase_quotes(claim, [1])
    told = await kept(world)
    assert told is not None
    assert len(told.findings.passages) == 1


async def test_a_release_s_documents_are_told_by_class(world: World) -> None:
    """In order, no more than asked for, of the tenant's own release only."""
    sales = Acl(frozenset({"group:sales"}))
    refs = await world.import_ready(upload("a", "one"), upload("b", "two"), upload("c", "three", sales))
    plan, _ = await world.release()
    classes = {planned.ref: planned.acl_class for planned in plan.documents}
    public, closed = classes[refs[0]], classes[refs[2]]
    expected = sorted(refs[:2], key=lambda ref: ref.document_id)
    of = plan.release_id
    assert await world.catalog.documents_in("acme", of, {public}, 10) == expected
    assert await world.catalog.documents_in("acme", of, {public}, 1) == expected[:1]
    assert await world.catalog.documents_in("acme", of, {closed}, 10) == [refs[2]]
    assert await world.catalog.documents_in("acme", of, set(), 10) == []
    assert await world.catalog.documents_in("globex", of, {public, closed}, 10) == []
