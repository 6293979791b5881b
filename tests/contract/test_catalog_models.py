"""Contract of ReleaseStore: the model adapter is rolled back on its own, the revision stays."""

import pytest

from gateway.access.act import Act
from gateway.errors import KnowledgeBaseNotFound, ReleaseConflict
from gateway.ingest.plan import Activation, ReleasePlan
from gateway.ingest.task import Ending, TaskState
from gateway.release.model import ReleaseState, RetrievalConfig, RetrievalRelease
from gateway.stream.revocation import RevocationKind
from tests.contract.catalog_world import CONFIG, PUBLIC, SALES, SPACE, World, upload

pytestmark = pytest.mark.asyncio(loop_scope="module")

ALL = ("first/1", "second/1", "third/1")


async def built(world: World, model: str, config: RetrievalConfig = CONFIG) -> ReleasePlan:
    claim = await world.release_claim()
    plan = await world.catalog.begin_release(claim, SPACE, config, model)
    for state in (ReleaseState.VALIDATING, ReleaseState.READY):
        await world.catalog.advance_release(claim, plan.release_id, state)
    await world.catalog.finish(claim, Ending(TaskState.SUCCEEDED))
    return plan


async def released(world: World, model: str, config: RetrievalConfig = CONFIG) -> ReleasePlan:
    plan = await built(world, model, config)
    await world.catalog.activate("acme", plan.release_id, None)
    return plan


async def back(world: World, *configured: str) -> Activation:
    return await world.catalog.roll_back_model("acme", "handbook", configured=configured or ALL)


async def active(world: World) -> RetrievalRelease:
    release = await world.catalog.active("acme", await world.kb_id())
    assert release is not None
    return release


async def test_the_model_goes_back_and_the_revision_stays(world: World) -> None:
    """Under a new, higher sequence; nothing is withdrawn and no release is retired."""
    await world.import_ready(upload("a"))
    await released(world, "first/1")
    [newest] = await world.import_ready(upload("a", "two"))
    plan = await released(world, "second/1")
    assert (await active(world)).model == "second/1"
    epoch = await world.epoch()
    activation = await back(world)
    release = await active(world)
    assert (activation.knowledge_revision, activation.release_sequence) == (plan.kb_revision, 3)
    assert (release.release_id, release.sequence, release.model) == (plan.release_id, 3, "first/1")
    record = await world.catalog.release("acme", plan.release_id)
    assert record is not None
    assert (record.state, record.sequence, record.model) == (ReleaseState.ACTIVE, 3, "first/1")
    standing = await world.standing(newest)
    assert standing is not None
    assert not standing.withdrawn
    assert await world.epoch() == epoch


async def test_the_model_goes_further_back_each_time_and_never_forth(world: World) -> None:
    """A model that was gone back from isn't earlier than anything."""
    await world.import_ready(upload("a"))
    for model in ALL:
        await released(world, model)
    assert [(await back(world)).release_sequence for _ in range(2)] == [4, 5]
    assert (await active(world)).model == "first/1"
    with pytest.raises(ReleaseConflict):
        await back(world)
    assert (await active(world)).sequence == 5


async def test_nobody_goes_back_to_a_model_that_is_not_configured(world: World) -> None:
    """And not past it either: the refusal names it, and nothing has changed."""
    await world.import_ready(upload("a"))
    for model in ALL:
        await released(world, model)
    with pytest.raises(ReleaseConflict, match="second/1"):
        await back(world, "third/1", "first/1")
    assert ((await active(world)).model, (await active(world)).sequence) == ("third/1", 3)


async def test_builds_stay_with_the_model_that_was_gone_back_to(world: World) -> None:
    """Until their process brings a third one: then that."""
    await world.import_ready(upload("a"))
    await released(world, "first/1")
    await released(world, "second/1")
    await back(world)
    claim = await world.release_claim()
    unchanged = await world.catalog.begin_release(claim, SPACE, CONFIG, "second/1")
    assert unchanged.unchanged_release == (await active(world)).release_id
    await world.catalog.finish(claim, Ending(TaskState.SUCCEEDED))
    await world.import_ready(upload("b"))
    assert (await released(world, "second/1")).model == "first/1"
    assert (await released(world, "third/1")).model == "third/1"
    assert (await active(world)).model == "third/1"


