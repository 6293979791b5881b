"""The journal: every act gets there, once, whatever fails on the way; a restore does each again."""

from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from gateway.adapters.memory.catalog import MemoryCatalog
from gateway.adapters.memory.objects import MemoryObjects
from gateway.adapters.sql.catalog import SqlCatalog, open_catalog
from gateway.adapters.sql.keeping import SqlKeeping
from gateway.errors import BackupDamaged, ObjectStoreUnavailable
from gateway.ingest.journal import Journal, JournalEntry, JournalWriter
from gateway.stream.revocation import RevocationKind
from tests.contract.catalog_world import CONFIG, SPACE, Clock, World, upload
from tests.integration.import_world import Altered, Crash, Fuse


def entry(seq: int, kind: str = "revocation", incarnation: str = "inc_1", **payload: object) -> JournalEntry:
    given = {"tenant": "acme", "kind": "user", "subject": "eve", "reason": "left", "revoked_by": "ann"}
    return JournalEntry(incarnation, seq, kind, 1000.0 + seq, {**given, **payload})


async def test_a_crash_between_sending_and_marking_sends_the_same_entry_again() -> None:
    """Killed at every call: in the end each act has exactly one entry."""
    clock = Clock()
    catalog, store = MemoryCatalog(clock), MemoryObjects()
    for name in ("eve", "mallory"):
        await catalog.revoke("acme", RevocationKind.USER, name, "left", "ann")
    for at in range(1, 10):
        fuse = Fuse(at)
        writer = JournalWriter(fuse.wrap(catalog), partial(Journal, fuse.wrap(store)))
        with suppress(Crash):
            await writer.step()
        clock.advance(60)
    assert await catalog.claim_journal(30, 10) == []
    assert [one.payload["subject"] for one in await Journal(store).entries()] == ["eve", "mallory"]


async def test_a_journal_that_is_away_is_waited_for() -> None:
    """Acts go on; the entry arrives when the store is back, and the lag says how late it is."""
    clock, store, tried, back = Clock(), MemoryObjects(), anyio.Event(), anyio.Event()
    catalog = MemoryCatalog(clock)
    await catalog.revoke("acme", RevocationKind.USER, "eve", "left", "ann")
    clock.advance(7)

    async def put(real: object, key: str, content: bytes) -> None:
        if not back.is_set():
            tried.set()
            clock.advance(60)
            raise ObjectStoreUnavailable()
        await store.put(key, content)
        if key.endswith(".json"):
            arrived.set()

    arrived = anyio.Event()
    writer = JournalWriter(catalog, lambda: Journal(Altered(store, put=put)), poll_s=0.001)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(writer.run)
            await tried.wait()
            assert writer.lag_s >= 7
            back.set()
            await arrived.wait()
            group.cancel_scope.cancel()
    assert len(await Journal(store).entries()) == 1


async def test_a_journal_is_marked_as_soon_as_the_catalog_knows_whose_it_is() -> None:
    """Before there is any act; not while a restore waits for its confirmation, and again for another name."""
    store, names = MemoryObjects(), ["", "inc_1", "inc_1", "inc_2"]

    async def incarnation(_real: object) -> str:
        return names.pop(0)

    outbox: Any = Altered(MemoryCatalog(Clock()), journal_incarnation=incarnation)
    journal, marked = Journal(store), []
    writer = JournalWriter(outbox, lambda: journal)
    for _ in range(4):
        await writer.step()
        marked.append([one.key async for one in store.list("")])
    assert marked == [[], ["inc_1/marker"], ["inc_1/marker"], ["inc_1/marker", "inc_2/marker"]]
    assert await journal.entries() == []
    (lacking,) = await journal.lacking("inc_1", [7])
    assert entry(7).name.startswith(lacking)
    assert len(await journal.lacking("inc_3", [7])) == 2


async def test_entries_come_back_in_the_order_of_their_acts() -> None:
    """Incarnations one after the other, and inside one by number."""
    store = MemoryObjects()
    later = JournalEntry("inc_0", 1, "lift", 5000.0, {})
    for one in (later, entry(10), entry(9), entry(2)):
        await Journal(store).append(one)
    assert [(one.incarnation, one.seq) for one in await Journal(store).entries()] == [
        ("inc_1", 2),
        ("inc_1", 9),
        ("inc_1", 10),
        ("inc_0", 1),
    ]


async def test_no_entry_takes_the_place_of_another_with_its_number() -> None:
    """A database that was put back to an earlier moment counts anew, under the same incarnation."""
    journal = Journal(MemoryObjects())
    first, second = entry(1, subject="eve"), replace(entry(1, subject="mallory"), at=9000.0)
    for one in (second, first, first):
        await journal.append(one)
    assert await journal.entries() == [first, second]
    assert await journal.lacking("inc_1", [1, 2]) == ["inc_1/00000000000000000002", "inc_1/marker"]


