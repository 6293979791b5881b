"""Follow-ups: searched with the words of the question before, answered from passages alone."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio

from gateway.access.classes import Acl
from gateway.ingest.governance import AclChange
from tests.harness.serving import serving_world
from tests.harness.wire import connected, request
from tests.harness.world import World

PATIENCE_S = 60
LEAVE = "# Vacation\n\nEmployees get 30 days of vacation. Contractors get 12 days of vacation.\n"
FAILOVER = "# Failover of the database\n\nWhat about database failover? It takes a minute.\n"
ACCESS = "# Break-glass access\n\nA break-glass session lasts 60 minutes. It may reach every database.\n"
#: passages of one section, each too long to share a passage with the next
UPLOADS = "The upload limit is told on this page and the upload limit is what this page is about. " * 10
WAITING = "Whoever sends more bytes waits: only forty-two files an hour are taken from one person. " * 10
PARKING = "# Parking\n\nThe garage closes at nine in the evening.\n"
FIRST = "How many vacation days do employees get?"
FOLLOW_UP = "And for contractors?"
SEARCHED = "And for contractors? (vacation days employees)"


@dataclass(frozen=True)
class Talk:
    """A served world in which people ask."""

    world: World
    port: int

    async def ask(self, question: str, conversation: str | None = "talk", **token: Any) -> tuple[Any, str]:
        """What was searched in place of the question, and the answer's status."""
        fields: dict[str, Any] = {} if conversation is None else {"conversation_id": conversation}
        events = await self._events(question, token, **fields)
        return events[0].data["searched_for"], events[-1].data["status"]

    async def sources(self, question: str) -> tuple[Any, set[str]]:
        """What was searched in place of the question, and where the answer's evidence came from."""
        events = await self._events(question, conversation_id="talk")
        meta = events[0].data
        return meta["searched_for"], {source["uri"] for source in meta["sources"]}

    async def done(self, question: str) -> dict[str, Any]:
        events = await self._events(question, conversation_id="talk")
        return dict(events[-1].data)

    async def _events(self, question: str, token: dict[str, Any] | None = None, **fields: Any) -> list[Any]:
        async with connected(self.port) as wire:
            await wire.ask(self.world.token(**(token or {})), question, **fields)
            events = await wire.all_events()
        await self.world.registry.idle()
        return list(events)

    async def document(self, source: str) -> str:
        documents = await self.world.catalog.documents("acme", "handbook")
        return str(next(d.document_id for d in documents if d.source == source))


@asynccontextmanager
async def talking(**settings: Any) -> AsyncIterator[Talk]:
    world = World(**settings)
    await world.learn({"leave.md": LEAVE, "parking.md": PARKING})
    with anyio.fail_after(PATIENCE_S):
        async with serving_world(world) as port:
            yield Talk(world, port)


async def test_a_follow_up_is_searched_with_the_words_of_the_question_before() -> None:
    """Its reader sees what was searched, then and in its trace; one that stands alone isn't touched."""
    async with talking() as talk:
        assert await talk.ask(FIRST) == (None, "ANSWERED")
        assert await talk.ask(FOLLOW_UP) == (SEARCHED, "ANSWERED")
        await talk.world.services.traces.flush()
        traces = talk.world.catalog._traces.values()
        assert [(one.question, one.searched) for one in traces] == [(FIRST, ""), (FOLLOW_UP, SEARCHED)]
        assert (await talk.ask("When does the garage close?"))[0] is None


async def test_history_is_no_evidence() -> None:
    """What the follow-up itself names must be in a passage: refused twice, and no model is asked."""
    async with talking() as talk:
        await talk.ask(FIRST)
        before = talk.world.model.called
        for bad in ("And for zebras?", "And for astronauts?", "What about Mongolia?"):
            searched, status = await talk.ask(bad)
            assert searched is not None
            assert status == "REFUSED_NO_EVIDENCE", bad
        assert talk.world.model.called == before


