"""Contract of Lexicon: statistics of one revision, over what is permitted and valid only."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from gateway.access.authorizer import DocumentRef
from gateway.context import Deadline
from gateway.errors import DeadlineExceeded, NotFound
from gateway.ingest.plan import ClassTerms, ReleasePlan
from gateway.ingest.references import DocumentTerms
from gateway.ingest.task import Ending, TaskClaim, TaskKind, TaskState
from gateway.release.model import ReleaseState
from gateway.retrieval.chunk import FOREVER
from gateway.retrieval.lexicon import ALWAYS, TermStatistics, Validity
from gateway.retrieval.query import ScopedQuery
from gateway.stream.revocation import RevocationKind
from tests.contract.catalog_world import CONFIG, HOSTILE_NAMES, SPACE, World, scope_of, upload

#: a PostgreSQL database is kept for the whole module
pytestmark = pytest.mark.asyncio(loop_scope="module")

CLASSES = (
    ClassTerms(1, 10, {"refund": 4, "policy": 2}),
    ClassTerms(2, 5, {"refund": 1, "salary": 5}),
    ClassTerms(3, 7, {"merger": 7}),
)


async def _begun(world: World, tenant: str = "acme") -> tuple[TaskClaim, ReleasePlan]:
    await world.import_ready(upload("a"), tenant=tenant)
    claim = await world.release_claim(tenant=tenant)
    return claim, await world.catalog.begin_release(claim, SPACE, CONFIG)


async def _ask(
    world: World,
    plan: ReleasePlan,
    terms: Sequence[str],
    classes: Sequence[int] = (1, 2, 3),
    at: int | None = None,
) -> TermStatistics:
    scope = scope_of(plan.tenant, plan.kb_id, classes)
    query = ScopedQuery(scope, plan.as_release(), at=int(world.clock()) if at is None else at)
    return await world.catalog.statistics(query, terms, Deadline.after(60_000))


async def test_statistics_add_up_the_permitted_classes(world: World) -> None:
    """Asked terms that occur; a term seen in two classes is their sum."""
    claim, plan = await _begun(world)
    await world.catalog.store_terms(claim, plan.kb_revision, CLASSES)
    statistics = await _ask(world, plan, ["refund", "salary", "absent", "refund"], (1, 2))
    assert statistics == TermStatistics(passages=15, frequencies={"refund": 5, "salary": 5})


@pytest.mark.parametrize(
    ("classes", "passages", "frequencies"),
    [
        ((1,), 10, {"refund": 4}),
        ((2,), 5, {"refund": 1}),
        ((3,), 7, {"merger": 7}),
        ((1, 3), 17, {"refund": 4, "merger": 7}),
        ((1, 99), 10, {"refund": 4}),
        ((99,), 0, {}),
    ],
)
async def test_a_hidden_class_leaves_no_trace(
    world: World, classes: tuple[int, ...], passages: int, frequencies: dict[str, int]
) -> None:
    """Neither its terms nor its passages are counted for who may not see it."""
    claim, plan = await _begun(world)
    await world.catalog.store_terms(claim, plan.kb_revision, CLASSES)
    assert await _ask(world, plan, ["refund", "merger"], classes) == TermStatistics(passages, frequencies)


async def test_without_terms_only_passages_are_counted(world: World) -> None:
    """A question may hold nothing but stop words."""
    claim, plan = await _begun(world)
    await world.catalog.store_terms(claim, plan.kb_revision, CLASSES)
    assert await _ask(world, plan, []) == TermStatistics(22, {})


async def test_a_spent_deadline_is_an_error_and_no_empty_answer(world: World) -> None:
    """Nobody may mistake it for a knowledge base without passages."""
    claim, plan = await _begun(world)
    await world.catalog.store_terms(claim, plan.kb_revision, CLASSES)
    query = ScopedQuery(scope_of(plan.tenant, plan.kb_id, [1]), plan.as_release(), at=0)
    with pytest.raises(DeadlineExceeded):
        await world.catalog.statistics(query, ["refund"], Deadline.after(-1))


async def test_a_caller_with_thousands_of_classes_is_answered(world: World) -> None:
    """As many as a scope may hold, and more terms than a question has."""
    claim, plan = await _begun(world)
    classes = [ClassTerms(number, 1, {"shared": 1, f"term-{number}": 1}) for number in range(1, 4097)]
    await world.catalog.store_terms(claim, plan.kb_revision, classes)
    terms = ["shared", *(f"term-{number}" for number in range(1, 500))]
    statistics = await _ask(world, plan, terms, range(1, 4097))
    assert statistics.passages == statistics.frequencies["shared"] == 4096
    assert len(statistics.frequencies) == 500


async def test_storing_again_replaces_and_does_not_add(world: World) -> None:
    """A replayed build counts every passage once."""
    claim, plan = await _begun(world)
    for _ in range(2):
        await world.catalog.store_terms(claim, plan.kb_revision, CLASSES)
    assert (await _ask(world, plan, ["refund"])) == TermStatistics(22, {"refund": 5})


async def test_each_revision_is_counted_for_itself(world: World) -> None:
    """A release being built doesn't touch the statistics of the active one."""
    claim, first = await _begun(world)
    await world.catalog.store_terms(claim, first.kb_revision, CLASSES)
    second = await world.catalog.begin_release(claim, SPACE, CONFIG)
    assert await _ask(world, second, ["refund"]) == TermStatistics(0, {})
    await world.catalog.store_terms(claim, second.kb_revision, [ClassTerms(1, 2, {"refund": 2})])
    assert (await _ask(world, first, ["refund"])).passages == 22
    assert await _ask(world, second, ["refund"]) == TermStatistics(2, {"refund": 2})


