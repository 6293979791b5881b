"""Known faults on every path that a question's passages may come by, fallback included."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import pytest
import pytest_asyncio

from gateway.adapters.memory.models import FixedEmbedder
from gateway.adapters.memory.vectors import MemoryVectors
from gateway.context import Deadline
from gateway.errors import DeadlineExceeded
from gateway.retrieval.embedding import Vector
from gateway.settings import Settings
from tests.contract.vector_world import HOSTILE
from tests.harness.dense_paths import Asked, Misnamed
from tests.harness.serving import serving_world
from tests.harness.wire import ask, request
from tests.harness.world import World, twins

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: of stores that are servers: there ``auto`` tries the framework first
_SERVER = {"milvus_uri": "http://127.0.0.1:1"}
TEXTS = {"limits.md": "# Limits\n\nThe daily limit is 42 euros.\n"}
SECRETS = {"secret.md": "# Secret\n\nThe daily limit is 99.\n"}
QUESTION = "What is the daily limit?"
_EAST = (1.0, *[0.0] * 31)
#: at a right angle to it, and its opposite
_TURNED = {"orthogonal": (0.0, 1.0, *[0.0] * 30), "opposite": (-1.0, *[0.0] * 31)}


class Pointing(FixedEmbedder):
    """Every text points the same way."""

    def __init__(self, vector: Vector = _EAST) -> None:
        super().__init__()
        self.vector = vector

    async def embed(self, texts: Sequence[str], deadline: Deadline) -> list[Vector]:
        return [self.vector for _ in texts]


class Path:
    """One way through the facade: the setting that answers use, and what stands behind it."""

    def __init__(self, mode: str, served_by: str, fallback: str | None, **settings: Any) -> None:
        self.mode, self.served_by, self.fallback = mode, served_by, fallback
        self.settings = settings

    def world(self) -> World:
        patient = {"revocation_bound_ms": 30_000}  # a busy machine isn't what this is about
        settings = {"retrieval_mode": self.mode, **patient, **self.settings}
        ground = replace(twins(Settings(**settings), Pointing()), offline_embedder=Pointing())
        return World(ground=ground, vectorstore=self._vectorstore(ground.vectors), **settings)

    def _vectorstore(self, vectors: MemoryVectors) -> Any:
        match self.fallback:
            case "not_installed":
                return None
            case "vector_store_unavailable":
                return Misnamed(vectors)
            case "deadline_exceeded":
                return Asked(vectors, DeadlineExceeded("retrieval"))
        return vectors


PATHS: Mapping[str, Path] = {
    "sdk": Path("sdk", "sdk", None),
    "vectorstore": Path("vectorstore", "vectorstore", None),
    "auto": Path("auto", "vectorstore", None, **_SERVER),
    "auto embedded": Path("auto", "sdk", "embedded_store"),
    "auto without the extra": Path("auto", "sdk", "not_installed", **_SERVER),
    "auto after an error": Path("auto", "sdk", "vector_store_unavailable", **_SERVER),
    "auto after a time-out": Path("auto", "sdk", "deadline_exceeded", **_SERVER),
}


class Asker:
    """Somebody with a token of a served world."""

    def __init__(self, world: World, path: Path, port: int) -> None:
        self.world, self.path, self.port, self.token = world, path, port, world.token()

    async def search(self, query: str = QUESTION, **fields: str) -> tuple[int, Any]:
        target = f"/v1/search?{urlencode({'query': query, **fields})}"
        head, body = await request(self.port, "GET", target, token=self.token)
        return head.status, json.loads(body)

    async def ask(self, question: str, **fields: Any) -> Any:
        """The last event's data."""
        _, events = await ask(self.port, self.token, question, **fields)
        return events[-1].data

    async def explain(self, trace_id: str) -> Any:
        """How the search was done, as it was stored."""
        await self.world.services.traces.flush()
        content = json.dumps({"trace_id": trace_id}).encode()
        headers = {"Content-Type": "application/json"}
        _, body = await request(
            self.port, "POST", "/v1/explain", token=self.token, body=content, headers=headers
        )
        return json.loads(body)["search"]

    def counted(self, line: str) -> float:
        """One series of the metrics, as it stands."""
        told = self.world.services.metrics.exposition().decode().splitlines()
        (found,) = [one for one in told if one.startswith(f"{line} ")]
        return float(found.rpartition(" ")[2])


