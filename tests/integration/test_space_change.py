"""A change of the embedding space: the new one is built beside the old one, and the two never mix."""

import itertools
import json
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from gateway.access.scope import AccessScope
from gateway.adapters.embedded.embedder import SPACE
from gateway.adapters.memory.catalog import MemoryCatalog
from gateway.adapters.memory.models import FixedEmbedder
from gateway.adapters.memory.objects import MemoryObjects
from gateway.adapters.milvus.client import Endpoint
from gateway.adapters.milvus.layout import server_layout
from gateway.adapters.milvus.store import MilvusStore
from gateway.adapters.openai.embedding import space_of
from gateway.bootstrap.models import ModelsOpener
from gateway.context import Deadline
from gateway.errors import EmbedderUnavailable, EmbeddingSpaceMismatch
from gateway.ingest.task import TaskState
from gateway.release.model import EmbeddingSpace, ReleaseState, RetrievalConfig, RetrievalRelease
from gateway.retrieval.embedding import Embedders, Vector
from gateway.retrieval.query import ScopedQuery
from gateway.retrieval.retriever import FusionSettings, Retriever
from gateway.settings import Settings
from gateway.web.readiness import Check
from tests.harness.serving import serving_world
from tests.harness.wire import connected
from tests.harness.world import World, twins
from tests.integration.import_world import (
    KB,
    TENANT,
    TEXTS,
    Altered,
    Clock,
    Crash,
    Fuse,
    ImportWorld,
    RecordingEmbedder,
)

if TYPE_CHECKING:
    from tests.harness.milvus_server import MilvusServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

OLD = "fixed-32-v1"
NEW = "fixed-32-v2"


def switch(imports: ImportWorld, space_id: str = NEW) -> RecordingEmbedder:
    """The process was started again with another embedder."""
    imports.embedder = RecordingEmbedder(space_id)
    return imports.embedder


async def reindexed(imports: ImportWorld) -> RetrievalRelease:
    """What ``qa-gateway reindex --activate`` asks for."""
    task = await imports.build_release()
    assert task.state is TaskState.SUCCEEDED
    await imports.catalog.activate(TENANT, str(task.release_id), None)
    return await imports.active()


async def test_a_new_space_is_built_from_what_is_there(imports: ImportWorld) -> None:
    """Every text is embedded once more, from the passages; no document is parsed or uploaded again."""
    await imports.learn(TEXTS)
    before, old = await imports.dump(), await imports.active()
    embedder = switch(imports)

    async def never(*_: Any) -> None:
        raise AssertionError

    task = await imports.build_release(imports.worker(parser=Altered(imports.parser, build=never)))
    assert task.state is TaskState.SUCCEEDED
    assert await imports.active() == old
    assert await imports.dump(old) == before
    assert len(embedder.texts) == len(set(embedder.texts)) == len(before.rows)
    await imports.catalog.activate(TENANT, str(task.release_id), None)
    release, after = await imports.active(), await imports.dump()
    assert (release.space.space_id, release.collection) == (NEW, imports.space.collection)
    assert release.collection != old.collection
    assert after.contents == before.contents
    assert {chunk.embedding_space_id for chunk in after.chunks} == {NEW}
    assert await imports.dump(old) == before


async def test_the_second_build_in_a_space_embeds_what_is_new(imports: ImportWorld) -> None:
    """Every release says how many of its vectors its own task made."""
    await imports.learn(TEXTS)
    embedder = switch(imports)
    await reindexed(imports)
    embedder.texts.clear()
    await imports.learn({"travel": "# travel\n\nNobody travels.\n"})
    assert embedder.texts == ["travel\nNobody travels."]
    assert [release.vectors for release in await imports.releases()] == [
        {"reused": 4, "embedded": 1},
        {"reused": 0, "embedded": 6},
        {"reused": 0, "embedded": 6},
    ]


async def test_a_change_of_space_survives_a_crash_at_every_step(imports: ImportWorld) -> None:
    """Whatever happened before is kept: no text is embedded twice but the ones in hand."""
    if imports.real:
        pytest.skip("every step, on the twins alone")
    await imports.learn(TEXTS)
    old, before = await imports.active(), await imports.dump()
    accepted = await imports.catalog.accept_release(TENANT, KB, 36_000.0)
    embedder = switch(imports)
    step, ended = 0, False
    while not ended:
        step += 3
        fuse = Fuse(step)
        claim = await imports.claim(attempts=1000)
        try:
            await imports.fused_worker(fuse).work(claim)
            ended = True
        except* Crash:
            imports.clock.advance(700)
        assert await imports.active() == old
    assert step > 20
    assert (await imports.task(accepted)).state is TaskState.SUCCEEDED
    assert len(embedder.texts) <= 3 * len(before.rows)
    ready = [r for r in await imports.releases() if r.state is ReleaseState.READY]
    await imports.catalog.activate(TENANT, ready[0].release_id, None)
    assert (await imports.dump()).contents == before.contents