async def test_terms_are_stored_only_for_a_revision_of_the_claimed_task(world: World) -> None:
    """Another tenant's and an unknown revision look missing."""
    foreign_claim, foreign = await _begun(world, "globex")
    await world.catalog.store_terms(foreign_claim, foreign.kb_revision, CLASSES)
    claim, _ = await _begun(world)
    for revision in (foreign.kb_revision, "no-such-revision", ""):
        with pytest.raises(NotFound):
            await world.catalog.store_terms(claim, revision, [ClassTerms(1, 99, {"forged": 99})])
    assert await _ask(world, foreign, ["refund", "forged"]) == TermStatistics(22, {"refund": 5})


async def test_a_foreign_revision_counts_nothing(world: World) -> None:
    """Not even when a release of the caller's own names it."""
    claim, foreign = await _begun(world, "globex")
    await world.catalog.store_terms(claim, foreign.kb_revision, CLASSES)
    _, own = await _begun(world)
    forged = replace(own, kb_revision=foreign.kb_revision)
    assert await _ask(world, forged, ["refund"]) == TermStatistics(0, {})


async def test_reclaiming_a_release_drops_its_statistics(world: World) -> None:
    """Together with the state, and nobody else's."""
    claim, first = await _begun(world)
    await world.catalog.store_terms(claim, first.kb_revision, CLASSES)
    await world.catalog.advance_release(claim, first.release_id, ReleaseState.FAILED)
    second = await world.catalog.begin_release(claim, SPACE, CONFIG)
    await world.catalog.store_terms(claim, second.kb_revision, CLASSES)
    await world.catalog.mark_reclaimed("acme", first.release_id)
    assert await _ask(world, first, ["refund"]) == TermStatistics(0, {})
    assert (await _ask(world, second, ["refund"])).passages == 22


@pytest.mark.parametrize("term", HOSTILE_NAMES, ids=lambda name: ascii(name[:12]))
async def test_hostile_terms_match_literally(world: World, term: str) -> None:
    """A wildcard or a quote in a question is a character like any other."""
    claim, plan = await _begun(world)
    terms = ClassTerms(1, 10, {"refund": 4, term: 1})
    await world.catalog.store_terms(claim, plan.kb_revision, [terms])
    assert await _ask(world, plan, [term]) == TermStatistics(10, {term: 1})
    await world.catalog.store_terms(claim, plan.kb_revision, [ClassTerms(1, 10, {"refund": 4})])
    assert await _ask(world, plan, [term]) == TermStatistics(10, {})


# validity

EMBARGO, EXPIRY = 2_000, 1_000
DATED = (
    ClassTerms(1, 10, {"refund": 4}),
    ClassTerms(1, 3, {"refund": 1, "zebra": 3}, Validity(EMBARGO, FOREVER)),
    ClassTerms(1, 2, {"zebra": 1}, Validity(0, EXPIRY)),
    ClassTerms(2, 1, {"zebra": 1}, Validity(EMBARGO, EMBARGO + 1)),
)


