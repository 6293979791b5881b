"""Contract of VersionStore: the version that an upload is compared with is the one that is listed."""

import pytest

from gateway.access.authorizer import DocumentRef
from gateway.ingest.task import Ending, TaskState
from gateway.ingest.uploads import NewDocument, StandingVersion
from gateway.release.model import VersionState
from gateway.stream.revocation import RevocationKind
from tests.contract.catalog_world import World, upload

#: a PostgreSQL database is kept for the whole module
pytestmark = pytest.mark.asyncio(loop_scope="module")


async def _standing(world: World, ref: DocumentRef) -> StandingVersion | None:
    """As the list has it and the document alone."""
    record = await world.catalog.document("acme", ref.document_id)
    (listed,) = await world.catalog.documents("acme", "handbook")
    assert record is not None
    assert listed.standing == record.standing
    return record.standing


def _of(document: NewDocument, version: int, state: VersionState) -> StandingVersion:
    content = (document.content_sha256, document.size_bytes, document.fingerprint)
    return StandingVersion(version, state, *content)


async def test_a_version_stands_from_its_acceptance_on(world: World) -> None:
    """First under way, then READY; a newer one takes its place."""
    document = upload("a", "one")
    accepted = await world.accept(document)
    ref = DocumentRef(accepted.documents[0].document_id, 1)
    assert await _standing(world, ref) == _of(document, 1, VersionState.PENDING)
    claim = await world.claim()
    await world.build_versions(claim)
    await world.catalog.finish(claim, Ending(TaskState.SUCCEEDED))
    assert await _standing(world, ref) == _of(document, 1, VersionState.READY)
    newer = upload("a", "two")
    await world.import_ready(newer)
    assert await _standing(world, ref) == _of(newer, 2, VersionState.READY)


async def test_a_failed_version_leaves_the_one_before_standing(world: World) -> None:
    """The list names the newest one and its error beside it; the first upload again makes no version."""
    document = upload("a", "one")
    (ref,) = await world.import_ready(document)
    await world.accept(upload("a", "two"))
    claim = await world.claim()
    await world.catalog.fail_version(claim, DocumentRef(ref.document_id, 2), "blank", "no text was found")
    await world.catalog.finish(claim, Ending(TaskState.FAILED, "documents_failed", "one"))
    assert await _standing(world, ref) == _of(document, 1, VersionState.READY)
    record = await world.catalog.document("acme", ref.document_id)
    assert record is not None
    assert (record.document_version, record.state) == (2, VersionState.FAILED)
    accepted = await world.accept(document)
    assert accepted.documents[0].document_version == 1


async def test_a_document_that_never_was_ready_has_nothing_standing(world: World) -> None:
    """It is listed all the same."""
    accepted = await world.accept(upload("a", "one"))
    ref = DocumentRef(accepted.documents[0].document_id, 1)
    await world.catalog.fail_version(await world.claim(), ref, "blank", "no text was found")
    assert await _standing(world, ref) is None


async def test_a_version_that_was_rolled_back_does_not_stand(world: World) -> None:
    """What readers have again is what the next upload is compared with."""
    document = upload("a", "one")
    (ref,) = await world.import_ready(document)
    await world.release()
    await world.import_ready(upload("a", "two"))
    await world.release()
    await world.catalog.roll_back("acme", "handbook")
    assert await _standing(world, ref) == _of(document, 1, VersionState.READY)
    (listed,) = await world.catalog.documents("acme", "handbook")
    assert listed.withdrawn


async def test_a_revoked_document_says_since_when(world: World) -> None:
    """Itself or its knowledge base, whichever came first, until both are lifted; no other one says so."""
    ref, _ = await world.import_ready(upload("a", "one"), upload("b", "two"))
    await world.import_ready(upload("a", "three"), kb="wiki")
    await world.import_ready(upload("a", "one"), tenant="globex")

    async def since() -> list[float | None]:
        record = await world.catalog.document("acme", ref.document_id)
        listed = await world.catalog.documents("acme", "handbook")
        assert record == listed[0]
        others = [*await world.catalog.documents("acme", "wiki")]
        others += await world.catalog.documents("globex", "handbook")
        assert [other.revoked_at for other in others] == [None, None]
        return [document.revoked_at for document in listed]

    assert await since() == [None, None]
    one = await world.catalog.revoke("acme", RevocationKind.DOCUMENT, ref.document_id, "leak", "olga")
    await world.catalog.revoke("acme", RevocationKind.USER, ref.document_id, "left", "olga")
    assert await since() == [one.created_at, None]
    world.clock.advance(60)
    whole = await world.catalog.revoke("acme", RevocationKind.KNOWLEDGE_BASE, "handbook", "leak", "olga")
    assert await since() == [one.created_at, whole.created_at]
    await world.catalog.lift("acme", one.revocation_id)
    assert await since() == [whole.created_at, whole.created_at]
    await world.catalog.lift("acme", whole.revocation_id)
    assert await since() == [None, None]
