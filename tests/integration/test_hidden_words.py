"""Numbers that a caller is told don't depend on passages that he may not see now."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from gateway.adapters.embedded.embedder import BundledEmbedder
from gateway.adapters.embedded.rerank import LinearReranker
from gateway.adapters.embedded.weights import bundled_weights
from gateway.settings import Settings
from tests.harness.serving import serving_world
from tests.harness.world import World, twins
from tests.integration.test_explain import Desk

PATIENCE_S = 60
#: documents that everybody may read, among them none about a zebra
OPEN = {
    "limits.md": "# Limits\n\nThe upload limit is 42 megabytes for every member of staff.\n",
    **{f"{n}.md": f"# Note {n}\n\nUpload things number {n} in the morning.\n" for n in range(3)},
}
QUESTION = "What is the upload limit of zebra?"
DAY_S = 86_400


@pytest.fixture(scope="module")
def embedder() -> BundledEmbedder:
    """Read once: it is large."""
    return anyio.run(BundledEmbedder.load)


async def told(embedder: BundledEmbedder, hidden: str, **dates: Any) -> Any:
    """Every number of a search and of an explanation, and the words nobody has."""
    ground = replace(twins(Settings(data_dir=Path("unused")), embedder), offline_embedder=embedder)
    world = World(ground=ground, reranker=LinearReranker(embedder, bundled_weights()))
    await world.learn(OPEN)
    await world.learn({"merger.md": hidden}, **dates)
    async with serving_world(world) as port:
        desk, token = Desk(world, port), world.token(scopes=("ask", "operate"))
        status, found = await desk.send("GET", f"/v1/search?query={QUESTION.replace(' ', '+')}", token)
        assert status == 200, found
        why = await desk.explain(token, question=QUESTION)
    hits = [(hit["title"], hit["raw_score"], hit["score_label"]) for hit in found["results"]]
    return hits, why["found"]["score"], why["found"]["checks"], why["found"]["missing_words"]


ZEBRA = "# Merger\n\nThe zebra project is announced next month.\n"
LION = "# Merger\n\nThe lion project is announced next month.\n"


@pytest.mark.parametrize(
    "dates", [{"valid_from": DAY_S}, {"valid_until": -DAY_S}], ids=["embargo", "expired"]
)
async def test_a_word_of_a_passage_out_of_its_time_changes_no_number(
    embedder: BundledEmbedder, dates: dict[str, int]
) -> None:
    """Else somebody could try out which words are under embargo."""
    moments = {name: int(time.time()) + offset for name, offset in dates.items()}
    with anyio.fail_after(PATIENCE_S):
        assert await told(embedder, ZEBRA, **moments) == await told(embedder, LION, **moments)


async def test_a_word_of_a_passage_in_its_time_does_change_them(embedder: BundledEmbedder) -> None:
    """So the test before this one compares something."""
    with anyio.fail_after(PATIENCE_S):
        assert await told(embedder, ZEBRA) != await told(embedder, LION)
