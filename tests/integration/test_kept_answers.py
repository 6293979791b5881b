"""Answers that were kept: what is told again and to whom, and what never was whole enough to be kept."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import anyio
import pytest

from gateway.access.authorizer import CatalogRecheck, DocumentRef, DropReason
from gateway.access.classes import Acl
from gateway.access.scope import AccessScope
from gateway.adapters.memory.models import Gate, ScriptedModel
from gateway.client import StreamEvent
from gateway.errors import UpstreamFailed
from gateway.ingest.governance import AclChange
from gateway.stream.revocation import RevocationKind
from tests.harness.serving import serving_world
from tests.harness.wire import Wire, ask, connected
from tests.harness.world import World
from tests.integration.cache_world import QUESTION, TEXTS, Desk, Installation, Told, person
from tests.unit.calling_bench import InTurn, working

PIECES = ["The limit ", "is ", "42 ", "megabytes ", "[1]."]
WHOLE = "".join(PIECES)
PATIENCE_S = 20
#: found for the same question, so that the knowledge base has something left without the first
MORE = {**TEXTS, "more.md": "# More\n\nWhat the limit of an upload is for: small disks.\n"}


# -- what was cut short ------------------------------------------------------------------------------


async def leaves(world: World, port: int, wire: Wire, gate: Gate) -> None:
    wire.abort()


async def stays(world: World, port: int, wire: Wire, gate: Gate) -> None:
    await wire.all_events()


async def goes_on(world: World, port: int, wire: Wire, gate: Gate) -> None:
    gate.release.set()
    await wire.all_events()


async def is_revoked(world: World, port: int, wire: Wire, gate: Gate) -> None:
    await world.catalog.revoke("acme", RevocationKind.USER, "ann", "left", "olga")
    await world.services.feed.step()
    assert (await wire.all_events())[-1].name == "revoked"


End = Callable[[World, int, Wire, Gate], Awaitable[None]]
#: how it ends, what the call does then, and how long an answer may take
CUTS: dict[str, tuple[End, dict[int, Any], int]] = {
    "dropped": (leaves, {}, 60_000),
    "failed": (goes_on, {2: UpstreamFailed()}, 60_000),
    "late": (stays, {}, 1200),
    "revoked": (is_revoked, {}, 60_000),
}


@pytest.mark.parametrize(("end", "fail", "cap_ms"), CUTS.values(), ids=CUTS)
async def test_after_an_answer_that_ended_halfway_the_next_one_is_made_whole(
    end: End, fail: dict[int, Any], cap_ms: int
) -> None:
    """And only that one is told again."""
    gate = Gate()
    cut = ScriptedModel(PIECES, hold={2: gate}, fail=fail)
    model = InTurn(cut, working(*PIECES))
    world = World(model=model, answer_cache_ttl_s=600, answer_sharing=True, total_cap_ms=cap_ms)
    await world.learn(TEXTS)
    with anyio.fail_after(PATIENCE_S):
        async with serving_world(world) as port:
            async with connected(port) as wire:
                await wire.ask(world.token(), QUESTION)
                await until_text(wire)
                await end(world, port, wire, gate)
            await world.registry.idle()
            assert writes(world) == 0
            first, again = [await asked(port, world) for _ in range(2)]
        await world.registry.idle()
    assert first == (WHOLE, False, True)
    assert again == (WHOLE, True, True)
    assert (model.called, cut.closed, writes(world)) == (2, 1, 1)
    world.assert_nothing_held()


async def until_text(wire: Wire) -> None:
    async for event in wire.events():
        if event.name == "delta":
            return
    raise AssertionError("the answer ended")


async def asked(port: int, world: World) -> tuple[str, bool, bool]:
    """What bob is told, whether it was kept, and whether it may be."""
    _, events = await ask(port, world.token(subject="bob"), QUESTION)
    done = events[-1]
    assert done.data["status"] == "ANSWERED"
    return text_of(events), done.data["cached"], done.data["cacheable"]


def text_of(events: Sequence[StreamEvent]) -> str:
    return "".join(str(event.data["text"]) for event in events if event.name == "delta")


def writes(world: World) -> float:
    value = world.services.metrics.registry.get_sample_value("gateway_cache_writes_total", {"result": "kept"})
    assert value is not None
    return value


# -- what is told again ------------------------------------------------------------------------------


async def test_an_answer_is_told_again_by_one_look_at_the_catalog() -> None:
    """Nothing is embedded, searched for or generated, and nothing is charged for."""
    text = "The limit is 42 megabytes [1]. " * 140
    async with Installation().desk(model=ScriptedModel([text])) as desk:
        await desk.world.learn(TEXTS)
        first = await desk.ask()
        calls = desk.world.embedder.calls
        again = await desk.ask(who=person("bob"))
        assert (desk.world.model.called, desk.world.embedder.calls) == (1, calls)
        assert desk.counted("gateway_retrievals_total") == 1
        assert desk.counted("gateway_cache_total", result="hit") == 1
    assert len(first.text) > 4096
    assert (again.cached, again.text, again.done.citations) == (True, first.text, first.done.citations)
    assert again.meta.sources == first.meta.sources
    assert (again.done.usage.input_tokens, again.done.usage.output_tokens) == (0, 0)


async def test_a_refusal_is_told_again_for_a_short_time_with_its_reasons() -> None:
    """It is bound to its release like an answer."""
    question = "What is the upload limit of E-991?"
    async with Installation().desk() as desk:
        await desk.world.learn(TEXTS)
        first, again = await desk.ask(question), await desk.ask(question)
        await desk.world.learn({"more.md": "# More\n\nThe upload limit of E-991 is 7 megabytes.\n"})
        third = await desk.ask(question)
    assert first.done.reasons == again.done.reasons == ("KEY_TERMS_NOT_COVERED",)
    assert (first.cached, again.cached, third.cached) == (False, True, False)
    assert again.done.searched == first.done.searched
    assert third.done.reasons == ()


async def test_no_store_neither_reads_nor_writes() -> None:
    """What was kept stays; what is made for him isn't."""
    async with Installation().desk() as desk:
        await desk.world.learn(TEXTS)
        alone = await desk.ask(no_store=True)
        first = await desk.ask()
        again = await desk.ask(no_store=True)
        last = await desk.ask()
        assert desk.counted("gateway_cache_writes_total", result="no_store") == 2
    assert [told.cached for told in (alone, first, again, last)] == [False, False, False, True]
    assert (alone.done.cacheable, first.done.cacheable) == (False, True)


