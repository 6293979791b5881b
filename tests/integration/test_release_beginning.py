"""How a build begins in a database that others write to between its steps."""

from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import anyio
import pytest
import pytest_asyncio
from sqlalchemy import Connection, update

from gateway.access.authorizer import DocumentRef
from gateway.adapters.sql import activation, beginning, snapshots
from gateway.adapters.sql.beginning import Wanted
from gateway.adapters.sql.catalog import SqlCatalog, open_catalog
from gateway.adapters.sql.database import Database, Question
from gateway.adapters.sql.tables import releases
from gateway.errors import ReleaseConflict
from gateway.ingest.governance import AclChange, Decision, Verdict
from gateway.ingest.plan import ClassTerms
from gateway.ingest.task import Ending, TaskKind, TaskState
from gateway.release.model import ReleaseState
from gateway.stream.revocation import RevocationKind
from tests.contract.catalog_world import CONFIG, SALES, SPACE, Clock, World, upload

WANTED = Wanted(SPACE, CONFIG, "")

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Act = Callable[[], Awaitable[object]]


#: what a build reads beside the writer: whether anything has changed, all there is, and what changed since
BEFORE, LISTED, LOOKED = range(3)


class BusyDatabase:
    """Somebody else acts after the build has read something; ``acts`` are used up one a reading of all there
    is, and the ``moment`` is after which of the three it reads each time.
    """

    def __init__(self, database: Database, *acts: Act, moment: int = LISTED) -> None:
        self._database = database
        self._moment = moment
        self._reads = 0
        self.acts = list(acts)
        self.look, self.read, self.write = database.look, database.read, database.write

    async def browse(self, work: Callable[[Connection], T]) -> T:
        read = await self._database.browse(work)
        moment, self._reads = self._reads % 3, self._reads + 1
        if self.acts and moment == self._moment:
            with anyio.fail_after(10):
                await self.acts.pop(0)()
        return read

    async def ask(self, question: Question[K, V], key: K) -> V:
        return await self._database.ask(question, key)

    async def aclose(self) -> None:
        await self._database.aclose()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest_asyncio.fixture
async def catalog(tmp_path: Path, clock: Clock) -> AsyncIterator[SqlCatalog]:
    async with open_catalog(tmp_path / "catalog.sqlite3", clock=clock) as opened:
        yield opened


@pytest.fixture
def world(catalog: SqlCatalog, clock: Clock) -> World:
    return World(catalog, clock)


def deletion(world: World, ref: DocumentRef) -> Act:
    return lambda: world.catalog.delete_document("acme", ref.document_id)


def narrowing(world: World, ref: DocumentRef) -> Act:
    return lambda: world.catalog.set_acl(AclChange("acme", ref.document_id, SALES, "olga", 3600.0))


def revoking(world: World, ref: DocumentRef) -> Act:
    return lambda: world.catalog.revoke("acme", RevocationKind.DOCUMENT, ref.document_id, "x", "olga")


def rejecting(world: World, ref: DocumentRef) -> Act:
    verdict = Verdict("acme", ref.document_id, ref.document_version, Decision.REJECT, "olga", "no")
    return lambda: world.catalog.judge(verdict)


def approving(world: World, ref: DocumentRef) -> Act:
    verdict = Verdict("acme", ref.document_id, ref.document_version, Decision.APPROVE, "olga", "yes")
    return lambda: world.catalog.judge(verdict)


@pytest.mark.parametrize("change", [deletion, narrowing, revoking, rejecting, approving])
@pytest.mark.parametrize(("late", "moment"), [(0, LISTED), (500, LISTED), (500, LOOKED)])
async def test_what_changes_while_a_build_reads_is_in_its_snapshot(
    world: World, catalog: SqlCatalog, change: Callable[[World, DocumentRef], Act], late: int, moment: int
) -> None:
    """As in one that had begun afterwards, whether one document is read again or all of them."""
    ref, _ = await world.import_ready(upload("a"), upload("b"))
    claim = await world.release_claim()
    database = BusyDatabase(catalog.database, change(world, ref), moment=moment)
    plan = await beginning.begin(database, claim, WANTED, late=late)
    assert database.acts == []
    afterwards = await catalog.begin_release(claim, SPACE, CONFIG)
    assert (plan.documents, plan.manifest_hash) == (afterwards.documents, afterwards.manifest_hash)
    assert plan.revocation_epoch == afterwards.revocation_epoch


