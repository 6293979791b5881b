"""From an upload to the active release, on twins and on the real parts: what changes, what stays."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from gateway.access.authorizer import DocumentRef
from gateway.context import Deadline
from gateway.errors import ReleaseConflict
from gateway.ingest.task import TaskState
from gateway.release.model import ReleaseState
from gateway.retrieval.chunk import FOREVER, Chunk, chunk_id, embedded_text, row_id, stable_hash
from gateway.retrieval.store import Hit, Row
from gateway.retrieval.terms import terms_of
from gateway.stream.revocation import RevocationKind
from tests.integration.import_world import KB, LEADS, TENANT, TEXTS, Altered, ImportWorld

pytestmark = pytest.mark.asyncio(loop_scope="module")

OTHER = "# travel\n\nThe travel rule has changed.\n\n## Details of travel\n\nNobody travels any more.\n"


def failure(task: Any) -> tuple[TaskState, str | None]:
    return task.state, task.error_code


async def document_id(imports: ImportWorld, name: str) -> str:
    documents = await imports.catalog.documents(TENANT, KB)
    return next(d.document_id for d in documents if d.source == f"{name}.md")


# what is embedded and built


async def test_only_changed_texts_are_embedded_again(imports: ImportWorld) -> None:
    """Of three documents one changes: the release has all three, the embedder saw the new texts alone."""
    assert (await imports.learn(TEXTS)).state is TaskState.SUCCEEDED
    first = await imports.dump()
    imports.embedder.texts.clear()
    task = await imports.learn(TEXTS | {"travel": OTHER})
    assert task.state is TaskState.SUCCEEDED
    assert imports.embedder.texts
    assert all("travel" in text for text in imports.embedder.texts)
    second = await imports.dump()
    assert second.without_revision("travel.md") == first.without_revision("travel.md") != []
    assert any("Nobody travels any more." in content for content in second.contents)
    assert not any("travel rule applies" in content for content in second.contents)


async def test_a_text_that_was_embedded_once_is_never_embedded_again(imports: ImportWorld) -> None:
    """Also under another source: a vector belongs to its text."""
    await imports.learn({"one": TEXTS["refund"]})
    imports.embedder.texts.clear()
    task = await imports.learn({"two": TEXTS["refund"]})
    assert task.state is TaskState.SUCCEEDED
    assert imports.embedder.texts == []
    assert (await imports.dump()).sources == {"one.md", "two.md"}


async def test_an_unchanged_manifest_builds_no_release(imports: ImportWorld) -> None:
    """The same bytes again: no new release, the same one stays active under its sequence."""
    await imports.learn(TEXTS)
    before = await imports.active()
    task = await imports.learn(TEXTS)
    assert (task.state, task.release_id) == (TaskState.SUCCEEDED, before.release_id)
    assert (await imports.build_release()).release_id == before.release_id
    assert await imports.active() == before
    assert len(await imports.releases()) == 1


async def test_every_stored_chunk_carries_each_field(imports: ImportWorld) -> None:
    """ING-6 and ING-3: what the importer said, what the parser found, and ids anyone can derive again."""
    task = await imports.learn(
        {"travel": TEXTS["travel"]},
        category="policy",
        valid_from=1_000,
        valid_until=4_000_000_000,
        sensitivity=2,
        author="Ann",
        approval="approved",
        risk=("external", "stale"),
    )
    assert task.state is TaskState.SUCCEEDED
    release = await imports.active()
    (classed,) = await imports.catalog.acl_classes(TENANT, release.kb_id)
    built = await imports.parser.build("travel.md", "", TEXTS["travel"].encode())
    documents = await imports.catalog.documents(TENANT, KB)
    version = (documents[0].document_id, 1)
    chunks = (await imports.dump()).chunks
    assert len(chunks) == len(built.passages) > 1
    for index, (chunk, passage) in enumerate(zip(chunks, built.passages, strict=True)):
        name = chunk_id(TENANT, release.kb_id, *version, built.parser_version, built.splitter_version, index)
        expected = Chunk(
            row_id=row_id(release.kb_revision, name),
            chunk_id=name,
            tenant_id=TENANT,
            kb_id=release.kb_id,
            kb_revision=release.kb_revision,
            embedding_space_id=imports.space.space_id,
            document_id=version[0],
            document_version=1,
            chunk_index=index,
            acl_class=classed.number,
            category="policy",
            valid_from=1_000,
            valid_until=4_000_000_000,
            sensitivity=2,
            revocation_epoch=0,
            title="travel",
            section=passage.section,
            page=0,
            source_uri="file:travel.md",
            parser_version=built.parser_version,
            splitter_version=built.splitter_version,
            content_hash=stable_hash(passage.content),
            author="Ann",
            approval="approved",
            risk=("external", "stale"),
            content=passage.content,
        )
        assert chunk == expected


async def test_a_document_without_dates_is_valid_for_ever(imports: ImportWorld) -> None:
    """Stores have no empty times."""
    await imports.learn({"travel": TEXTS["travel"]})
    assert {(c.valid_from, c.valid_until) for c in (await imports.dump()).chunks} == {(0, FOREVER)}


async def test_writing_a_row_twice_leaves_one(imports: ImportWorld) -> None:
    """ING-3: a replay of the same ids replaces what is there, before and after the revision is sealed."""
    await imports.learn({"travel": TEXTS["travel"]})
    release, before = await imports.active(), await imports.dump()
    rows = []
    for chunk in before.chunks:
        text = embedded_text(chunk.title, chunk.section, chunk.content)
        (vector,) = await imports.embedder.embed([text], Deadline.after(20_000))
        rows.append(Row(chunk, vector, terms_of(text)))
    for _ in range(2):
        await imports.vectors.write(imports.space, release.kb_revision, rows)
        await imports.vectors.write(imports.space, release.kb_revision, rows[:1])
        await imports.vectors.seal(imports.space, release.kb_revision)
        assert await imports.dump() == before


async def test_a_revision_is_sealed_between_its_last_write_and_the_first_read(imports: ImportWorld) -> None:
    """Durable and loaded before anyone looks: a question must never pay for that."""
    calls: list[str] = []

    def noted(name: str) -> Any:
        async def note(real: Any, *arguments: Any) -> Any:
            calls.append(name)
            return await real(*arguments)

        return note

    names = ("write", "seal", "count", "fetch", "dense", "lexical")
    vectors = Altered(imports.vectors, **{name: noted(name) for name in names})
    accepted = await imports.accept({"travel": TEXTS["travel"]})
    assert (await imports.work(accepted, imports.worker(vectors=vectors))).state is TaskState.SUCCEEDED
    assert calls[:3] == ["write", "seal", "count"]
    assert set(calls[3:]) == {"fetch", "dense", "lexical"}


# validation reads back


async def without_a_row(write: Any, space: Any, revision: str, rows: Sequence[Row]) -> None:
    await write(space, revision, rows[1:])


async def with_another_content(fetch: Any, query: Any, ids: Any, deadline: Any) -> list[Chunk]:
    return [replace(chunk, content=chunk.content + "!") for chunk in await fetch(query, ids, deadline)]


async def with_another_class(fetch: Any, query: Any, ids: Any, deadline: Any) -> list[Chunk]:
    return [replace(chunk, sensitivity=0) for chunk in await fetch(query, ids, deadline)]


async def nothing(search: Any, query: Any, asked: Any, limit: int, deadline: Any) -> list[Hit]:
    return []


async def far_away(dense: Any, query: Any, vector: Any, limit: int, deadline: Any) -> list[Hit]:
    return [replace(hit, score=0.9) for hit in await dense(query, vector, limit, deadline)]


@pytest.mark.parametrize(
    ("method", "replacement"),
    [
        ("write", without_a_row),
        ("fetch", with_another_content),
        ("fetch", with_another_class),
        ("dense", nothing),
        ("dense", far_away),
        ("lexical", nothing),
    ],
)
async def test_a_revision_that_reads_back_differently_is_never_ready(
    imports: ImportWorld, method: str, replacement: Any
) -> None:
    """The build FAILS, its rows go, and the release before it answers as before."""
    await imports.learn({"refund": TEXTS["refund"]})
    active, before = await imports.active(), await imports.dump()
    vectors = Altered(imports.vectors, **{method: replacement})
    accepted = await imports.accept({"travel": TEXTS["travel"]}, sensitivity=1)
    task = await imports.work(accepted, imports.worker(vectors=vectors))
    assert failure(task) == (TaskState.FAILED, "internal_error")
    failed, kept = await imports.releases()
    assert (failed.state, failed.error) == (ReleaseState.RECLAIMED, "internal_error")
    assert kept.state is ReleaseState.ACTIVE
    assert await imports.rows_left(failed.kb_revision) == 0
    assert (await imports.active(), await imports.dump()) == (active, before)


LONG = "# long\n\n" + "".join(f"## Part {n}\n\n" + f"Rule {n} of many. " * 40 + "\n\n" for n in range(16))


async def test_a_lost_row_is_noticed_even_when_it_is_no_sample(imports: ImportWorld) -> None:
    """Every row is counted, eight are read."""

    async def without_the_second(write: Any, space: Any, revision: str, rows: Sequence[Row]) -> None:
        assert len(rows) == 16
        await write(space, revision, [rows[0], *rows[2:]])

    accepted = await imports.accept({"long": LONG})
    vectors = Altered(imports.vectors, write=without_the_second)
    task = await imports.work(accepted, imports.worker(vectors=vectors))
    assert failure(task) == (TaskState.FAILED, "internal_error")


async def test_samples_are_spread_over_one_long_document(imports: ImportWorld) -> None:
    """A row in the middle that reads back differently is found as well as the first."""
    asked: list[str] = []

    async def noting(fetch: Any, query: Any, ids: Any, deadline: Any) -> Any:
        asked.extend(ids)
        return await fetch(query, ids, deadline)

    accepted = await imports.accept({"long": LONG})
    task = await imports.work(accepted, imports.worker(vectors=Altered(imports.vectors, fetch=noting)))
    assert task.state is TaskState.SUCCEEDED
    assert len(set(asked)) == 8


# activation is conditional


async def delete(imports: ImportWorld) -> None:
    assert await imports.catalog.delete_document(TENANT, await document_id(imports, "refund"))


async def revoke(imports: ImportWorld) -> None:
    subject = await document_id(imports, "refund")
    await imports.catalog.revoke(TENANT, RevocationKind.DOCUMENT, subject, "leaked", "operator")


async def narrow(imports: ImportWorld) -> None:
    await imports.accept({"refund": TEXTS["refund"]}, acl=LEADS, activate=False)


@pytest.mark.parametrize("change", [delete, revoke, narrow])
async def test_a_build_from_before_a_change_of_permission_cant_be_activated(
    imports: ImportWorld, change: Any
) -> None:
    """Whatever was deleted, revoked or narrowed after the snapshot stays so."""
    await imports.learn({"access": TEXTS["access"]})
    active = await imports.active()
    await imports.learn({"refund": TEXTS["refund"]}, activate=False)
    built = await imports.build_release()
    assert built.state is TaskState.SUCCEEDED
    assert built.release_id is not None
    await change(imports)
    with pytest.raises(ReleaseConflict):
        await imports.catalog.activate(TENANT, built.release_id, None)
    assert await imports.active() == active


@pytest.mark.parametrize("change", [delete, revoke])
async def test_a_change_during_a_build_makes_it_build_again(imports: ImportWorld, change: Any) -> None:
    """The loser's rows go, and the release that wins doesn't hold what was taken away."""
    await imports.learn({"refund": TEXTS["refund"], "access": TEXTS["access"]})
    changed = False

    async def once(progress: Any, claim: Any, stage: str, done: int, total: int) -> None:
        nonlocal changed
        if stage == "activating" and not changed:
            changed = True
            await change(imports)
        await progress(claim, stage, done, total)

    accepted = await imports.accept({"travel": TEXTS["travel"]})
    task = await imports.work(accepted, imports.worker(catalog=Altered(imports.catalog, progress=once)))
    assert (task.state, changed) == (TaskState.SUCCEEDED, True)
    assert (await imports.dump()).sources == {"access.md", "travel.md"}
    winner, loser, first = await imports.releases()
    states = [winner.state, loser.state, first.state]
    assert states == [ReleaseState.ACTIVE, ReleaseState.RECLAIMED, ReleaseState.RETIRED]
    assert await imports.rows_left(loser.kb_revision) == 0


async def test_the_slower_of_two_builds_loses_and_builds_again(imports: ImportWorld) -> None:
    """A release that was activated meanwhile isn't overwritten by a snapshot from before it."""
    await imports.learn({"access": TEXTS["access"]})
    await imports.learn({"refund": TEXTS["refund"]}, activate=False)
    faster = await imports.build_release()
    assert faster.release_id is not None
    raced = False

    async def race(activate: Any, tenant: str, release_id: str, *rest: Any) -> Any:
        nonlocal raced
        if not raced:
            raced = True
            await activate(tenant, faster.release_id, None)
        return await activate(tenant, release_id, *rest)

    accepted = await imports.accept({"travel": TEXTS["travel"]})
    task = await imports.work(accepted, imports.worker(catalog=Altered(imports.catalog, activate=race)))
    assert task.state is TaskState.SUCCEEDED
    assert (await imports.active()).sequence == 3
    assert (await imports.dump()).sources == {"access.md", "refund.md", "travel.md"}
    assert [r.state for r in await imports.releases()] == [
        ReleaseState.ACTIVE,
        ReleaseState.RECLAIMED,
        ReleaseState.RETIRED,
        ReleaseState.RETIRED,
    ]


