"""The clean-up after deletions, on twins and on the real parts: what goes, what stays, and what is told."""

import pytest

from gateway.context import Deadline
from gateway.ingest.references import CHUNKS, ORIGINALS, VECTORS
from gateway.ingest.task import TaskRecord, TaskState
from gateway.release.model import ReleaseState
from gateway.retrieval.query import ScopedQuery
from gateway.stream.revocation import RevocationKind
from tests.contract.catalog_world import scope_of
from tests.integration.import_world import KB, TENANT, TEXTS, Altered, Crash, Fuse, ImportWorld

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHANGED = "# travel\n\nThe travel rule has changed.\n\n## Details of travel\n\nNobody travels any more.\n"


async def document_id(imports: ImportWorld, name: str) -> str:
    documents = await imports.catalog.documents(TENANT, KB)
    return next(d.document_id for d in documents if d.source == f"{name}.md")


async def delete(imports: ImportWorld, name: str) -> str:
    """The clean-up's task."""
    task_id = await imports.catalog.delete_document(TENANT, await document_id(imports, name))
    assert task_id is not None
    return task_id


async def work_off(imports: ImportWorld) -> None:
    """Everything that waits is done."""
    while (claim := await imports.catalog.claim("worker", 600.0, 5)) is not None:
        await imports.worker().work(claim)


async def ended(imports: ImportWorld, task_id: str) -> TaskRecord:
    await work_off(imports)
    task = await imports.catalog.task(TENANT, task_id)
    assert task is not None
    assert task.state is TaskState.SUCCEEDED, (task.error_code, task.error_detail)
    return task


async def keys(imports: ImportWorld) -> set[str]:
    return {f.key for folder in (ORIGINALS, CHUNKS, VECTORS) async for f in imports.objects.list(folder)}


async def rows(imports: ImportWorld) -> dict[str, int]:
    """Of each release of this world that has rows, how many; by what the store itself says."""
    listed = await imports.vectors.revisions(imports.space)
    return {r.release_id: listed[r.kb_revision] for r in await imports.releases() if r.kb_revision in listed}


async def frequency(imports: ImportWorld, word: str) -> tuple[int, int]:
    """In the active release: all passages, and those with the word."""
    release = await imports.active()
    query = ScopedQuery(scope_of(TENANT, release.kb_id, range(1, 5)), release, 1)
    statistics = await imports.catalog.statistics(query, [word], Deadline.after(20_000))
    return statistics.passages, statistics.frequencies.get(word, 0)


async def test_a_deleted_document_leaves_nothing_behind(imports: ImportWorld) -> None:
    """Of all its versions, in every revision that is kept: rows, words, chunk files, vectors, originals."""
    await imports.learn({name: TEXTS[name] for name in ("refund", "access")})
    without = await keys(imports), await rows(imports)
    passages = await frequency(imports, "travel")
    await imports.learn({"travel": TEXTS["travel"]})
    await imports.learn({"travel": CHANGED})
    await imports.build_release()
    assert len(await rows(imports)) == 3
    assert (await frequency(imports, "travel"))[1] > 0
    before = sum((await rows(imports)).values())
    task = await ended(imports, await delete(imports, "travel"))
    assert await keys(imports) == without[0]
    one_revision = next(iter(without[1].values()))
    assert set((await rows(imports)).values()) == {one_revision}
    assert await frequency(imports, "travel") == passages
    assert (await imports.dump()).sources == {"refund.md", "access.md"}
    assert task.report is not None
    assert task.report["removed"] == {
        "rows": before - 3 * one_revision,
        "chunk_files": 2,
        "vector_files": 2,
        "originals": 2,
        "quotes": 0,
        "answers": 0,
    }


async def test_a_report_says_what_remains_and_why(imports: ImportWorld) -> None:
    """By name: also of what is kept elsewhere, and of what this version doesn't keep."""
    await imports.learn({"one": TEXTS["refund"], "two": TEXTS["refund"]})
    report = (await ended(imports, await delete(imports, "one"))).report
    assert report is not None
    remains = report["remains"]
    assert isinstance(remains, list)
    told = {one["what"]: one for one in remains}
    assert all(set(one) == {"what", "why", "until"} and one["why"] for one in remains)
    assert any("originals" in what for what in told)
    assert any("vector files" in what for what in told)
    for kept in ("audit entries", "backups made before", "logs"):
        assert told[kept]["until"]
    for absent in ("cached answers", "feedback", "evaluation copies"):
        assert told[absent]["why"] == "not kept here"


class Erasure:
    """Says what there was to forget, and what it was asked for."""

    def __init__(self, outcome: int | None) -> None:
        self._outcome = outcome
        self.asked: list[str] = []

    async def forget(self, document_id: str) -> int | None:
        self.asked.append(document_id)
        return self._outcome


@pytest.mark.parametrize("outcome", [3, None])
async def test_a_deleted_or_revoked_document_takes_its_answers_along(
    imports: ImportWorld, outcome: int | None
) -> None:
    """Those that can't be reached now end by their time, and the report says that too."""
    await imports.learn(TEXTS)
    imports.answers = erasure = Erasure(outcome)
    ids = [await document_id(imports, name) for name in ("travel", "refund")]
    revoked = await imports.catalog.revoke(TENANT, RevocationKind.DOCUMENT, ids[1], "leak", "olga")
    for task_id in (await delete(imports, "travel"), str(revoked.task_id)):
        report = (await ended(imports, task_id)).report
        assert report is not None
        assert report["removed"]["answers"] == (outcome or 0)  # type: ignore[index] # JSON
        told = {one["what"]: one for one in report["remains"]}  # type: ignore[attr-defined] # JSON
        left = "cached answers that were just being made" if outcome else "cached answers"
        assert told[left]["until"] == "GATEWAY_ANSWER_CACHE_TTL_S after each was made"
    assert sorted(erasure.asked) == sorted(ids)