@pytest.mark.parametrize("change", [deletion, narrowing, revoking, rejecting])
async def test_an_activation_trusts_no_look_from_before_a_change(
    world: World, catalog: SqlCatalog, change: Callable[[World, DocumentRef], Act]
) -> None:
    """What somebody saw beside the writer counts while nothing has changed since."""
    ref, _ = await world.import_ready(upload("a"), upload("b"))
    plan = await world.ready_release()
    release_id = plan.release_id
    seen = await catalog.database.browse(lambda c: activation.as_built(c, "acme", release_id))
    assert seen is not None
    await change(world, ref)()
    assert await catalog.database.browse(lambda c: activation.as_built(c, "acme", release_id)) is None
    for known in (seen, None):
        with pytest.raises(ReleaseConflict):
            await catalog.database.write(
                lambda c, now: activation.activate(c, now, "acme", release_id, None, None, known)  # noqa: B023 - awaited at once
            )


async def test_a_version_whose_files_were_taken_away_raises_the_stamp(
    world: World, catalog: SqlCatalog
) -> None:
    """A build that has looked already doesn't fall back to it."""
    await world.import_ready(upload("a", "old"))
    await world.import_ready(upload("a", "new"))
    await world.release()
    kb_id = await world.kb_id()
    before = await catalog.database.browse(lambda c: snapshots.stamp_of(c, kb_id))
    key = upload("a", "old").original_key
    assert (await catalog.condemn([key], 0.0, 60.0)).condemned == (key,)
    assert await catalog.database.browse(lambda c: snapshots.stamp_of(c, kb_id)) != before


async def test_a_base_that_never_stands_still_is_built_from_all_the_same(
    world: World, catalog: SqlCatalog
) -> None:
    """The third reading is brought up to date, however much has changed; what was begun before has failed."""
    refs = await world.import_ready(*(upload(name) for name in "abcd"))
    claim = await world.release_claim()
    database = BusyDatabase(catalog.database, *(deletion(world, ref) for ref in refs[:3]))
    plan = await beginning.begin(database, claim, WANTED, late=0)
    assert (database.acts, [document.ref for document in plan.documents]) == ([], [refs[3]])
    states = [release.state for release in await catalog.releases("acme", "handbook")]
    assert states == [ReleaseState.BUILDING, ReleaseState.FAILED, ReleaseState.FAILED]


async def test_a_build_that_stopped_while_its_list_was_kept_is_begun_again(
    world: World, catalog: SqlCatalog
) -> None:
    """Nobody reads a list that isn't whole."""
    [ref] = await world.import_ready(upload("a"))
    claim = await world.release_claim()

    async def die() -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        await beginning.begin(BusyDatabase(catalog.database, die), claim, WANTED)
    [pending] = await catalog.releases("acme", "handbook")
    assert pending.state is ReleaseState.PENDING
    plan = await catalog.begin_release(claim, SPACE, CONFIG)
    assert [document.ref for document in plan.documents] == [ref]
    states = [release.state for release in await catalog.releases("acme", "handbook")]
    assert states == [ReleaseState.BUILDING, ReleaseState.FAILED]


async def test_a_hash_of_the_form_before_is_made_anew_by_a_move(world: World, catalog: SqlCatalog) -> None:
    """Releases of an older gateway go on."""
    ref, _ = await world.import_ready(upload("a"), upload("b"))
    await world.release()
    await catalog.database.write(lambda c, now: c.execute(update(releases).values(manifest_hash="0" * 32)))
    await narrowing(world, ref)()
    claim = await world.claim()
    assert claim.kind is TaskKind.MOVE
    [plan] = await catalog.begin_moves(claim)
    await catalog.finish_move(claim, plan, ClassTerms(plan.documents[0].acl_class, 1, {}))
    await catalog.finish(claim, Ending(TaskState.SUCCEEDED))
    [release] = await catalog.releases("acme", "handbook")
    claim = await world.release_claim()
    unchanged = await catalog.begin_release(claim, SPACE, CONFIG)
    assert unchanged.unchanged_release == release.release_id
    changed = await catalog.begin_release(claim, SPACE, replace(CONFIG, version="config/other"))
    assert release.manifest_hash == changed.manifest_hash
