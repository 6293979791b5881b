"""Whatever rights, releases and revocations do: nobody is told what he may not see at that moment (CAC-2)."""

import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from gateway.access.authorizer import CatalogRecheck
from gateway.access.principal import Principal
from gateway.adapters.sql.catalog import open_catalog
from gateway.answer.question import Question
from tests.harness.serving import followed
from tests.integration.cache_world import Installation, Told, answered
from tests.integration.reuse_parts import EchoModel, Engine
from tests.integration.reuse_town import Town

#: askers at once: of some questions several lead, of others one for all of them
_AT_ONCE = 4
#: the share of changes that come while they are being answered
_BESIDE = 0.3
_SEED = 1


async def run(town: Town, steps: int) -> Counter[str]:
    """Acts, asks and compares with the oracle; counts how answers came."""
    came: Counter[str] = Counter()
    await town.begin()
    for step in range(steps):
        beside = town.random.random() < _BESIDE
        if not beside:
            await town.act()
        question, people = town.question(), town.random.sample(town.people, _AT_ONCE)
        since, before = time.time(), await town.sights(people)
        told = await asked_at_once(town, people, question, town.act if beside else town.rest)
        after = await town.sights(people, since)
        for who, one in zip(people, told, strict=True):
            wrong = town.wrongly_told(one, question, {**before[who], **after[who]}.values())
            assert not wrong, f"seed {town.seed}, step {step}: {who.subject} is told {wrong} of {question!r}"
            came["failed" if one.failure else type(one.events[-1]).__name__] += 1
            came["cached"] += one.failure is None and one.meta.cached
    metrics = town.world.services.metrics.registry
    came["stale"] = int(metrics.get_sample_value("gateway_cache_total", {"result": "stale"}) or 0)
    came["shared"] = int(metrics.get_sample_value("gateway_flight_members_total", {"role": "follower"}) or 0)
    return came


async def asked_at_once(
    town: Town, people: Sequence[Principal], question: str, beside: Callable[[], Coroutine[Any, Any, None]]
) -> list[Told]:
    told: dict[Principal, Told] = {}

    async def ask(who: Principal) -> None:
        told[who] = await answered(town.world, who, Question(question))

    async with anyio.create_task_group() as tasks:
        for who in people:
            tasks.start_soon(ask, who)
        tasks.start_soon(beside)
    return [told[who] for who in people]


async def told_of_the_town(installation: Installation, steps: int, seed: int) -> Counter[str]:
    engine = Engine()
    engine.inside = CatalogRecheck(installation.ground.catalog)
    settings = {"answer_cache_refusal_ttl_s": 600, "evidence_passages": 2}
    world = installation.world(model=EchoModel(), recheck=engine, **settings)
    async with followed(world):
        came = await run(Town(world, engine, seed), steps)
    world.assert_nothing_held()
    return came


async def test_nobody_is_told_what_he_may_not_see_whoever_it_was_made_for() -> None:
    """Hits, shared and made answers: of documents and versions, of ranks, counts and words."""
    came = await told_of_the_town(Installation(), 120, _SEED)
    assert came["cached"] >= 40
    assert came["shared"] >= 20
    assert came["stale"] >= 3
    assert came["Done"] >= 150


async def test_so_it_is_with_a_catalog_on_disk(tmp_path: Path) -> None:
    """SQLite's answers come later, so that more happens at once."""
    twins = Installation()
    async with open_catalog(tmp_path / "catalog.db") as catalog:
        ground = replace(twins.ground, catalog=catalog)
        came = await told_of_the_town(replace(twins, ground=ground), 15, _SEED)
    assert came["cached"] >= 3


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 27))
async def test_so_it_is_through_thousands_of_changes(seed: int) -> None:
    """As above, for longer."""
    came = await told_of_the_town(Installation(), 200, seed)
    assert came["cached"] >= 30