async def test_a_kept_answer_is_a_turn_of_its_conversation_like_any_other() -> None:
    """A follow-up leans on it; in another conversation the same words lean on something else."""
    texts = {**TEXTS, "holidays.md": "# Holidays\n\nStaff have 30 days of holidays.\n"}
    follow_up = "And for staff?"
    async with Installation().desk() as desk:
        await desk.world.learn(texts)
        await desk.ask(QUESTION)
        kept = await desk.ask(QUESTION, conversation_id="uploads")
        leaning = await desk.ask(follow_up, conversation_id="uploads")
        await desk.ask("How many days of holidays are there?", conversation_id="holidays")
        other = await desk.ask(follow_up, conversation_id="holidays")
        again = await desk.ask(follow_up, conversation_id="uploads")
    assert (kept.cached, leaning.cached, other.cached, again.cached) == (True, False, False, True)
    assert [told.meta.searched_for for told in (leaning, other, again)] == [
        "And for staff? (upload limit)",
        "And for staff? (days holidays)",
        "And for staff? (upload limit)",
    ]


# -- what isn't told again any more ------------------------------------------------------------------


class Later:
    """The catalog's word as it will be after ``seconds``."""

    def __init__(self, catalog: Any) -> None:
        self._recheck = CatalogRecheck(catalog)
        self.seconds = 0.0

    async def check(
        self, scope: AccessScope, refs: Sequence[DocumentRef], now: float
    ) -> Mapping[DocumentRef, DropReason | None]:
        return await self._recheck.check(scope, refs, now + self.seconds)


async def revoke(desk: Desk, document_id: str, later: Later) -> None:
    await desk.world.catalog.revoke("acme", RevocationKind.DOCUMENT, document_id, "leaked", "olga")


async def delete(desk: Desk, document_id: str, later: Later) -> None:
    await desk.world.catalog.delete_document("acme", document_id)


async def narrow(desk: Desk, document_id: str, later: Later) -> None:
    change = AclChange("acme", document_id, Acl.parse(["group:hr"]), "olga", 600)
    await desk.world.catalog.set_acl(change)


