"""An answer is told again only while everything that it depends on is the same: each part changed alone."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from gateway.access.classes import Acl
from gateway.adapters.memory.models import FixedEmbedder, ScriptedModel
from gateway.adapters.memory.moderation import WordModerator
from gateway.adapters.memory.rerank import WordReranker
from gateway.ingest.governance import AclChange
from gateway.stream.protocol import Usage
from tests.harness.world import OPEN_GATE, open_gate
from tests.integration.cache_world import QUESTION, TEXTS, Desk, Installation, person

PATIENCE_S = 30
_MODEL = {"model_base_url": "http://127.0.0.1:1/v1", "model_name": "new"}
_SECOND = {"fallback_model_base_url": "http://127.0.0.1:2/v1", "fallback_model_name": "old"}


async def made_then_kept(desk: Desk, question: str = QUESTION, **how: Any) -> None:
    """Nothing kept is told of it, and the second time it is."""
    for cached in (False, True):
        called = desk.world.model.called
        told = await desk.ask(question, **how)
        assert told.done.status == "ANSWERED"
        assert (told.cached, desk.world.model.called - called) == (cached, 0 if cached else 1)


async def two_tenants(desk: Desk) -> None:
    await desk.world.learn(TEXTS, tenant="globex")


async def a_document_of_chiefs(desk: Desk) -> None:
    await desk.world.learn({"secret.md": "# Upload\n\nUpload secrets.\n"}, allow=["group:chiefs"])


async def nothing(desk: Desk) -> None:
    pass


@pytest.mark.parametrize(
    ("before", "change"),
    [
        (two_tenants, {"who": person(tenant="globex")}),
        (a_document_of_chiefs, {"who": person(groups=["staff", "chiefs"])}),
        (nothing, {"question": "What is the upload limits?"}),
        (nothing, {"question": "what is the upload limit?"}),
        (nothing, {"language": "zh"}),
        (nothing, {"max_output_tokens": 100}),
    ],
    ids=["tenant", "scope", "question", "case", "language", "max_output_tokens"],
)
async def test_another_question_or_asker_gets_no_answer_of_this_one(
    before: Callable[[Desk], Awaitable[None]], change: dict[str, Any]
) -> None:
    """Beside each other both are kept."""
    installation = Installation()
    with anyio.fail_after(PATIENCE_S):
        async with installation.desk() as desk:
            await desk.world.learn(TEXTS)
            await before(desk)
            await made_then_kept(desk)
            await made_then_kept(desk, **change)
            assert (await desk.ask()).cached


async def test_another_person_with_the_same_rights_gets_the_kept_answer() -> None:
    """The key names the permission and not the person; his own request is told of."""
    async with Installation().desk() as desk:
        with anyio.fail_after(PATIENCE_S):
            await desk.world.learn(TEXTS)
            first = await desk.ask()
            other = await desk.ask("What  is the upload limit？", who=person("bob"))
    assert (other.cached, other.text, other.done.citations) == (True, first.text, first.done.citations)
    assert other.meta.request_id != first.meta.request_id
    assert other.done.usage == Usage(0, 0, estimated=False)


async def test_another_knowledge_base_has_its_own_answers() -> None:
    """Though its documents are the same."""
    async with Installation().desk() as desk:
        with anyio.fail_after(PATIENCE_S):
            for name in ("handbook", "manual"):
                await desk.world.learn(TEXTS, knowledge_base=name)
            await made_then_kept(desk, knowledge_base="handbook")
            await made_then_kept(desk, knowledge_base="manual")


async def test_a_follow_up_and_the_words_it_is_told_with_are_two_questions() -> None:
    """Of the follow-up only passages that have its own words are evidence."""
    leave = {"leave.md": "# Vacation days\n\nContractors get 12 vacation days.\n"}
    async with Installation().desk(model=ScriptedModel(["Contractors get 12 days [1]."])) as desk:
        with anyio.fail_after(PATIENCE_S):
            await desk.world.learn(leave)
            for talk in ("one", "two"):
                await desk.ask("How many vacation days do employees get?", conversation_id=talk)
            told = await desk.ask("And for contractors?", conversation_id="one")
            searched = told.meta.searched_for
            assert searched == "And for contractors? (vacation days employees)"
            assert (await desk.ask("And for contractors?", conversation_id="two")).cached
            await made_then_kept(desk, searched)


# -- what the catalog says of the knowledge base ------------------------------------------------------


async def another_release(desk: Desk) -> None:
    await desk.world.learn({"colours.md": "# Colours\n\nThe logo is blue.\n"})


async def rights_of_others(desk: Desk) -> None:
    """On a document that neither its old nor its new ACL shows to the asker."""
    documents = await desk.world.catalog.documents("acme", "handbook")
    hidden = next(d.document_id for d in documents if d.source == "secret.md")
    acl = Acl.parse(["group:board"])
    await desk.world.catalog.set_acl(AclChange("acme", hidden, acl, "owner", deadline_s=600))


async def another_incarnation(desk: Desk) -> None:
    """As a catalog that was restored from a backup has one."""
    desk.world.catalog._incarnation = "restored"


@pytest.mark.parametrize("change", [another_release, rights_of_others, another_incarnation])
async def test_an_answer_is_of_one_state_of_the_catalog(change: Callable[[Desk], Awaitable[None]]) -> None:
    """Its release, its permissions, its incarnation."""
    async with Installation().desk() as desk:
        with anyio.fail_after(PATIENCE_S):
            await desk.world.learn(TEXTS)
            await a_document_of_chiefs(desk)
            await made_then_kept(desk)
            await change(desk)
            await made_then_kept(desk)


async def test_a_config_that_is_gone_back_to_has_its_own_answers() -> None:
    """The revision stays, and so does the config's version: its numbers count."""
    installation = Installation()
    careful = replace(OPEN_GATE, w_coverage=1.0, bias=0.01)
    assert careful.version == OPEN_GATE.version
    with anyio.fail_after(PATIENCE_S):
        await installation.world().learn(TEXTS)
        await installation.world(config=careful).learn({"b.md": "# Colours\n\nThe logo is blue.\n"})
        async with installation.desk() as desk:
            await made_then_kept(desk)
            await desk.world.catalog.roll_back_config("acme", "handbook")
            await made_then_kept(desk)


