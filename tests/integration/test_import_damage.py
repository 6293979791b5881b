"""What a power cut leaves of the objects: damage is noticed, said, and mended by importing again."""

import hashlib
import sys
from types import FrameType

import pytest

from gateway.ingest import chunkfile, vectors
from gateway.ingest.parsed import parsed
from gateway.ingest.task import TaskState
from gateway.ingest.vectors import text_hash
from tests.integration.import_world import TENANT, TEXTS, ImportWorld

pytestmark = pytest.mark.asyncio(loop_scope="module")

ONE = {"travel": TEXTS["travel"]}


@pytest.mark.parametrize("left", [b"", b"# travel\n\nThe tra", None])
async def test_an_original_that_isnt_what_was_uploaded_is_rejected_and_can_be_uploaded_again(
    imports: ImportWorld, left: bytes | None
) -> None:
    """Half a document is never knowledge; its owner is told what to do, and doing that helps."""
    accepted = await imports.accept(ONE)
    key = f"originals/{hashlib.sha256(TEXTS['travel'].encode()).hexdigest()}"
    await (imports.objects.delete(key) if left is None else imports.objects.put(key, left))
    task = await imports.work(accepted)
    assert (task.state, task.trouble) == (TaskState.PENDING, "object_store_unavailable")
    imports.clock.advance(2)
    task = await imports.work(accepted)
    assert (task.state, task.error_code) == (TaskState.FAILED, "documents_failed")
    (document,) = task.documents
    assert document.error is not None
    assert document.error.startswith("original_lost")
    assert "upload it again" in document.error
    assert (await imports.learn(ONE)).state is TaskState.SUCCEEDED
    assert (await imports.dump()).sources == {"travel.md"}


async def test_an_original_that_is_put_again_meanwhile_is_imported(imports: ImportWorld) -> None:
    """A clean-up took it between the upload and its acceptance; whoever sent it is just putting it again."""
    accepted = await imports.accept(ONE)
    content = TEXTS["travel"].encode()
    key = f"originals/{hashlib.sha256(content).hexdigest()}"
    await imports.objects.delete(key)
    assert (await imports.work(accepted)).state is TaskState.PENDING
    await imports.objects.put(key, content)
    imports.clock.advance(2)
    assert (await imports.work(accepted)).state is TaskState.SUCCEEDED


@pytest.mark.parametrize("damage", ["gone", "empty", "torn", "short", "zeros"])
async def test_lost_vectors_are_computed_again_by_the_next_import(imports: ImportWorld, damage: str) -> None:
    """Otherwise nothing with that text could ever be built again."""
    await imports.learn(ONE)
    before = await imports.dump()
    names = [text_hash(TENANT, text) for text in imports.embedder.texts]
    places = await imports.catalog.vector_places(imports.space.space_id, names)
    (key,) = {place.object_key for place in places.values()}
    whole = await imports.objects.get(key)
    size = imports.space.dimension * 4
    left = {"empty": b"", "torn": whole[:-1], "short": whole[:-size], "zeros": bytes(len(whole))}
    if damage == "gone":
        await imports.objects.delete(key)
    else:
        await imports.objects.put(key, left[damage])
    imports.embedder.texts.clear()
    task = await imports.learn({"travel-copy": TEXTS["travel"]})
    assert task.state is TaskState.SUCCEEDED
    assert len(imports.embedder.texts) == (1 if damage == "short" else len(names))
    assert await imports.objects.get(key) == whole
    assert (await imports.dump()).without_revision("travel-copy.md") == before.without_revision()


async def test_a_documents_bulk_work_leaves_the_event_loop_free(imports: ImportWorld) -> None:
    """Questions are answered there: ids, packing and JSON of thousands of passages go to a thread."""
    bulk = {code.__code__ for code in (parsed, chunkfile.dump, chunkfile.load, vectors.pack)}
    text = "".join(f"# Part {n}\n\n" + f"Rule {n} of very many rules. " * 30 + "\n\n" for n in range(60))
    calls = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code in bulk

    before = sys.getprofile()
    sys.setprofile(count)  # of this thread alone
    try:
        task = await imports.learn({"long": text})
    finally:
        sys.setprofile(before)
    assert task.state is TaskState.SUCCEEDED
    assert len(imports.embedder.texts) >= 60
    assert calls == 0
