"""Deleted and revoked documents, from the tasks that clean up to the store of answers."""

from collections.abc import Collection

import anyio
import pytest

from gateway.adapters.memory.answers import MemoryAnswers
from gateway.answer.cache import StoreUnavailable
from gateway.answer.reuse.forgetting import Forgetting
from gateway.bootstrap.answer_store import answer_erasure
from gateway.settings import Settings
from gateway.stream.revocation import RevocationKind
from tests.integration.cache_world import QUESTION, TEXTS, Installation

PATIENCE_S = 30
PLENTY = 64 * 1024 * 1024
MORE = {"fees.md": "# Fees\n\nThe late fee is 7 euros.\n"}


@pytest.mark.parametrize("way", ["deleted", "revoked"])
async def test_a_clean_up_erases_every_answer_of_its_document(way: str) -> None:
    """And no other; its report says how many."""
    answers = MemoryAnswers(PLENTY)
    with anyio.fail_after(PATIENCE_S):
        async with Installation(answers=answers).desk() as desk:
            catalog = desk.world.catalog
            await desk.world.learn(TEXTS, knowledge_base="limits")
            await desk.world.learn(MORE, knowledge_base="fees")
            await desk.ask(QUESTION, knowledge_base="limits")
            both = answers.size
            await desk.ask("What is the late fee?", knowledge_base="fees")
            others = answers.size - both
            [document] = await catalog.documents("acme", "limits")
            if way == "deleted":
                task_id = await catalog.delete_document("acme", document.document_id)
            else:
                kind = RevocationKind.DOCUMENT
                task_id = (await catalog.revoke("acme", kind, document.document_id, "leak", "olga")).task_id
            await desk.world.work()
            task = await catalog.task("acme", task_id)
            assert task.report["removed"]["answers"] == 1
            assert answers.size == others > 0
            assert (await desk.ask("What is the late fee?", knowledge_base="fees")).cached


class Away(MemoryAnswers):
    """A store that can't be asked."""

    async def forget(self, documents: Collection[str]) -> int:
        raise StoreUnavailable


async def test_what_a_clean_up_cannot_reach_it_does_not_claim_to_have_erased() -> None:
    """A store that is away, and one of this process only where others have theirs."""
    store = MemoryAnswers(PLENTY)
    for _ in range(2):
        assert await store.write("one", b"answer", 600.0, ["d1"])
        assert await Forgetting(store, reaches_all=True).forget("d1") == 1
    assert await store.write("one", b"answer", 600.0, ["d1"])
    assert await Forgetting(store, reaches_all=False).forget("d1") is None
    assert await store.read("one") is None
    assert await Forgetting(Away(PLENTY), reaches_all=True).forget("d1") is None


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        ({}, 0),
        ({"redis_url": "redis://r"}, 0),
        ({"redis_url": "redis://r", "database_url": "postgresql://d"}, 0),
        ({"database_url": "postgresql://d"}, None),
    ],
)
async def test_only_a_store_that_all_processes_share_is_known_to_be_clean(
    given: dict[str, str], outcome: int | None
) -> None:
    """SQLite belongs to one process, which then is all of them."""
    erasure = answer_erasure(Settings.model_validate(given), MemoryAnswers(PLENTY))
    assert erasure is not None
    assert await erasure.forget("d1") == outcome
    assert answer_erasure(Settings(answer_cache_ttl_s=0), MemoryAnswers(PLENTY)) is None
    assert answer_erasure(Settings(), None) is None
