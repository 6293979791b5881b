"""What the reader of one answer is told of its evidence: why it was refused, and whether it is one at all."""

import pytest

from gateway.adapters.memory.models import ScriptedModel
from gateway.answer.model import ModelFinish, TextPiece
from gateway.answer.prompt import NO_SUPPORT_MARKER
from gateway.client import StreamEvent
from tests.harness.serving import serving_world
from tests.harness.wire import connected
from tests.harness.world import World

LIMITS = "# Limits\n\nThe upload limit is 42 megabytes for every member of staff.\n"
SECRET = "# Vault\n\nThe zebra limit of the vault is 7421 megabytes.\n"
SAID = TextPiece("The upload limit is 42 megabytes for every member of staff. [1]")


async def told(world: World, question: str) -> StreamEvent:
    await world.learn({"limits.md": LIMITS})
    await world.learn({"vault.md": SECRET}, allow=("group:board",))
    async with serving_world(world) as port, connected(port) as wire:
        await wire.ask(world.token(), question)
        return (await wire.all_events())[-1]


async def test_a_refusal_says_what_was_looked_at_and_what_was_missing() -> None:
    """The asker's own words, as he wrote them; the passage that he may not see has one of them, and counts
    for nothing.
    """
    done = await told(World(), "What is the Zebra limit of E-991?")
    assert (done.data["status"], done.data["reasons"]) == ("REFUSED_NO_EVIDENCE", ["KEY_TERMS_NOT_COVERED"])
    assert done.data["searched"] == {
        "knowledge_base": "handbook",
        "passages": 1,
        "missing": ["Zebra", "E-991"],
    }


async def test_a_model_that_finds_no_support_tells_the_same() -> None:
    """After the call as before it."""
    done = await told(World(model=ScriptedModel([NO_SUPPORT_MARKER])), "What is the upload limit?")
    assert done.data["reasons"] == ["MODEL_FOUND_NO_SUPPORT"]
    assert done.data["searched"] == {"knowledge_base": "handbook", "passages": 1, "missing": []}


@pytest.mark.parametrize("sure", [True, False])
async def test_quotes_of_a_model_that_is_not_sure_support_nothing(sure: bool) -> None:
    """Word for word from the passage, and still no answer to the question."""
    model = ScriptedModel([SAID, ModelFinish("stop", sure)])
    done = await told(World(model=model), "What is the upload limit?")
    assert (done.data["status"], done.data["searched"]) == ("ANSWERED", None)
    assert [citation["supported"] for citation in done.data["citations"]] == [sure]