async def test_a_rollback_during_an_unchanged_import_takes_no_rows_away(imports: ImportWorld) -> None:
    """The release it found unchanged is retired by now: a rollback may still want it, so it stays whole."""
    await imports.learn({"travel": TEXTS["travel"]})
    first = await imports.active()
    await imports.learn({"travel": OTHER})
    second, rows = await imports.active(), await imports.dump()
    raced = False

    async def race(activate: Any, tenant: str, release_id: str, *rest: Any) -> Any:
        nonlocal raced
        if not raced:
            raced = True
            await imports.catalog.roll_back(TENANT, KB)
        return await activate(tenant, release_id, *rest)

    accepted = await imports.accept({"travel": OTHER})
    task = await imports.work(accepted, imports.worker(catalog=Altered(imports.catalog, activate=race)))
    assert task.state is TaskState.SUCCEEDED
    assert (await imports.active()).release_id == first.release_id
    assert await imports.dump(second) == rows


async def test_a_build_that_always_loses_ends_with_release_conflict(imports: ImportWorld) -> None:
    """Three tries, no rows left of any of them, and the documents stay READY for the next release."""
    await imports.learn({"access": TEXTS["access"]})
    active = await imports.active()

    async def lose(_: Any, tenant: str, release_id: str, *rest: Any) -> Any:
        raise ReleaseConflict

    accepted = await imports.accept({"travel": TEXTS["travel"]})
    task = await imports.work(accepted, imports.worker(catalog=Altered(imports.catalog, activate=lose)))
    assert failure(task) == (TaskState.FAILED, "release_conflict")
    assert [document.state for document in task.documents] == ["READY"]
    assert await imports.active() == active
    losers = (await imports.releases())[:-1]
    assert [r.state for r in losers] == [ReleaseState.RECLAIMED] * 3
    assert [await imports.rows_left(r.kb_revision) for r in losers] == [0, 0, 0]


