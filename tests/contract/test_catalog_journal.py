"""Every catalog leaves an entry for the journal with each act that a restored backup must not forget."""

from dataclasses import replace
from typing import Protocol

import pytest

from gateway.access.apikey import ApiKey, ApiKeyStore
from gateway.ingest.governance import AclChange, Decision, Verdict
from gateway.ingest.journal import JournalOutbox
from gateway.stream.revocation import RevocationKind
from tests.contract.catalog_world import PUBLIC, SALES, World, upload

pytestmark = pytest.mark.asyncio(loop_scope="module")


class KeyedOutbox(ApiKeyStore, JournalOutbox, Protocol):
    """Both ports of the catalog."""


async def acts(world: World) -> list[str]:
    """One of each; the ids of the documents."""
    first, second = await world.import_ready(upload("a.md"), upload("b.md"))
    await world.catalog.set_acl(AclChange("acme", first.document_id, SALES, "ann", 3600))
    revocation = await world.catalog.revoke("acme", RevocationKind.USER, "eve", "left", "ann")
    await world.catalog.lift("acme", revocation.revocation_id)
    await world.catalog.delete_document("acme", second.document_id)
    return [first.document_id, second.document_id, revocation.revocation_id]


async def test_each_act_leaves_one_entry_that_says_all_of_it(world: World) -> None:
    """In the order of the acts, with what is needed to do them again."""
    first, second, revocation = await acts(world)
    entries = await world.catalog.claim_journal(30, 10)
    assert [entry.kind for entry in entries] == ["acl", "revocation", "lift", "deletion"]
    assert [entry.seq for entry in entries] == sorted({entry.seq for entry in entries})
    stamp = await world.catalog.tenant_stamp("acme")
    assert {(entry.incarnation, entry.at) for entry in entries} == {(stamp.incarnation, world.clock())}
    assert await world.catalog.journal_incarnation() == stamp.incarnation
    narrowed, revoked, lifted, deleted = (entry.payload for entry in entries)
    assert all(entry.payload["tenant"] == "acme" for entry in entries)
    assert (narrowed["document_id"], narrowed["allow"], narrowed["deny"]) == (first, ["group:sales"], [])
    assert (revoked["kind"], revoked["subject"], revoked["reason"]) == ("user", "eve", "left")
    assert (revoked["revoked_by"], revoked["revocation_id"]) == ("ann", revocation)
    assert lifted["revocation_id"] == revocation
    assert deleted["document_id"] == second


async def test_a_revoked_api_key_leaves_one_too(catalog: KeyedOutbox) -> None:
    """Once, however often it is revoked."""
    key = ApiKey(
        key_id="key_1",
        tenant="acme",
        name="robot",
        groups=frozenset({"staff"}),
        scopes=frozenset({"ask"}),
        digest="a digest",
        created_by="ann",
        created_at=1.0,
        expires_at=None,
        revoked_at=None,
    )
    await catalog.add_api_key(key)
    for _ in range(2):
        await catalog.revoke_api_key("acme", key.key_id)
    (entry,) = await catalog.claim_journal(30, 10)
    assert (entry.kind, entry.payload["tenant"], entry.payload["key_id"]) == ("api_key", "acme", "key_1")


async def test_a_rejection_leaves_one_too_and_an_approval_none(world: World) -> None:
    """With the hash of the bytes: after a restore the number may be another version's."""
    (ref,) = await world.import_ready(upload("a.md"))
    said = Verdict("acme", ref.document_id, 1, Decision.REJECT, "ann", "poison")
    for decision in (Decision.APPROVE, Decision.REJECT, Decision.REJECT):
        await world.catalog.judge(replace(said, decision=decision))
    (entry,) = await world.catalog.claim_journal(30, 10)
    assert entry.kind == "rejection"
    assert entry.payload == {
        "tenant": "acme",
        "document_id": ref.document_id,
        "version": 1,
        "content_sha256": upload("a.md").content_sha256,
        "subject": "ann",
        "note": "poison",
        "at": world.clock(),
    }


async def test_what_widens_or_changes_nothing_leaves_no_entry(world: World) -> None:
    """A wider ACL, the same one again, a deletion of what isn't there, a revocation in force."""
    (ref,) = await world.import_ready(upload("a.md", acl=SALES))
    await world.catalog.set_acl(AclChange("acme", ref.document_id, PUBLIC, "ann", 3600))
    await world.catalog.set_acl(AclChange("acme", ref.document_id, PUBLIC, "ann", 3600))
    await world.catalog.revoke("acme", RevocationKind.GROUP, "sales", "left", "ann")
    await world.catalog.revoke("acme", RevocationKind.GROUP, "sales", "left", "ann")
    await world.catalog.delete_document("acme", "doc_unknown")
    assert [entry.kind for entry in await world.catalog.claim_journal(30, 10)] == ["revocation"]


async def test_a_claimed_entry_is_nobody_elses_until_its_lease_is_over(world: World) -> None:
    """Whoever claims and dies delays it; whoever sends it takes it out for good."""
    await acts(world)
    (claimed,) = await world.catalog.claim_journal(30, 1)
    others = await world.catalog.claim_journal(30, 10)
    assert claimed not in others
    assert len(others) == 3
    assert await world.catalog.claim_journal(30, 10) == []
    world.clock.advance(31)
    assert await world.catalog.claim_journal(30, 10) == [claimed, *others]
    await world.catalog.journaled([claimed, others[0]])
    world.clock.advance(31)
    assert await world.catalog.claim_journal(30, 10) == others[1:]
    await world.catalog.journaled(others)
    world.clock.advance(31)
    assert await world.catalog.claim_journal(30, 10) == []
    assert await world.catalog.journal_lag_s() == 0


async def test_a_number_is_never_given_twice(world: World) -> None:
    """The journal knows entries by their numbers: also when all older ones have left the catalog."""
    await world.catalog.revoke("acme", RevocationKind.USER, "eve", "left", "ann")
    (first,) = await world.catalog.claim_journal(30, 10)
    await world.catalog.journaled([first])
    world.clock.advance(1000)
    await world.catalog.purge(100, 100)
    await world.catalog.revoke("acme", RevocationKind.USER, "mallory", "left", "ann")
    (second,) = await world.catalog.claim_journal(30, 10)
    assert second.seq > first.seq