async def test_a_release_without_a_model_is_no_reason_for_a_build_and_nothing_to_go_back_to(
    world: World,
) -> None:
    """As those are that were built before releases named one."""
    await world.import_ready(upload("a"))
    await released(world, "")
    claim = await world.release_claim()
    plan = await world.catalog.begin_release(claim, SPACE, CONFIG, "first/1")
    assert plan.unchanged_release == (await active(world)).release_id
    await world.catalog.finish(claim, Ending(TaskState.SUCCEEDED))
    await world.import_ready(upload("b"))
    await released(world, "first/1")
    with pytest.raises(ReleaseConflict):
        await back(world, "", *ALL)


async def test_the_model_the_config_and_the_pointer_go_back_each_on_its_own(world: World) -> None:
    """Each leaves the other two as they are."""
    second = RetrievalConfig("config/2", 1.0, 2.0, 0.75)
    await world.import_ready(upload("a"))
    await released(world, "first/1")
    kept = await released(world, "second/1", second)
    await world.import_ready(upload("b"))
    await released(world, "second/1", second)
    await world.catalog.roll_back("acme", "handbook")
    release = await active(world)
    assert (release.release_id, release.config, release.model) == (kept.release_id, second, "second/1")
    await back(world)
    release = await active(world)
    assert (release.release_id, release.config, release.model) == (kept.release_id, second, "first/1")
    await world.catalog.roll_back_config("acme", "handbook")
    release = await active(world)
    assert (release.config, release.model, release.sequence) == (CONFIG, "first/1", 6)


async def test_a_model_gone_back_to_gives_no_permission_back(world: World) -> None:
    """A deletion, a revocation and a narrowing hold whatever model answers."""
    deleted, revoked, narrowed = await world.import_ready(upload("a"), upload("b"), upload("c", acl=PUBLIC))
    await released(world, "first/1")
    await released(world, "second/1")
    await world.catalog.delete_document("acme", deleted.document_id)
    await world.catalog.revoke("acme", RevocationKind.DOCUMENT, revoked.document_id, "r", "admin")
    await world.accept(upload("c", "two", acl=SALES))
    before = [await world.standing(ref) for ref in (deleted, revoked, narrowed)]
    await back(world)
    assert [await world.standing(ref) for ref in (deleted, revoked, narrowed)] == before


async def test_the_model_goes_back_once_for_a_key_and_from_the_expected_sequence(world: World) -> None:
    """As every act of an operator."""
    await world.import_ready(upload("a"))
    for model in ALL:
        await released(world, model)
    roll_back = world.catalog.roll_back_model
    with pytest.raises(ReleaseConflict):
        await roll_back("acme", "handbook", 2, configured=ALL)
    act = Act("acme", "olga", "release.roll_back", "hash", "key")
    first = await roll_back("acme", "handbook", 3, configured=ALL, act=act)
    assert await roll_back("acme", "handbook", 3, configured=ALL, act=act) == first
    assert (await active(world)).model == "second/1"


async def test_without_a_release_or_a_knowledge_base_no_model_goes_back(world: World) -> None:
    """Another tenant's is as good as missing."""
    await world.import_ready(upload("a"))
    with pytest.raises(ReleaseConflict):
        await back(world)
    for tenant, name in (("acme", "wiki"), ("globex", "handbook")):
        with pytest.raises(KnowledgeBaseNotFound):
            await world.catalog.roll_back_model(tenant, name, configured=ALL)


async def test_a_build_begun_before_the_model_went_back_loses(world: World) -> None:
    """It would bring the other model back unseen."""
    await world.import_ready(upload("a"))
    await released(world, "first/1")
    await released(world, "second/1")
    await world.import_ready(upload("b"))
    late = await built(world, "second/1")
    await back(world)
    with pytest.raises(ReleaseConflict):
        await world.catalog.activate("acme", late.release_id, None)
