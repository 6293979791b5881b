"""Contract of Lexicon: statistics of one revision, over the permitted classes only."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from gateway.context import Deadline
from gateway.errors import DeadlineExceeded, NotFound
from gateway.ingest.plan import ClassTerms, ReleasePlan
from gateway.ingest.task import TaskClaim
from gateway.release.model import ReleaseState
from gateway.retrieval.lexicon import TermStatistics
from gateway.retrieval.query import ScopedQuery
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
    world: World, plan: ReleasePlan, terms: Sequence[str], classes: Sequence[int] = (1, 2, 3)
) -> TermStatistics:
    scope = scope_of(plan.tenant, plan.kb_id, classes)
    query = ScopedQuery(scope, plan.as_release(), at=int(world.clock()))
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