@asynccontextmanager
async def served(path: Path) -> AsyncIterator[Asker]:
    """A world in which the handbook of acme is known, and others that its readers may not see."""
    world = path.world()
    await world.learn(TEXTS)
    await world.learn(SECRETS, tenant="globex", knowledge_base="globex")
    await world.learn(SECRETS, knowledge_base="board", allow=["group:board"])
    async with serving_world(world) as port:
        yield Asker(world, path, port)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=PATHS.values(), ids=PATHS.keys())
async def ann(request: pytest.FixtureRequest) -> AsyncIterator[Asker]:
    """A reader of the handbook, once by each path."""
    async with served(request.param) as asker:
        yield asker


async def test_a_search_and_an_answer_take_the_path_of_the_setting(ann: Asker) -> None:
    """And results, metrics and the trace say so; a mode that is asked for wins."""
    path = f'gateway_retrieval_paths_total{{path="{ann.path.served_by}"}}'
    reason = f'gateway_retrieval_fallbacks_total{{reason="{ann.path.fallback}"}}'
    before = ann.counted(path)
    status, found = await ann.search()
    told = (found["mode"], found["served_by"], found["fallback"])
    assert (status, told) == (200, (ann.path.mode, ann.path.served_by, ann.path.fallback))
    assert [r["uri"] for r in found["results"]] == ["limits.md"]
    assert (await ann.ask(QUESTION))["status"] == "ANSWERED"
    assert ann.counted(path) == before + 2
    assert ann.path.fallback is None or ann.counted(reason) >= 2
    _, named = await ann.search(mode="sdk")
    assert (named["mode"], named["served_by"], named["fallback"]) == ("sdk", "sdk", None)
    assert named["results"] == found["results"]
    kept = await ann.explain(found["trace_id"])
    assert (kept["mode"], kept["served_by"], kept["fallback"]) == told


async def test_without_one_permitted_name_nothing_is_found(ann: Asker) -> None:
    """Empty, foreign and unknown names: never a wider search; an absent one means the only permitted one."""
    for name in ("", "globex", "board", "nowhere", 'handbook") or ("'):
        status, problem = await ann.search(knowledge_base=name)
        assert (status, problem["code"]) == (404, "knowledge_base_not_found"), name
    _, found = await ann.search()
    assert [r["uri"] for r in found["results"]] == ["limits.md"]


async def test_a_hostile_category_matches_itself_or_nothing(ann: Asker) -> None:
    """Literally, or 400: never more rows, by no path."""
    for name in (*HOSTILE.values(), "a\0b"):
        status, found = await ann.search(category=name)
        assert status == 400 or found["results"] == [], name
    assert (await ann.search())[1]["results"] != []


async def test_a_question_without_evidence_is_refused_whatever_was_asked_before(ann: Asker) -> None:
    """In the same conversation, with no model called for the second one."""
    first = await ann.ask(QUESTION, conversation_id="c1")
    calls = ann.world.model.called
    second = await ann.ask("Who won the regatta of 1887?", conversation_id="c1")
    assert (first["status"], second["status"]) == ("ANSWERED", "REFUSED_NO_EVIDENCE")
    assert ann.world.model.called == calls


@pytest.mark.parametrize("turned", _TURNED.values(), ids=_TURNED.keys())
async def test_a_score_that_is_turned_round_supports_nothing(ann: Asker, turned: Vector) -> None:
    """A passage as far away as can be is refused, though it has every word of the question."""
    calls, ann.world.embedder.vector = ann.world.model.called, turned
    try:
        _, found = await ann.search()
        refused = await ann.ask(QUESTION)
    finally:
        ann.world.embedder.vector = _EAST
    (result,) = found["results"]
    assert result["score"] == pytest.approx(2.0 - 2.0 * turned[0])
    assert found["relevance"] == "weak"
    assert (refused["status"], ann.world.model.called) == ("REFUSED_NO_EVIDENCE", calls)


async def test_a_path_that_is_asked_for_by_name_fails_by_name() -> None:
    """503 where it is broken, 400 where it isn't installed; never another path's results."""
    async with served(PATHS["auto after an error"]) as ann:
        assert (await ann.search())[1]["served_by"] == "sdk"
        status, problem = await ann.search(mode="vectorstore")
        assert (status, problem["code"]) == (503, "vector_store_unavailable")
    async with served(PATHS["auto without the extra"]) as ann:
        status, problem = await ann.search(mode="vectorstore")
        assert (status, problem["code"]) == (400, "invalid_field")