async def test_an_embedder_that_fails_halfway_loses_nothing_of_what_it_made(imports: ImportWorld) -> None:
    """The task is tried again and embeds the rest only."""
    await imports.learn(TEXTS)
    old, before = await imports.active(), await imports.dump()
    embedder = switch(imports)
    calls = 0

    async def failing(embed: Any, texts: Sequence[str], deadline: Deadline) -> list[Vector]:
        nonlocal calls
        calls += 1
        if calls > 2:
            raise EmbedderUnavailable
        found: list[Vector] = await embed(texts, deadline)
        return found

    accepted = await imports.catalog.accept_release(TENANT, KB, 36_000.0)
    await imports.work(accepted, imports.worker(embedder=Altered(embedder, embed=failing)))
    assert (len(embedder.texts), await imports.active()) == (4, old)
    imports.clock.advance(700)
    task = await imports.work(accepted)
    assert (task.state, len(embedder.texts)) == (TaskState.SUCCEEDED, len(before.rows))


async def test_an_import_after_the_change_takes_the_whole_base_into_the_new_space(
    imports: ImportWorld,
) -> None:
    """And one without activation leaves the old space answering, with its vectors in both."""
    await imports.learn(TEXTS)
    old, before = await imports.active(), await imports.dump()
    switch(imports)
    assert (await imports.learn({"parking": TEXTS["travel"]}, activate=False)).state is TaskState.SUCCEEDED
    assert (await imports.active(), await imports.dump(old)) == (old, before)
    assert (await imports.learn({"travel": "# travel\n\nNobody travels.\n"})).state is TaskState.SUCCEEDED
    release, after = await imports.active(), await imports.dump()
    assert release.space.space_id == NEW
    assert after.sources == {"travel.md", "refund.md", "access.md", "parking.md"}
    assert "Nobody travels." in "".join(after.contents)
    assert await imports.dump(old) == before


async def test_the_way_back_leads_across_spaces(imports: ImportWorld) -> None:
    """A rollback binds the old space again, and the next build the new one."""
    await imports.learn(TEXTS)
    old, before = await imports.active(), await imports.dump()
    switch(imports)
    new = await reindexed(imports)
    await imports.catalog.roll_back(TENANT, KB)
    back = await imports.active()
    assert (back.space, back.kb_revision, back.sequence) == (old.space, old.kb_revision, new.sequence + 1)
    assert (await imports.dump()).rows == before.rows
    assert (await reindexed(imports)).space == new.space


async def test_a_process_of_the_old_space_builds_in_the_old_space(imports: ImportWorld) -> None:
    """While processes are replaced one by one both kinds build; what each builds is of its own space."""
    await imports.learn(TEXTS)
    old_embedder = imports.embedder
    switch(imports)
    await reindexed(imports)
    imports.embedder = old_embedder
    await imports.learn({"late": TEXTS["travel"]})
    assert (await imports.active()).space.space_id == OLD
    assert {chunk.embedding_space_id for chunk in (await imports.dump()).chunks} == {OLD}


async def test_a_release_of_an_earlier_attempt_counts_only_when_it_would_be_built_like_that_today(
    imports: ImportWorld,
) -> None:
    """The calibration was changed between two attempts of one task."""
    await imports.learn(TEXTS)
    accepted = await imports.catalog.accept_release(TENANT, KB, 36_000.0)
    switch(imports)
    first = await imports.releaser().build(await imports.claim())
    imports.clock.advance(700)
    assert await imports.releaser().build(await imports.claim()) == first
    imports.clock.advance(700)
    imports.config = RetrievalConfig("open/2", 1.0, 1.0, 0.5)
    second = await imports.releaser().build(await imports.claim())
    assert second != first
    record = await imports.catalog.release(TENANT, second)
    assert record is not None
    assert record.config == imports.config
    assert (await imports.task(accepted)).release_id == second


async def test_a_document_too_sensitive_for_the_new_embedder_keeps_the_release_from_being_built(
    imports: ImportWorld,
) -> None:
    """No text of it leaves, and its name is told; the old space goes on answering."""
    await imports.learn({"travel": TEXTS["travel"]})
    await imports.learn({"secret": TEXTS["refund"]}, sensitivity=3)
    old = await imports.active()
    embedder = imports.embedder = RecordingEmbedder(NEW, max_sensitivity=1)
    task = await imports.build_release()
    assert (task.state, task.error_code) == (TaskState.FAILED, "document_unusable")
    assert task.error_detail is not None
    assert task.error_detail.startswith("secret.md: ")
    assert not any("refund" in text for text in embedder.texts)
    assert await imports.active() == old


async def asked(imports: ImportWorld, retriever: Retriever) -> str:
    """One question to whatever is active; the space it was answered in, and from nothing else."""
    release = await imports.active()
    classes = await imports.catalog.acl_classes(TENANT, release.kb_id)
    numbers = frozenset(acl_class.number for acl_class in classes)
    scope = AccessScope(TENANT, release.kb_id, KB, 0, 0, "test", frozenset({"test"}), numbers)
    query = ScopedQuery(scope, release, int(time.time()))
    question = "Which rule applies to travel?"
    vector = await retriever.embed(query, question, Deadline.after(10_000))
    found = await retriever.search(query, question, vector, Deadline.after(20_000))
    (space_id,) = {candidate.chunk.embedding_space_id for candidate in found.candidates}
    assert (found.foreign, space_id) == (0, release.space.space_id)
    assert found.candidates[0].chunk.title == "travel"
    return space_id


