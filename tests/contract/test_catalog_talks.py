"""Contract of TurnStore: turns of one person's conversation, newest first, gone with what they rest on."""

from dataclasses import replace

import pytest

from gateway.access.authorizer import DocumentRef
from gateway.answer.conversation import ConversationKey, Turn
from tests.contract.catalog_world import World, upload
from tests.contract.test_catalog_traces import cleanup

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY = ConversationKey("acme", "ann", "kb_1", "talk '1' 对话")


def turn(world: World, number: int, *documents: DocumentRef, key: ConversationKey = KEY) -> Turn:
    at = world.clock() + number
    return Turn(f"{key.tenant} {key.subject} {number}", key, at, f"question {number}?", frozenset(documents))


async def kept(world: World, key: ConversationKey = KEY, since: float = 0.0, limit: int = 10) -> list[str]:
    return [one.question for one in await world.catalog.turns(key, since, limit)]


async def test_turns_come_back_whole_newest_first(world: World) -> None:
    """No more than asked for, and none that is too old."""
    one = turn(world, 1, DocumentRef("a", 1), DocumentRef("b", 2))
    two = turn(world, 2)
    for each in (one, two):
        await world.catalog.add_turn(each, 5)
    assert await world.catalog.turns(KEY, 0.0, 10) == [two, one]
    assert await world.catalog.turns(KEY, 0.0, 1) == [two]
    assert await world.catalog.turns(KEY, two.at, 10) == [two]


async def test_a_conversation_is_one_person_s_in_one_knowledge_base(world: World) -> None:
    """Whoever sends the same id reaches his own turns only."""
    await world.catalog.add_turn(turn(world, 1), 5)
    others = (
        replace(KEY, tenant="globex"),
        replace(KEY, subject="bob"),
        replace(KEY, kb_id="kb_2"),
        replace(KEY, conversation_id="another"),
    )
    for other in others:
        assert await kept(world, other) == []
    for number, other in enumerate(others):
        await world.catalog.add_turn(replace(turn(world, number, key=other), turn_id=f"{number}"), 1)
        assert await kept(world, other) == [f"question {number}?"]
    assert await kept(world) == ["question 1?"]


async def test_a_conversation_keeps_its_newest_turns(world: World) -> None:
    """Others keep theirs."""
    other = replace(KEY, conversation_id="another")
    await world.catalog.add_turn(replace(turn(world, 0, key=other), turn_id="other"), 2)
    for number in range(4):
        await world.catalog.add_turn(turn(world, number, DocumentRef("a", 1)), 2)
    assert await kept(world) == ["question 3?", "question 2?"]
    assert await kept(world, other) == ["question 0?"]


async def test_turns_are_erased_and_purged(world: World) -> None:
    """One person's, and what is too old of anybody's."""
    bob = replace(KEY, subject="bob")
    await world.catalog.add_turn(turn(world, 1), 5)
    await world.catalog.add_turn(turn(world, 2, DocumentRef("a", 1)), 5)
    await world.catalog.add_turn(turn(world, 3, key=bob), 5)
    assert await world.catalog.erase_turns("globex", "ann") == 0
    assert await world.catalog.erase_turns("acme", "ann") == 2
    assert await kept(world) == []
    assert await world.catalog.purge_turns(100) == 0
    world.clock.advance(104)
    assert await world.catalog.purge_turns(100) == 1
    assert await kept(world, bob) == []


async def test_a_clean_up_takes_the_turns_that_rest_on_a_deleted_document(world: World) -> None:
    """And none is kept that comes after it."""
    gone, other = await world.import_ready(upload("a", "one"), upload("b", "two"))
    newer = DocumentRef(gone.document_id, 2)
    for each in (turn(world, 1, gone, other), turn(world, 2, other), turn(world, 3, newer)):
        await world.catalog.add_turn(each, 5)
    await world.catalog.delete_document("acme", gone.document_id)
    assert await world.catalog.erase_quotes(await cleanup(world), [1]) == 1
    await world.catalog.add_turn(turn(world, 4, gone), 5)
    assert await kept(world) == ["question 3?", "question 2?"]
