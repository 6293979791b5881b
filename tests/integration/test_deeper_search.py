"""Deleted text must not crowd out what is still there until the next build."""

from gateway.adapters.memory.models import ScriptedModel
from tests.harness.serving import serving_world
from tests.harness.wire import ask
from tests.harness.world import World

QUESTION = "What is the upload limit?"
LINE = "What the upload limit is depends on the upload limit of part {n}. "
MANY = "\n\n".join(f"## Part {n}\n\n{LINE.format(n=n) * 12}\n" for n in range(30))
NEW = "# Sizes\n\nWhoever sends a file by the form has to mind that its limit is 42 for all of us.\n"


async def test_a_deleted_document_with_many_passages_does_not_starve_the_others() -> None:
    """The first search finds nothing but deleted passages; the second one looks deeper."""
    world = World(model=ScriptedModel(["It is 42 [1]."]), candidates=6)
    await world.learn({"old.md": f"# Upload limit\n\n{MANY}", "new.md": NEW})
    (old,) = [d for d in await world.catalog.documents("acme", "handbook") if d.source == "old.md"]
    await world.catalog.delete_document("acme", old.document_id)
    async with serving_world(world) as port:
        _, events = await ask(port, world.token(), QUESTION)
    assert events[-1].data["status"] == "ANSWERED"
    assert [source["uri"] for source in events[0].data["sources"]] == ["new.md"]