async def change_under_questions(imports: ImportWorld) -> list[str]:
    """The spaces that questions were answered in, one after the other, while the space changed and back."""
    await imports.learn(TEXTS)
    old = imports.embedder
    retriever = Retriever(Embedders(switch(imports), old), imports.vectors, FusionSettings(8, 60, 1.0, 2.0))
    spaces: list[str] = []

    async def ask() -> None:
        while True:
            spaces.append(await asked(imports, retriever))

    with anyio.fail_after(120):
        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await reindexed(imports)
            spaces.append(await asked(imports, retriever))
            await imports.catalog.roll_back(TENANT, KB)
            spaces.append(await asked(imports, retriever))
            group.cancel_scope.cancel()
    return spaces


async def test_questions_are_answered_throughout_the_change(imports: ImportWorld) -> None:
    """Each in one space: the old one, then the new one, then after the rollback the old one."""
    spaces = await change_under_questions(imports)
    assert [space_id for space_id, _ in itertools.groupby(spaces)] == [OLD, NEW, OLD]


@pytest.mark.soak
async def test_questions_are_answered_throughout_the_change_on_a_server(milvus: "MilvusServer") -> None:
    """Two collections beside each other, both with an index of their own."""
    store = MilvusStore(lambda: Endpoint(milvus.uri), server_layout)
    imports = ImportWorld(MemoryCatalog(), store, MemoryObjects(), Clock(), real=True)
    imports.embedder = RecordingEmbedder(OLD)
    try:
        spaces = await change_under_questions(imports)
    finally:
        await store.aclose()
    assert [space_id for space_id, _ in itertools.groupby(spaces)] == [OLD, NEW, OLD]


async def test_a_gateway_answers_releases_of_the_space_before_while_it_knows_the_embedder() -> None:
    """Without it they are refused; built anew they need it no more."""
    world = World()
    await world.learn({"a.md": "# Limits\n\nThe upload limit is 42 megabytes.\n"}, knowledge_base=KB)

    def changed(previous: FixedEmbedder | None) -> World:
        new = FixedEmbedder(space_id=NEW)
        parts = {name: getattr(world, name) for name in ("catalog", "vectors", "objects")}
        ground = replace(twins(world.settings, new), offline_embedder=FixedEmbedder(space_id=NEW), **parts)
        return World(ground=ground, previous_embedder=previous)

    async def answer(gateway: World) -> tuple[int, str]:
        """The status, and the space or the code."""
        async with serving_world(gateway) as port, connected(port) as wire:
            await wire.ask(gateway.token(), "What is the upload limit?")
            head = await wire.read_head()
            if head.status != 200:
                return head.status, json.loads(await wire.body())["code"]
            meta, *_, done = await wire.all_events()
            assert done.data["status"] == "ANSWERED"
            return head.status, meta.data["embedding_space_id"]

    with anyio.fail_after(30):
        assert await answer(changed(FixedEmbedder(space_id=OLD))) == (200, OLD)
        alone = changed(None)
        assert await answer(alone) == (503, "embedding_space_mismatch")
        await world.catalog.accept_release("acme", KB, 600)
        await alone.work()
        (built, _) = await world.catalog.releases("acme", KB)
        await world.catalog.activate("acme", built.release_id, None)
        assert await answer(alone) == (200, NEW)


async def test_questions_are_embedded_for_the_space_of_their_release() -> None:
    """By the present embedder or the one before; of no third space."""
    present, previous = FixedEmbedder(space_id=NEW), FixedEmbedder(space_id=OLD)
    embedders = Embedders(present, previous)
    assert embedders.of(present.space) is present
    assert embedders.of(previous.space) is previous
    with pytest.raises(EmbeddingSpaceMismatch, match="needs third"):
        embedders.of(FixedEmbedder(space_id="third").space)
    assert Embedders(present, FixedEmbedder(space_id=NEW)).of(present.space) is present


async def test_the_embedder_of_before_is_named_by_the_settings() -> None:
    """None, the bundled one, or an endpoint's; readiness asks an endpoint whether it answers."""
    checks: dict[str, Check] = {}

    async def opened(**settings: Any) -> EmbeddingSpace | None:
        previous = await ModelsOpener(Settings(**settings), stack, checks).previous_embedder()
        return None if previous is None else previous.space

    async with AsyncExitStack() as stack:
        assert await opened() is None
        assert await opened(previous_embedding_name="bundled") == SPACE
        assert checks == {}
        address = {"previous_embedding_base_url": "http://127.0.0.1:1/v1", "previous_embedding_dimension": 64}
        space = await opened(**address, previous_embedding_name="some-model")
        assert space == space_of("some-model", 64)
        assert list(checks) == ["previous_embedder"]
