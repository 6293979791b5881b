"""Contract of ReleaseStore: the retrieval config is rolled back on its own, the revision stays."""

from dataclasses import replace

import pytest

from gateway.access.act import Act
from gateway.errors import KnowledgeBaseNotFound, ReleaseConflict
from gateway.ingest.plan import ReleasePlan
from gateway.ingest.task import Ending, TaskState
from gateway.release.model import EmbeddingSpace, ReleaseState, RetrievalConfig, RetrievalRelease
from gateway.stream.revocation import RevocationKind
from tests.contract.catalog_world import CONFIG, PUBLIC, SALES, SPACE, World, upload

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECOND = RetrievalConfig("config/2", 1.0, 2.0, 0.75, 0.1)
THIRD = RetrievalConfig("config/3", 1.0, 2.0, 0.9)


async def released(world: World, config: RetrievalConfig, space: EmbeddingSpace = SPACE) -> ReleasePlan:
    claim = await world.release_claim()
    plan = await world.catalog.begin_release(claim, space, config)
    for state in (ReleaseState.VALIDATING, ReleaseState.READY):
        await world.catalog.advance_release(claim, plan.release_id, state)
    await world.catalog.finish(claim, Ending(TaskState.SUCCEEDED))
    await world.catalog.activate("acme", plan.release_id, None)
    return plan


async def active(world: World) -> RetrievalRelease:
    release = await world.catalog.active("acme", await world.kb_id())
    assert release is not None
    return release


async def test_the_config_goes_back_and_the_revision_stays(world: World) -> None:
    """Under a new, higher sequence; nothing is withdrawn and no release is retired."""
    await world.import_ready(upload("a"))
    await released(world, CONFIG)
    [newest] = await world.import_ready(upload("a", "two"))
    plan = await released(world, SECOND)
    epoch = await world.epoch()
    activation = await world.catalog.roll_back_config("acme", "handbook")
    release = await active(world)
    assert (activation.knowledge_revision, activation.release_sequence) == (plan.kb_revision, 3)
    assert (release.release_id, release.sequence, release.config) == (plan.release_id, 3, CONFIG)
    record = await world.catalog.release("acme", plan.release_id)
    assert record is not None
    assert (record.state, record.sequence, record.config) == (ReleaseState.ACTIVE, 3, CONFIG)
    standing = await world.standing(newest)
    assert standing is not None
    assert not standing.withdrawn
    assert await world.epoch() == epoch


async def test_going_back_again_goes_further_back_and_never_forth(world: World) -> None:
    """A config that was gone back from isn't earlier than anything."""
    await world.import_ready(upload("a"))
    for config in (CONFIG, SECOND, THIRD):
        await released(world, config)
    assert [
        (await world.catalog.roll_back_config("acme", "handbook")).release_sequence for _ in range(2)
    ] == [
        4,
        5,
    ]
    assert (await active(world)).config == CONFIG
    with pytest.raises(ReleaseConflict):
        await world.catalog.roll_back_config("acme", "handbook")
    assert (await active(world)).sequence == 5


async def test_builds_stay_with_the_config_that_was_gone_back_to(world: World) -> None:
    """Until their process brings a third one: then that."""
    await world.import_ready(upload("a"))
    await released(world, CONFIG)
    await released(world, SECOND)
    await world.catalog.roll_back_config("acme", "handbook")
    claim = await world.release_claim()
    unchanged = await world.catalog.begin_release(claim, SPACE, SECOND)
    assert unchanged.unchanged_release == (await active(world)).release_id
    await world.catalog.finish(claim, Ending(TaskState.SUCCEEDED))
    await world.import_ready(upload("b"))
    assert (await released(world, SECOND)).config == CONFIG
    assert (await released(world, THIRD)).config == THIRD
    assert (await active(world)).config == THIRD


async def test_another_spaces_config_is_nothing_to_go_back_to(world: World) -> None:
    """Its thresholds were fitted for other vectors."""
    other = EmbeddingSpace("other-space", "other-model", 8)
    await world.import_ready(upload("a"))
    await released(world, CONFIG)
    await released(world, SECOND, other)
    with pytest.raises(ReleaseConflict):
        await world.catalog.roll_back_config("acme", "handbook")
    await released(world, THIRD, other)
    await world.catalog.roll_back_config("acme", "handbook")
    assert (await active(world)).config == SECOND


async def test_the_config_and_the_pointer_go_back_each_on_its_own(world: World) -> None:
    """After the pointer has gone back the config of that release may go back too."""
    await world.import_ready(upload("a"))
    await released(world, CONFIG)
    kept = await released(world, SECOND)
    await world.import_ready(upload("b"))
    await released(world, SECOND)
    await world.catalog.roll_back("acme", "handbook")
    assert (await active(world)).release_id == kept.release_id
    await world.catalog.roll_back_config("acme", "handbook")
    release = await active(world)
    assert (release.release_id, release.config, release.sequence) == (kept.release_id, CONFIG, 5)


async def test_going_back_gives_no_permission_back(world: World) -> None:
    """A deletion, a revocation and a narrowing hold whatever config is bound."""
    deleted, revoked, narrowed = await world.import_ready(upload("a"), upload("b"), upload("c", acl=PUBLIC))
    await released(world, CONFIG)
    await released(world, SECOND)
    await world.catalog.delete_document("acme", deleted.document_id)
    await world.catalog.revoke("acme", RevocationKind.DOCUMENT, revoked.document_id, "r", "admin")
    await world.accept(upload("c", "two", acl=SALES))
    before = [await world.standing(ref) for ref in (deleted, revoked, narrowed)]
    await world.catalog.roll_back_config("acme", "handbook")
    assert [await world.standing(ref) for ref in (deleted, revoked, narrowed)] == before


async def test_going_back_may_demand_a_sequence_and_happens_once_for_a_key(world: World) -> None:
    """As every act of an operator."""
    await world.import_ready(upload("a"))
    for config in (CONFIG, SECOND, THIRD):
        await released(world, config)
    with pytest.raises(ReleaseConflict):
        await world.catalog.roll_back_config("acme", "handbook", 2)
    act = Act("acme", "olga", "release.roll_back", "hash", "key")
    first = await world.catalog.roll_back_config("acme", "handbook", 3, act=act)
    assert await world.catalog.roll_back_config("acme", "handbook", 3, act=act) == first
    assert (await active(world)).config == SECOND


async def test_without_a_release_or_a_knowledge_base_there_is_nothing_to_go_back(world: World) -> None:
    """Another tenant's is as good as missing."""
    await world.import_ready(upload("a"))
    with pytest.raises(ReleaseConflict):
        await world.catalog.roll_back_config("acme", "handbook")
    await released(world, CONFIG)
    await released(world, replace(CONFIG, version="2"))
    for tenant, name in (("acme", "wiki"), ("globex", "handbook")):
        with pytest.raises(KnowledgeBaseNotFound):
            await world.catalog.roll_back_config(tenant, name)


async def test_a_build_begun_before_the_config_went_back_loses(world: World) -> None:
    """It would bring the other config back unseen."""
    await world.import_ready(upload("a"))
    await released(world, CONFIG)
    await released(world, SECOND)
    await world.import_ready(upload("b"))
    late = await world.ready_release(config=SECOND)
    await world.catalog.roll_back_config("acme", "handbook")
    with pytest.raises(ReleaseConflict):
        await world.catalog.activate("acme", late.release_id, None)