async def test_answers_of_a_revoked_knowledge_base_end_by_their_time(imports: ImportWorld) -> None:
    """Nobody is let into it, so none of them is told."""
    await imports.learn(TEXTS)
    imports.answers = erasure = Erasure(3)
    record = await imports.catalog.revoke(TENANT, RevocationKind.KNOWLEDGE_BASE, KB, "leak", "olga")
    report = (await ended(imports, str(record.task_id))).report
    assert report is not None
    assert "cached answers" in {one["what"] for one in report["remains"]}  # type: ignore[attr-defined] # JSON
    assert erasure.asked == []


async def test_what_another_document_needs_stays_until_that_is_deleted_too(imports: ImportWorld) -> None:
    """The same original and the same texts: the second deletion takes them."""
    empty = await keys(imports)
    await imports.learn({"one": TEXTS["refund"], "two": TEXTS["refund"]})
    both = await keys(imports)
    await ended(imports, await delete(imports, "one"))
    left = await keys(imports)
    assert {key.partition("/")[0] for key in both - left} == {CHUNKS}
    assert (await imports.dump()).sources == {"two.md"}
    assert (await imports.build_release()).state is TaskState.SUCCEEDED
    await ended(imports, await delete(imports, "two"))
    assert await keys(imports) == empty


async def test_a_clean_up_that_comes_late_spares_what_was_imported_since(imports: ImportWorld) -> None:
    """Under the same source, with the same bytes: the new version keeps rows, files and vectors."""
    await imports.learn(TEXTS)
    task_id = await delete(imports, "travel")
    assert await imports.catalog.request_cancel(TENANT, task_id)
    await imports.learn({"travel": TEXTS["travel"]})
    fresh = await imports.dump()
    assert await imports.catalog.schedule_reclaims(imports.policy, 3600.0) == 1
    await work_off(imports)
    assert await imports.dump() == fresh
    assert "travel.md" in fresh.sources
    old, new = sorted((await rows(imports)).values())
    assert old < new == len(fresh.rows)
    assert (await imports.learn(TEXTS | {"more": TEXTS["access"]})).state is TaskState.SUCCEEDED


async def test_a_document_deleted_while_it_is_imported_is_cleaned_up_after(imports: ImportWorld) -> None:
    """The import is at it; the clean-up waits for its end."""
    await imports.learn({"refund": TEXTS["refund"]})
    without = await keys(imports)
    accepted = await imports.accept({"travel": TEXTS["travel"]}, activate=False)
    found: list[str] = []

    async def deleted(real, *arguments):  # type: ignore[no-untyped-def]
        if not found:
            found.append(await delete(imports, "travel"))
        return await real(*arguments)

    await imports.work(accepted, imports.worker(catalog=Altered(imports.catalog, complete_versions=deleted)))
    assert await keys(imports) > without
    await ended(imports, found[0])
    assert await keys(imports) == without


async def test_a_clean_up_that_crashed_at_any_step_ends_like_one_that_did_not(imports: ImportWorld) -> None:
    """One document for each step; after the crash another worker does the task from its beginning."""
    await imports.learn({"refund": TEXTS["refund"]})
    without = await keys(imports), await rows(imports), await frequency(imports, "travel")
    some = 4 if imports.real else 1  # every fourth step where each one takes a while
    many = {
        f"t{number}": TEXTS["travel"] + f"\n\nNumber {number} of them.\n" for number in range(0, 40, some)
    }
    await imports.learn(many)
    whole = Fuse()
    await cleaned(imports, "t0", whole)
    assert 10 < whole.calls < 40
    for at in range(some, whole.calls + 1, some):
        await cleaned(imports, f"t{at}", Fuse(at))
    for left in await imports.catalog.documents(TENANT, KB):
        if left.source != "refund.md":
            await imports.catalog.delete_document(TENANT, left.document_id)
    await work_off(imports)
    assert await keys(imports) == without[0]
    assert set((await rows(imports)).values()) == set(without[1].values())
    assert await frequency(imports, "travel") == without[2]


async def cleaned(imports: ImportWorld, name: str, fuse: Fuse) -> None:
    """Deletes a document and works until its clean-up has succeeded, the first time on the fuse."""
    task_id = await delete(imports, name)
    try:
        await imports.fused_worker(fuse).work(await imports.claim())
    except BaseExceptionGroup as group:
        if group.subgroup(Crash) is None:
            raise
    imports.clock.advance(1_000)  # the lease is over, and so is the time of whoever condemned objects
    await ended(imports, task_id)


async def test_a_revoked_document_keeps_its_files_and_the_report_says_so(imports: ImportWorld) -> None:
    """So that a lift brings it back."""
    await imports.learn(TEXTS)
    before = await keys(imports)
    record = await imports.catalog.revoke(
        TENANT, RevocationKind.DOCUMENT, await document_id(imports, "travel"), "leak", "olga"
    )
    report = (await ended(imports, str(record.task_id))).report
    assert report is not None
    assert set(report["removed"].values()) == {0}  # type: ignore[attr-defined] # JSON
    assert {one["what"] for one in report["remains"]} >= {"originals", "chunk files", "vector files"}  # type: ignore[attr-defined] # JSON
    assert await keys(imports) == before
    assert all(r.state is not ReleaseState.RECLAIMED for r in await imports.releases())
