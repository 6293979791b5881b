"""Neighbours in a whole gateway: the passage behind a hit completes it, and copies of a text count once."""

from gateway.adapters.memory.models import ScriptedModel
from gateway.client import StreamEvent
from tests.harness.serving import serving_world
from tests.harness.wire import ask
from tests.harness.world import World

QUESTION = "What is the upload limit?"
#: passages of one section, each too long to share a passage with the next
FIRST = "The upload limit is told on this page and the upload limit is what this page is about. " * 10
SECOND = "Whoever sends more bytes waits: only forty-two files an hour are taken from one person. " * 10
OTHER = "Nobody from another chapter belongs here, whatever stands right behind the last line. " * 10
TEXT = f"# Limits\n\n{FIRST}\n\n{SECOND}\n\n# Chapter\n\n{OTHER}\n"
ANSWER = "Only forty-two files an hour are taken [1]."


async def answered(world: World) -> tuple[str, list[StreamEvent]]:
    """What the model was given, and what the asker got."""
    async with serving_world(world) as port:
        _, events = await ask(port, world.token(), QUESTION)
    (prompt,) = world.model.prompts
    world.assert_nothing_held()
    return prompt.messages[1].content, events


async def test_the_passage_behind_a_hit_completes_it() -> None:
    """Under its number; the citation names the passage of the quote, and no other section comes along."""
    world = World(model=ScriptedModel([ANSWER]), evidence_passages=1, rrf_dense_weight=0.1)
    await world.learn({"limits.md": TEXT})
    prompt, events = await answered(world)
    assert FIRST.strip() in prompt
    assert SECOND.strip() in prompt
    assert "another chapter" not in prompt
    (source,) = events[0].data["sources"]
    (cited,) = events[-1].data["citations"]
    assert (cited["n"], cited["supported"]) == (1, True)
    assert cited["chunk_id"] != source["chunk_id"]
    assert cited["quote"] in SECOND


async def test_a_text_that_several_documents_have_is_evidence_once() -> None:
    """Copies don't take the places of what else was found."""
    world = World(evidence_passages=2, evidence_neighbours=0)
    await world.learn({f"copy{n}.md": TEXT for n in range(4)})
    prompt, events = await answered(world)
    assert len(events[0].data["sources"]) == 2
    assert prompt.count(FIRST.strip()) == 1


async def test_the_same_words_under_another_heading_are_no_copy() -> None:
    """Whose limit it is stands in the heading alone; of both that have it one speaks."""
    world = World(evidence_passages=4, evidence_neighbours=0)
    rule = "The upload limit is 42 megabytes.\n"
    names = {"staff.md": "Staff", "guests.md": "Guests", "copy.md": "Guests"}
    await world.learn({source: f"# {name}\n\n{rule}" for source, name in names.items()})
    prompt, events = await answered(world)
    assert sorted(source["title"] for source in events[0].data["sources"]) == ["Guests", "Staff"]
    assert prompt.count(rule.strip()) == 2