async def expire(desk: Desk, document_id: str, later: Later) -> None:
    later.seconds = 4000.0


ACTS = (revoke, delete, narrow, expire)


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
async def test_an_answer_whose_document_is_out_of_reach_is_not_told_again(
    act: Callable[[Desk, str, Later], Awaitable[None]],
) -> None:
    """By no process; nobody cleans up here, and no feed has looked yet."""
    installation = Installation()
    later = Later(installation.ground.catalog)
    options = {"recheck": later, "model": ScriptedModel(PIECES)}
    async with installation.desk(name="a", **options) as one, installation.desk(name="b", **options) as two:
        await one.world.learn(MORE, valid_until=time.time() + 3600)
        document_id = document_named(await one.ask(), "Limits")
        assert (await two.ask()).cached
        await act(one, document_id, later)
        for desk in (two, one):
            told = await desk.ask()
            assert document_id not in repr(told.events)
            assert told.failure is None
        assert two.counted("gateway_cache_total", result="hit") == 1


def document_named(told: Told, title: str) -> str:
    (document_id,) = {source.document_id for source in told.meta.sources if source.title == title}
    return document_id


@pytest.mark.parametrize("revoked", [False, True], ids=["nothing_revoked", "revoked_meanwhile"])
async def test_a_rollback_brings_an_answer_back_unless_it_was_revoked(revoked: bool) -> None:
    """The key is of the revision that is bound again; the word of the catalog is of now."""
    async with Installation().desk() as desk:
        await desk.world.learn(TEXTS)
        document_id = document_named(await desk.ask(), "Limits")
        await desk.world.learn({"more.md": MORE["more.md"]})
        assert not (await desk.ask()).cached
        if revoked:
            await desk.world.catalog.revoke("acme", RevocationKind.DOCUMENT, document_id, "leaked", "olga")
        await desk.world.catalog.roll_back("acme", "handbook")
        told = await desk.ask()
    assert told.cached is not revoked
    assert (document_id in repr(told.events)) is not revoked


async def test_after_a_deletion_an_answer_is_made_once_and_then_told_again() -> None:
    """Without the document."""
    async with Installation().desk() as desk:
        await desk.world.learn(MORE)
        document_id = document_named(await desk.ask(), "Limits")
        await desk.world.catalog.delete_document("acme", document_id)
        fresh, again = await desk.ask(), await desk.ask()
    assert (fresh.cached, again.cached) == (False, True)
    assert document_id not in repr((fresh.events, again.events))


async def test_what_lacks_a_revoked_document_is_not_kept() -> None:
    """The revocation may be lifted, and nothing of the key would tell."""
    async with Installation().desk() as desk:
        await desk.world.learn(MORE)
        document_id = document_named(await desk.ask(), "Limits")
        revoked = await desk.world.catalog.revoke(
            "acme", RevocationKind.DOCUMENT, document_id, "a mistake", "olga"
        )
        without = [await desk.ask(), await desk.ask()]
        await desk.world.catalog.lift("acme", revoked.revocation_id)
        lifted = await desk.ask()
        assert desk.counted("gateway_cache_writes_total", result="left_out") == 2
    assert [told.cached for told in without] == [False, False]
    assert document_id not in repr([told.events for told in without])
    assert document_id in repr(lifted.events)


class Ending:
    """A Recheck: ann is revoked right after its word."""

    def __init__(self, catalog: Any) -> None:
        self._catalog = catalog

    async def check(
        self, scope: AccessScope, refs: Sequence[DocumentRef], now: float
    ) -> Mapping[DocumentRef, DropReason | None]:
        found = await CatalogRecheck(self._catalog).check(scope, refs, now)
        await self._catalog.revoke("acme", RevocationKind.USER, "ann", "left", "olga")
        return found


async def test_a_right_that_ends_while_a_kept_answer_is_looked_at_ends_it() -> None:
    """Between the word on its documents and the first byte; no feed has looked."""
    installation = Installation()
    async with installation.desk(name="a") as desk:
        await desk.world.learn(TEXTS)
        await desk.ask()
        async with installation.desk(name="b", recheck=Ending(desk.world.catalog)) as late:
            told = await late.ask()
            assert late.counted("gateway_cache_total", result="hit") == 0
    assert told.events == ()
    assert told.failure is not None
    assert told.failure.code == "principal_revoked"