OF_ANOTHER_NAME = b'{"incarnation": "inc_1", "seq": 1, "kind": "lift", "at": 1.0, "payload": {}}'


@pytest.mark.parametrize("content", [b"", b"{}", b'{"incarnation": "inc_2"}', b"\xff", OF_ANOTHER_NAME])
async def test_a_damaged_entry_stops_a_restore(content: bytes) -> None:
    """Passing it over would forget an act."""
    store = MemoryObjects()
    await Journal(store).append(entry(1))
    await store.put(entry(2).name, content)
    with pytest.raises(BackupDamaged):
        await Journal(store).entries()


async def restoring(catalog: SqlCatalog, *entries: JournalEntry) -> list[bool]:
    keeping = SqlKeeping(catalog.database)
    return [await keeping.replay(one) for one in entries]


async def test_acts_on_what_the_backup_does_not_know_hold_all_the_same(tmp_path: Path) -> None:
    """A name that comes back after the restore is blocked; what is gone for good is passed over."""
    async with open_catalog(tmp_path / "catalog.db") as catalog:
        gone = entry(1, subject="handbook", kind="revocation", revocation_id="rvk_1")
        gone = replace(gone, payload={**gone.payload, "kind": "knowledge_base"})
        acl = {"document_id": "doc_9", "allow": ["public"], "deny": []}
        done = await restoring(
            catalog,
            gone,
            entry(2, "deletion", document_id="doc_9"),
            replace(entry(3, "acl"), payload={"tenant": "acme", **acl}),
            entry(4, "lift", revocation_id="rvk_9"),
            entry(5, "api_key", key_id="key_9"),
            entry(6, revocation_id="rvk_6"),
        )
        assert done == [True] * 6
        assert (await catalog.revocations("acme")).knowledge_bases == {"handbook"}
        assert [one.revocation_id for one in await catalog.list_revocations("acme")] == [
            "rvk_6",
            "rvk_1",
        ]
        assert await restoring(catalog, gone) == [False], "each is done once"
        assert await catalog.claim_journal(30, 10) == [], "the journal has these acts already"


async def test_a_revocation_that_is_there_twice_is_done_once(tmp_path: Path) -> None:
    """Under another name after its lift, it would block again whom the lift has let in."""
    async with open_catalog(tmp_path / "catalog.db") as catalog:
        done = await restoring(
            catalog,
            entry(1, revocation_id="rvk_1"),
            entry(2, "lift", revocation_id="rvk_1"),
            entry(7, incarnation="inc_2", revocation_id="rvk_1"),
        )
        assert done == [True] * 3
        assert (await catalog.revocations("acme")).users == frozenset()
        assert len(await catalog.list_revocations("acme")) == 1


async def test_an_act_that_nobody_knows_stops_a_restore(tmp_path: Path) -> None:
    """A newer version's journal can't be read by halves."""
    async with open_catalog(tmp_path / "catalog.db") as catalog:
        with pytest.raises(BackupDamaged):
            await restoring(catalog, entry(1, "something_else"))
        with pytest.raises(BackupDamaged):
            await restoring(catalog, JournalEntry("inc_1", 2, "deletion", 1.0, {"tenant": "acme"}))


async def test_a_rejection_is_done_again_on_the_same_bytes_only(tmp_path: Path) -> None:
    """Its version is gone at once, since the backup's active release may hold it, and in whatever state it
    is; what came to have its number is another one.
    """
    async with open_catalog(tmp_path / "catalog.db") as catalog:
        world = World(catalog, Clock())
        bad, other = await world.import_ready(upload("a", "poison"), upload("b", "fine"))
        slow = (await world.accept(upload("c", "slow"))).documents[0]
        await world.release()
        epoch = await world.epoch()

        def rejection(seq: int, document_id: str, text: str) -> JournalEntry:
            digest = upload("x", text).content_sha256
            of = {"document_id": document_id, "content_sha256": digest}
            return entry(seq, "rejection", version=1, note="no", at=1.0, **of)

        await restoring(
            catalog,
            rejection(1, bad.document_id, "poison"),
            rejection(2, other.document_id, "other bytes"),
            rejection(3, slow.document_id, "slow"),
            rejection(4, "doc_9", "poison"),
        )
        stood = {ref: await world.standing(ref) for ref in (bad, other)}
        assert [one is not None and one.withdrawn for one in stood.values()] == [True, False]
        known = await catalog.document("acme", bad.document_id)
        assert known is not None
        assert (known.approval, known.approved_by, known.approved_at) == ("rejected", "eve", 1.0)
        assert await world.epoch() == epoch + 2
        claim = await world.release_claim()
        plan = await catalog.begin_release(claim, SPACE, CONFIG)
        assert [document.ref for document in plan.documents] == [other]
