"""Only a whole answer of the usual way is told again; of any other it is counted why not."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import pytest

from gateway.access.authorizer import CatalogRecheck, DocumentRef, DropReason
from gateway.access.classes import Acl
from gateway.access.scope import AccessScope
from gateway.adapters.memory.answers import MemoryAnswers
from gateway.adapters.memory.models import ScriptedModel
from gateway.adapters.memory.moderation import WordModerator
from gateway.adapters.memory.rerank import WordReranker
from gateway.answer.cache import StoreUnavailable
from gateway.answer.model import ModelFinish, ModelUsage
from gateway.errors import AnswerBlocked, RerankerUnavailable, UpstreamFailed, VectorStoreUnavailable
from gateway.ingest.governance import AclChange
from gateway.stream.protocol import Error
from gateway.stream.revocation import RevocationKind
from tests.harness.world import open_gate
from tests.integration.cache_world import QUESTION, TEXTS, Desk, Installation, person

PATIENCE_S = 30
_ANSWER = "The limit is 42 [1]."
_USED = ModelUsage(10, 5, estimated=False)
_HIDDEN = {"hidden.md": "# Upload\n\nThe zebra limit is told here.\n"}


async def never_kept(desk: Desk, reason: str, question: str = QUESTION, **how: Any) -> None:
    """Asked twice: made twice, and counted twice."""
    model, before = desk.world.model, desk.world.model.called
    for _ in range(2):
        told = await desk.ask(question, **how)
        assert (told.done.status.value, told.cached) == ("ANSWERED", False)
    assert model.called == before + 2
    assert desk.counted("gateway_cache_writes_total", result=reason) == 2
    assert desk.counted("gateway_cache_writes_total", result="kept") == 0


class Unfetchable:
    """Vectors whose rows can be searched and not fetched."""

    def __init__(self, vectors: Any) -> None:
        self._vectors = vectors

    def __getattr__(self, name: str) -> Any:
        return getattr(self._vectors, name)

    async def fetch(self, *arguments: Any) -> Any:
        raise VectorStoreUnavailable("the test says so")


class Unwritable(MemoryAnswers):
    """A store that takes nothing."""

    async def write(self, digest: str, answer: bytes, ttl_s: float, documents: Collection[str]) -> bool:
        raise StoreUnavailable


_CASES: dict[str, dict[str, Any]] = {
    "unfinished": {"model": ScriptedModel([_ANSWER, _USED, ModelFinish("length")])},
    "unsure": {"model": ScriptedModel([_ANSWER, _USED, ModelFinish("stop", sure=False)])},
    "unsure-declining": {"model": ScriptedModel(["The passages do not contain the answer [1]."])},
    "uncited": {"model": ScriptedModel(["The limit is 42."])},
    "altered": {"model": ScriptedModel([f"{_ANSWER} Or 43 [9]."])},
    "too_large": {"answers": MemoryAnswers(most_bytes=500)},
    "unavailable": {"answers": Unwritable(1_000_000)},
    "second_endpoint": {
        "model": ScriptedModel(fail={-1: UpstreamFailed("the test says so")}),
        "second_model": ScriptedModel([_ANSWER]),
        "fallback_model_base_url": "http://127.0.0.1:1/v1",
        "fallback_model_name": "second",
    },
    "degraded": {
        "reranker": WordReranker(error=RerankerUnavailable("the test says so")),
        "config": open_gate("words/1"),
    },
}


@pytest.mark.parametrize("case", _CASES)
async def test_an_answer_of_an_unusual_way_is_told_once(case: str) -> None:
    """Cut short, unsure, uncited, altered, too large, by the second endpoint, after a skipped stage."""
    async with Installation().desk(**_CASES[case]) as desk:
        with anyio.fail_after(PATIENCE_S):
            await desk.world.learn(TEXTS)
            await never_kept(desk, case.partition("-")[0])


async def test_an_answer_without_the_neighbours_of_its_evidence_is_told_once() -> None:
    """They might have completed it."""
    installation = Installation()
    ground = installation.ground
    with anyio.fail_after(PATIENCE_S):
        await installation.world().learn(TEXTS)
        async with installation.desk(ground=replace(ground, vectors=Unfetchable(ground.vectors))) as desk:
            await never_kept(desk, "degraded")


@pytest.mark.parametrize(
    ("reason", "question", "how"),
    [
        ("relative_time", "What is the upload limit today?", {}),
        ("relative_time", "What is the current upload limit?", {}),
        ("no_store", QUESTION, {"no_store": True}),
    ],
)
async def test_what_is_asked_about_now_or_for_one_alone_is_made_each_time(
    reason: str, question: str, how: dict[str, Any]
) -> None:
    """Nothing kept is told of it either."""
    async with Installation().desk() as desk:
        with anyio.fail_after(PATIENCE_S):
            await desk.world.learn(TEXTS)
            await never_kept(desk, reason, question, **how)
            assert desk.counted("gateway_cache_total", result="skip") == 2


async def test_a_usual_answer_is_kept_and_counted() -> None:
    """So that the others are exceptions; its tokens are saved the second time."""
    async with Installation().desk() as desk:
        with anyio.fail_after(PATIENCE_S):
            await desk.world.learn(TEXTS)
            assert not (await desk.ask()).cached
            assert (await desk.ask()).cached
        assert desk.counted("gateway_cache_writes_total", result="kept") == 1
        assert desk.counted("gateway_cache_saved_tokens_total") == 2


async def test_an_answer_that_was_blocked_is_made_and_judged_again() -> None:
    """Also where its beginning had left before."""
    moderator = WordModerator({"rude": "insult"})
    model = ScriptedModel(["The limit is 42 [1]. ", "That is rude [1]. "])
    async with Installation().desk(model=model, moderator=moderator, moderation="segmented") as desk:
        with anyio.fail_after(PATIENCE_S):
            await desk.world.learn(TEXTS)
            for called in (1, 2):
                told = await desk.ask()
                assert isinstance(told.events[-1], Error)
                assert (told.text, told.events[-1].code) == ("The limit is 42 [1].", AnswerBlocked.code)
                assert model.called == called


# -- what depends on who asked -------------------------------------------------------------------------


@dataclass
class Denying:
    """An outside engine that denies some persons all documents of one source."""

    ground: Any
    denied: set[str] = field(default_factory=set)
    document_id: str = ""

    async def check(
        self, scope: AccessScope, refs: Sequence[DocumentRef], now: float
    ) -> Mapping[DocumentRef, DropReason | None]:
        verdicts = await CatalogRecheck(self.ground.catalog).check(scope, refs, now)
        mine = {ref for ref in refs if ref.document_id == self.document_id}
        denied = mine if not scope.principals.isdisjoint(self.denied) else set()
        return {**verdicts, **dict.fromkeys(denied, DropReason.ACL)}


async def _engine_over(desk: Desk, engine: Denying) -> None:
    await desk.world.learn({**TEXTS, **_HIDDEN})
    documents = await desk.world.catalog.documents("acme", "handbook")
    engine.document_id = next(d.document_id for d in documents if d.source == "hidden.md")


async def test_what_was_found_for_one_alone_is_not_kept() -> None:
    """A candidate was dropped for him, which others with the same classes may see."""
    async with Installation().desk() as desk:
        with anyio.fail_after(PATIENCE_S):
            await desk.world.learn({**TEXTS, **_HIDDEN})
            documents = await desk.world.catalog.documents("acme", "handbook")
            hidden = next(d.document_id for d in documents if d.source == "hidden.md")
            change = AclChange("acme", hidden, Acl.parse(["group:chiefs"]), "owner", deadline_s=600)
            await desk.world.catalog.set_acl(change)
            await never_kept(desk, "not_shared")


async def test_an_answer_is_no_hit_for_who_may_not_see_all_that_was_found() -> None:
    """Though it cites only what he may see: its ranks tell of the rest."""
    installation = Installation()
    engine = Denying(installation.ground, {"user:bob"})
    async with installation.desk(recheck=engine, evidence_passages=1) as desk:
        with anyio.fail_after(PATIENCE_S):
            await _engine_over(desk, engine)
            first = await desk.ask()
            assert engine.document_id not in {source.document_id for source in first.meta.sources}
            assert (await desk.ask(who=person("cat"))).cached
            assert not (await desk.ask(who=person("bob"))).cached
            assert desk.counted("gateway_cache_total", result="stale") == 1


async def test_a_refusal_is_no_hit_for_who_may_not_see_what_it_counts() -> None:
    """It says how many passages there are, and which of his words none of them has."""
    installation = Installation()
    engine = Denying(installation.ground, {"user:bob"})
    question = "What is the zebra limit of Atlantis?"
    async with installation.desk(recheck=engine) as desk:
        with anyio.fail_after(PATIENCE_S):
            await _engine_over(desk, engine)
            ann, cat, bob = [await desk.ask(question, who=person(name)) for name in ("ann", "cat", "bob")]
            assert [told.done.status.value for told in (ann, cat, bob)] == ["REFUSED_NO_EVIDENCE"] * 3
            assert [told.cached for told in (ann, cat, bob)] == [False, True, False]
            assert cat.done.searched == ann.done.searched
            assert ann.done.searched is not None
            assert bob.done.searched is not None
            assert (ann.done.searched.passages, bob.done.searched.passages) == (2, 1)
            assert "zebra" in {*bob.done.searched.missing} - {*ann.done.searched.missing}


async def test_a_refusal_is_no_hit_once_something_it_counts_is_revoked() -> None:
    """Its reader would be told of a word that only the revoked document has."""
    installation = Installation()
    engine = Denying(installation.ground)
    question = "What is the zebra limit of Atlantis?"
    async with installation.desk(recheck=engine) as desk:
        with anyio.fail_after(PATIENCE_S):
            await _engine_over(desk, engine)
            assert [(await desk.ask(question)).cached for _ in range(2)] == [False, True]
            hidden = engine.document_id
            await desk.world.catalog.revoke("acme", RevocationKind.DOCUMENT, hidden, "", "owner")
            told = await desk.ask(question)
            assert not told.cached
            assert told.done.searched is not None
            assert (told.done.searched.passages, "zebra" in told.done.searched.missing) == (1, True)


async def test_that_sources_have_expired_is_told_to_nobody_else() -> None:
    """Whether he may have seen them is between him and the catalog."""
    async with Installation().desk() as desk:
        with anyio.fail_after(PATIENCE_S):
            await desk.world.learn(TEXTS)
            documents = desk.world.catalog._documents.values()
            for document in documents:  # as if a while had passed: the rows still say that it is valid
                document.versions[0].document = replace(document.versions[0].document, valid_until=1)
            for _ in range(2):
                told = await desk.ask()
                assert (told.done.reasons, told.cached) == (("SOURCES_EXPIRED",), False)
            assert desk.counted("gateway_cache_writes_total", result="not_shared") == 2