@pytest.mark.parametrize("classes", [[1], range(1, 200)], ids=["listed", "counted-here"])
@pytest.mark.parametrize(
    ("at", "passages", "refund", "zebra"),
    [(EXPIRY - 1, 12, 4, 1), (EXPIRY, 10, 4, 0), (EMBARGO - 1, 10, 4, 0), (EMBARGO + 1, 13, 5, 3)],
    ids=["before-the-end", "at-the-end", "before-the-start", "afterwards"],
)
async def test_a_passage_out_of_its_time_leaves_no_trace(
    world: World, classes: Sequence[int], at: int, passages: int, refund: int, zebra: int
) -> None:
    """Like one of a hidden class: neither its terms nor its passages are counted."""
    claim, plan = await _begun(world)
    await world.catalog.store_terms(claim, plan.kb_revision, DATED)
    frequencies = {term: number for term, number in {"refund": refund, "zebra": zebra}.items() if number}
    found = await _ask(world, plan, ["refund", "zebra"], classes, at)
    assert found == TermStatistics(passages, frequencies)


#: as what a release may count passages that are valid from EMBARGO on
COUNTED = pytest.mark.parametrize(
    "counted", [Validity(EMBARGO, FOREVER), ALWAYS], ids=["with-its-dates", "before-dates-were-counted"]
)


async def _released(world: World, counted: Validity) -> tuple[ReleasePlan, DocumentRef]:
    """Two documents, ``late`` valid from EMBARGO on, in a release that counts its passage as ``counted``."""
    late, _ = await world.import_ready(upload("late", valid_from=EMBARGO), upload("other"))
    claim = await world.release_claim()
    plan = await world.catalog.begin_release(claim, SPACE, CONFIG)
    groups = {ALWAYS: 1, counted: 1} if counted != ALWAYS else {ALWAYS: 2}
    terms = [ClassTerms(1, number, {"zebra": number}, validity) for validity, number in groups.items()]
    await world.catalog.store_terms(claim, plan.kb_revision, terms)
    for state in (ReleaseState.VALIDATING, ReleaseState.READY):
        await world.catalog.advance_release(claim, plan.release_id, state)
    await world.catalog.activate("acme", plan.release_id, None, claim)
    await world.catalog.finish(claim, Ending(TaskState.SUCCEEDED))
    return plan, late


@COUNTED
async def test_a_move_keeps_the_validity_under_which_passages_are_counted(
    world: World, counted: Validity
) -> None:
    """Out of its class, and back with the same dates."""
    plan, late = await _released(world, counted)
    early = 1 if counted != ALWAYS else 2
    record = await world.catalog.revoke("acme", RevocationKind.DOCUMENT, late.document_id, "leak", "olga")
    await _moved(world, 0)
    for at in (EMBARGO - 1, EMBARGO):
        assert await _ask(world, plan, ["zebra"], at=at) == TermStatistics(1, {"zebra": 1})
    await world.catalog.lift("acme", record.revocation_id)
    await _moved(world, 1)
    assert await _ask(world, plan, ["zebra"], at=EMBARGO - 1) == TermStatistics(early, {"zebra": early})
    assert await _ask(world, plan, ["zebra"], at=EMBARGO) == TermStatistics(2, {"zebra": 2})


async def _moved(world: World, acl_class: int) -> None:
    claim = await world.claim()
    assert claim.kind is TaskKind.MOVE
    for plan in await world.catalog.begin_moves(claim):
        await world.catalog.finish_move(claim, plan, ClassTerms(acl_class, 1, {"zebra": 1}))
    await world.catalog.finish(claim, Ending(TaskState.SUCCEEDED))


@COUNTED
async def test_a_forgotten_document_is_taken_out_of_the_validity_it_was_counted_under(
    world: World, counted: Validity
) -> None:
    """And out of no other."""
    plan, late = await _released(world, counted)
    await world.catalog.delete_document("acme", late.document_id)
    claim = await world.catalog.claim("worker", 30.0, 5)
    assert claim is not None
    remains = await world.catalog.remains(claim)
    assert remains is not None
    await world.catalog.forget(claim, remains.holdings[0], DocumentTerms(1, {"zebra": 1}))
    for at in (EMBARGO - 1, EMBARGO):
        assert await _ask(world, plan, ["zebra"], at=at) == TermStatistics(1, {"zebra": 1})