# rollback


async def test_a_rollback_has_a_higher_sequence_and_withdraws_what_is_newer(imports: ImportWorld) -> None:
    """And the next import starts from there: the withdrawn version doesn't come back with it."""
    await imports.learn({"travel": TEXTS["travel"]})
    first, rows = await imports.active(), await imports.dump()
    await imports.learn({"travel": OTHER})
    back = await imports.catalog.roll_back(TENANT, KB)
    assert (back.knowledge_revision, back.release_sequence) == (first.kb_revision, 3)
    assert await imports.dump() == rows
    ref = DocumentRef(await document_id(imports, "travel"), 2)
    standing = (await imports.catalog.standings(TENANT, first.kb_id, [ref]))[ref]
    assert standing.withdrawn
    await imports.learn({"refund": TEXTS["refund"]})
    assert (await imports.active()).sequence == 4
    assert any("travel rule applies" in content for content in (await imports.dump()).contents)
    assert not any("Nobody travels" in content for content in (await imports.dump()).contents)


@pytest.mark.parametrize("change", [delete, revoke])
async def test_a_rollback_brings_no_taken_document_back(imports: ImportWorld, change: Any) -> None:
    """The catalog says no while its rows are in the old revision, and the next release is without it."""
    await imports.learn({"refund": TEXTS["refund"], "access": TEXTS["access"]})
    ref = DocumentRef(await document_id(imports, "refund"), 1)
    await imports.learn({"travel": TEXTS["travel"]})
    await change(imports)
    await imports.catalog.roll_back(TENANT, KB)
    release = await imports.active()
    standing = (await imports.catalog.standings(TENANT, release.kb_id, [ref]))[ref]
    assert standing.deleted or standing.revoked
    task = await imports.build_release()
    assert task.state is TaskState.SUCCEEDED
    # of a deleted document the active one is clean already: then nothing has changed
    await imports.catalog.activate(TENANT, str(task.release_id), None)
    assert (await imports.dump()).sources == {"access.md"}