async def test_a_follow_up_with_a_topic_of_its_own_rests_on_passages_about_it_alone() -> None:
    """What is said of the topic before, in other passages, is neither evidence nor an answer."""
    async with talking() as talk:
        await talk.world.learn({"failover.md": FAILOVER, "access.md": ACCESS})
        await talk.ask("How long does a break-glass session last?")
        searched, sources = await talk.sources("What about database failover?")
        assert searched == "What about database failover? (break-glass session last)"
        assert sources == {"failover.md"}
        before = talk.world.model.called
        for bad in ("What about database backups?", "What about parental leave?"):
            done = await talk.done(bad)
            assert (done["status"], done["reasons"]) == ("REFUSED_NO_EVIDENCE", ["KEY_TERMS_NOT_COVERED"])
        assert talk.world.model.called == before


async def test_a_follow_up_gets_no_neighbours() -> None:
    """What stands behind its passage may be about the question before."""
    async with talking(rrf_dense_weight=0.1, evidence_passages=1) as talk:
        await talk.world.learn({"limits.md": f"# Limits\n\n{UPLOADS}\n\n{WAITING}\n"})
        for question, completed in (("What is the upload limit of a page?", True), ("And uploads?", False)):
            assert (await talk.ask(question))[1] == "ANSWERED"
            prompt = talk.world.model.prompts[-1].messages[1].content
            assert UPLOADS.strip() in prompt
            assert (WAITING.strip() in prompt) is completed


async def test_a_question_that_names_nothing_is_searched_as_it_is() -> None:
    """The answer before isn't given once more; and the next follow-up still leans on the question before."""
    async with talking() as talk:
        await talk.ask(FIRST)
        for nothing in ("ok", "it it it", "Why?", "How long?", "为什么？"):
            assert (await talk.ask(nothing))[0] is None
        assert await talk.ask(FOLLOW_UP) == (SEARCHED, "ANSWERED")


async def test_a_follow_up_leans_on_the_last_question_that_stands_alone() -> None:
    """Not on another follow-up; and on a refused question rather than on an older one."""
    async with talking() as talk:
        await talk.ask(FIRST)
        await talk.ask(FOLLOW_UP)
        assert (await talk.ask("And for employees?"))[0] == "And for employees? (vacation days)"
        assert await talk.ask("What is the capital of Mongolia?") == (None, "REFUSED_NO_EVIDENCE")
        assert (await talk.ask(FOLLOW_UP))[0] == "And for contractors? (capital Mongolia)"


async def test_a_conversation_is_bound_to_its_person() -> None:
    """For anybody else, here or in another tenant, the same id is a new conversation."""
    async with talking() as talk:
        await talk.world.learn({"leave.md": LEAVE}, tenant="globex")
        await talk.ask(FIRST)
        assert (await talk.ask(FOLLOW_UP, subject="bob"))[0] is None
        assert (await talk.ask(FOLLOW_UP, tenant="globex"))[0] is None
        assert (await talk.ask(FOLLOW_UP, conversation="another"))[0] is None
        assert (await talk.ask(FOLLOW_UP, conversation=None))[0] is None
        assert (await talk.ask(FOLLOW_UP))[0] == SEARCHED


async def test_a_turn_is_used_only_while_its_asker_may_see_what_it_rests_on() -> None:
    """Not while the document is out of his reach; and never again once it was deleted."""
    async with talking() as talk:
        await talk.ask(FIRST)
        document_id = await talk.document("leave.md")
        for allow, used in (("user:olga", None), ("group:staff", SEARCHED)):
            acl = Acl.parse([allow], ())
            await talk.world.catalog.set_acl(AclChange("acme", document_id, acl, "olga", 600))
            await talk.world.services.feed.step()
            assert (await talk.ask(FOLLOW_UP))[0] == used
        await talk.world.catalog.delete_document("acme", document_id)
        await talk.world.work()
        assert talk.world.catalog._turns == []


async def test_without_turns_to_keep_every_question_stands_alone() -> None:
    """The setting turns it off."""
    async with talking(conversation_turns=0) as talk:
        await talk.ask(FIRST)
        assert (await talk.ask(FOLLOW_UP))[0] is None
        assert talk.world.catalog._turns == []


async def test_people_erase_their_own_conversations() -> None:
    """With their traces."""
    async with talking() as talk:
        await talk.ask(FIRST)
        _, erased = await request(talk.port, "DELETE", "/v1/traces", token=talk.world.token())
        assert erased == b'{"erased":1,"turns":1}'
        assert (await talk.ask(FOLLOW_UP))[0] is None