async def test_a_model_that_is_gone_back_to_has_its_own_answers() -> None:
    """The revision and the config stay."""
    installation = Installation()
    models = {"model": _model("new"), "second_model": _model("old")}
    with anyio.fail_after(PATIENCE_S):
        old = {"model": _model("old"), "model_base_url": "http://127.0.0.1:2/v1", "model_name": "old"}
        await installation.world(**old).learn(TEXTS)
        async with installation.desk(**models, **_MODEL, **_SECOND) as desk:
            await desk.world.learn({"b.md": "# Colours\n\nThe logo is blue.\n"})
            await made_then_kept(desk)
            await desk.world.catalog.roll_back_model("acme", "handbook", configured=("new", "old"))
            told = [await desk.ask() for _ in range(2)]
            assert [(one.cached, one.meta.model) for one in told] == [
                (False, "old"),
                (True, "old"),
            ]


def _model(name: str) -> ScriptedModel:
    return ScriptedModel(["The limit is 42 [1]."], name=name)


async def test_another_embedding_space_has_its_own_answers() -> None:
    """An old release of the old one keeps its own."""
    installation = Installation()
    spaces = [FixedEmbedder(space_id=f"fixed-32-v{n}") for n in (1, 2)]
    with anyio.fail_after(PATIENCE_S):
        for embedder in spaces:
            ground = replace(installation.ground, embedder=embedder, offline_embedder=embedder)
            async with installation.desk(ground=ground, previous_embedder=spaces[0]) as desk:
                await desk.world.learn(TEXTS)
                await made_then_kept(desk)


# -- what a process is configured with -----------------------------------------------------------------


def _phrases(folder: Path, word: str) -> dict[str, Any]:
    path = folder / "phrases.txt"
    path.write_text(f"rude: {word}\n")
    return {"moderation": "segmented", "moderation_phrases": path, "moderator": WordModerator()}


@pytest.mark.parametrize(
    "options",
    [
        {"reranker": WordReranker(version="words/1")},
        {"risk_policy": "allow"},
        {"moderation": "buffered", "moderator": WordModerator()},
        {"evidence_passages": 3},
        {"model_name": "another", "model": ScriptedModel(["The limit is 42 [1]."], name="another")},
    ],
    ids=["reranker", "risk_policy", "moderation", "evidence", "model"],
)
async def test_a_process_with_other_settings_makes_its_own_answers(options: dict[str, Any]) -> None:
    """Over the same store; the first one still has its own."""
    installation = Installation()
    config = open_gate("words/1")
    with anyio.fail_after(PATIENCE_S):
        await installation.world(config=config).learn(TEXTS)
        async with installation.desk() as desk:
            await made_then_kept(desk)
        async with installation.desk(**options) as desk:
            await made_then_kept(desk)
        async with installation.desk() as desk:
            assert (await desk.ask()).cached


async def test_other_phrases_in_the_same_file_are_another_policy(tmp_path: Path) -> None:
    """What left under the old ones may be just what the new ones forbid."""
    installation = Installation()
    with anyio.fail_after(PATIENCE_S):
        await installation.world().learn(TEXTS)
        for word in ("heck", "darn"):
            async with installation.desk(**_phrases(tmp_path, word)) as desk:
                await made_then_kept(desk)
        async with installation.desk(**_phrases(tmp_path, "heck")) as desk:
            assert (await desk.ask()).cached
