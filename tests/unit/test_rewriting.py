"""A model that tells follow-ups anew: one short call, and rules instead of whatever goes wrong with it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import anyio
import pytest

from gateway.access.authorizer import DocumentRef, DocumentStanding
from gateway.access.classes import Acl
from gateway.adapters.memory.models import Gate, ScriptedModel
from gateway.admission.breaker import Breaker
from gateway.admission.bulkhead import Bulkhead
from gateway.answer.calls.endpoints import Endpoint, Endpoints
from gateway.answer.calls.fault import ModelRefused, ModelThrottled, ModelUnreached
from gateway.answer.model import ModelFinish, TextPiece
from gateway.answer.rewriting.rewriting import RewriteCaps, Rewriting, Rewritten
from gateway.context import Deadline
from gateway.errors import (
    CatalogUnavailable,
    DeadlineExceeded,
    GatewayError,
    QuotaExceeded,
    QuotaUnavailable,
    UpstreamFailed,
)
from gateway.observe.hooks import RewriteSkip
from gateway.stream.protocol import Usage
from tests.unit.calling_bench import Bench

PATIENCE_S = 10
FOLLOW_UP = "And for contractors?"
DAYS = "How many vacation days do employees get?"
WHOLE = "How many vacation days do contractors get?"
PARKING = "When does the garage close?"
OPEN, SECRET, GONE = (DocumentRef(name, 1) for name in ("open", "secret", "gone"))
MANY_MS = 60_000


@dataclass(frozen=True)
class Asked:
    """A question put before."""

    question: str
    documents: frozenset[DocumentRef] = frozenset({OPEN})


@dataclass
class Shelf:
    """Says how sensitive documents are."""

    error: GatewayError | None = None

    async def standings(
        self, tenant: str, kb_id: str, refs: Sequence[DocumentRef]
    ) -> Mapping[DocumentRef, DocumentStanding]:
        assert (tenant, kb_id) == ("acme", "kb")
        if self.error is not None:
            raise self.error
        known = {OPEN: 1, SECRET: 2}
        return {ref: _standing(known[ref]) for ref in refs if ref in known}


def _standing(sensitivity: int) -> DocumentStanding:
    acl = Acl.parse(["public"])
    return DocumentStanding(
        acl,
        acl,
        deleted=False,
        revoked=False,
        withdrawn=False,
        sensitivity=sensitivity,
        valid_from=None,
        valid_until=None,
    )


class Talk:
    """One follow-up and a scripted model that is to tell it."""

    def __init__(self, model: Any, *, cap_ms: int = MANY_MS, places: int = 1, **bench: Any) -> None:
        self.model = model
        self.bench = Bench(model, **bench)
        self.shelf = Shelf()
        self.generation = Bulkhead("generation", places, wait_ms=0)
        caps = RewriteCaps(cap_ms, catalog_ms=1000, first_token_ms=2000)
        self.rewriting = Rewriting(self.bench.calls, self.generation, self.shelf, caps)

    async def tell(self, *said: Asked) -> Rewritten:
        with anyio.fail_after(PATIENCE_S):
            told = await self.rewriting.tell(
                self.bench.context, self.bench.trace, FOLLOW_UP, said or (Asked(DAYS),)
            )
        assert self.generation.in_use == 0
        assert self.model.closed == self.model.called
        assert [entry[0] for entry in self.bench.quota.log] in ([], ["reserve", "settle"])
        return told

    @property
    def calls(self) -> float:
        return self.bench.counted("gateway_model_calls_total", kind="rewrite")


def telling(*pieces: str, **script: Any) -> ScriptedModel:
    return ScriptedModel(pieces or ("How many vacation ", "days do contractors get?"), **script)


async def test_a_follow_up_is_told_by_one_call_that_is_counted_apart() -> None:
    """With what it used as the model states it, its own tokens, and never as a generation."""
    talk = Talk(telling())
    assert await talk.tell() == Rewritten(WHOLE, usage=Usage(1, 2, estimated=False))
    assert talk.bench.quota.log == [("reserve", 0, "scripted"), ("settle", 0, 3)]
    assert (talk.calls, talk.bench.counted("gateway_model_calls_total", kind="generation")) == (1, 0)
    for kind, tokens in (("rewrite_input", 1), ("rewrite_output", 2), ("input", 0), ("output", 0)):
        assert talk.bench.counted("gateway_model_tokens_total", kind=kind) == tokens
    assert talk.bench.counted("gateway_stage_seconds_count", stage="rewrite") == 1
    assert talk.bench.trace.facts == {"rewrite_model": "scripted", "rewrite_questions": 1}


FAILURES: list[tuple[ScriptedModel, RewriteSkip]] = [
    *(
        (telling(fail={place: error}), RewriteSkip.UNAVAILABLE)
        for place in (-1, 1)
        for error in (UpstreamFailed("broken"), ModelThrottled("busy"), ModelRefused("no"))
    ),
    (telling(fail={-1: ModelUnreached("nobody there")}), RewriteSkip.UNAVAILABLE),
    (telling(fail={-1: DeadlineExceeded("first_token")}), RewriteSkip.TOO_SLOW),
    (telling(" "), RewriteSkip.EMPTY),
    (telling("What do the members of the board earn?"), RewriteSkip.STRAYED),
    (telling(f"{WHOLE}\n", "1. Vacation"), RewriteSkip.MALFORMED),
    (telling(WHOLE, cut_short=True), RewriteSkip.MALFORMED),
    (ScriptedModel([TextPiece(WHOLE), ModelFinish("length")]), RewriteSkip.MALFORMED),
]


@pytest.mark.parametrize(("model", "skip"), FAILURES)
async def test_whatever_goes_wrong_is_a_reason_and_nothing_is_asked_twice(
    model: ScriptedModel, skip: RewriteSkip
) -> None:
    """Failures, cuts, and text that is none."""
    talk = Talk(model, retries=3)
    told = await talk.tell()
    assert (told.text, told.skip, model.called, talk.calls) == ("", skip, 1, 1)


async def test_a_text_without_an_end_is_hung_up_on() -> None:
    """After some hundred characters."""
    model = telling(*["more and more "] * 1000)
    assert (await Talk(model).tell()).skip is RewriteSkip.MALFORMED
    assert model.produced < 100


@pytest.mark.parametrize("place", [-1, 1])
async def test_a_slow_one_is_hung_up_on_at_its_cap(place: int) -> None:
    """Before its headers or between its words; its breaker, which is that of answers, stays closed."""
    talk = Talk(telling(hold={place: Gate()}), cap_ms=30, breaker_failures=1)
    assert (await talk.tell()).skip is RewriteSkip.TOO_SLOW
    assert talk.bench.first.breaker.admits


async def test_what_the_answer_needs_of_the_time_is_left_to_it() -> None:
    """With less than a first token may take nothing is asked."""
    model = telling()
    assert (await Talk(model, deadline_ms=1500).tell()).skip is RewriteSkip.TOO_SLOW
    assert model.called == 0
    late = Talk(telling(hold={-1: Gate()}), deadline_ms=2050)
    assert (await late.tell()).skip is RewriteSkip.TOO_SLOW
    assert late.bench.context.deadline.remaining() > 0


@pytest.mark.parametrize("error", [QuotaExceeded("used up"), QuotaUnavailable("nobody knows")])
async def test_without_quota_nothing_is_asked(error: GatewayError) -> None:
    """Neither when it is used up nor when nobody knows."""
    talk = Talk(telling())
    talk.bench.quota.refused["scripted"] = error
    assert (await talk.tell()).skip is RewriteSkip.NO_QUOTA
    assert talk.model.called == 0


async def test_without_a_place_nothing_is_asked() -> None:
    """The places are those of answers."""
    talk = Talk(telling())
    with await talk.generation.acquire(Deadline.after(1000)):
        told = await talk.rewriting.tell(talk.bench.context, talk.bench.trace, FOLLOW_UP, (Asked(DAYS),))
    assert (told.skip, talk.model.called) == (RewriteSkip.OVERLOADED, 0)


async def test_an_endpoint_that_keeps_failing_is_left_alone() -> None:
    """By the breaker that answers have, which also counts what fails here."""
    talk = Talk(telling(fail={-1: UpstreamFailed("broken")}), breaker_failures=1)
    assert (await talk.tell()).skip is RewriteSkip.UNAVAILABLE
    assert (await talk.tell()).skip is RewriteSkip.LEFT_ALONE
    assert talk.model.called == 1


async def test_a_lost_place_in_the_quota_ends_the_call_and_not_the_question() -> None:
    """It is closed at once."""
    gate = Gate()
    talk = Talk(telling(hold={1: gate}))

    async def lose() -> None:
        await gate.reached.wait()
        talk.bench.quota.lost[0]()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lose)
        assert (await talk.tell()).skip is RewriteSkip.NO_QUOTA
    assert talk.bench.session.close_reason is None


@pytest.mark.parametrize(
    ("said", "sent"),
    [
        ((Asked(DAYS, frozenset({OPEN})), Asked(PARKING, frozenset({OPEN}))), [PARKING, DAYS]),
        ((Asked(DAYS, frozenset({OPEN})), Asked(PARKING, frozenset({OPEN, SECRET}))), [DAYS]),
        ((Asked(DAYS, frozenset({OPEN})), Asked(PARKING, frozenset({GONE}))), [DAYS]),
        ((Asked(DAYS), Asked(PARKING, frozenset({SECRET})), Asked("What is PTO?")), [DAYS]),
        ((Asked(DAYS), Asked(PARKING, frozenset())), [DAYS]),
    ],
)
async def test_only_what_the_model_is_cleared_for_is_sent(said: tuple[Asked, ...], sent: list[str]) -> None:
    """Up to the first question that was answered from something above it, from what nobody knows, or not at
    all, for that may be why.
    """
    model = telling(max_sensitivity=1)
    assert (await Talk(model).tell(*said)).text == WHOLE
    lines = model.prompts[0].messages[1].content.splitlines()
    assert lines[1:-1] == [*(f"earlier: {question}" for question in sent), f"last: {FOLLOW_UP}"]


@pytest.mark.parametrize("ref", [SECRET, GONE])
async def test_no_older_question_takes_the_place_of_a_last_one_that_may_not_leave(ref: DocumentRef) -> None:
    """It would be another topic; and it is the same when the catalog can't say."""
    model = telling(max_sensitivity=1)
    talk = Talk(model)
    assert (await talk.tell(Asked(DAYS, frozenset({ref})), Asked(PARKING))).skip is RewriteSkip.NOT_CLEARED
    talk.shelf.error = CatalogUnavailable("away")
    assert (await talk.tell(Asked(DAYS, frozenset({OPEN})))).skip is RewriteSkip.NOT_CLEARED
    assert model.called == 0


async def test_what_is_sent_of_a_conversation_is_bounded() -> None:
    """The newest six questions, five hundred characters of each; words beyond were never said."""
    model = telling(f"{WHOLE[:-1]} today?")
    said = [Asked(f"{DAYS} {'x' * 600} today?"), *(Asked(f"What is page {n}?") for n in range(9))]
    assert (await Talk(model).tell(*said)).skip is RewriteSkip.STRAYED
    lines = model.prompts[0].messages[1].content.splitlines()
    assert len(lines) == 6 + 3
    assert all(len(line) <= 520 for line in lines)


async def test_the_model_of_the_release_tells_its_follow_ups() -> None:
    """As it answers them: the first choice, after a rollback as well."""
    first, second = telling(name="first"), telling(name="second")
    talk = Talk(first, second=second)
    talk.bench.calls._endpoints = Endpoints(talk.bench.first, Endpoint(second, Breaker(5, 5), "second"))
    context = talk.bench.context
    context = replace(context, release=replace(context.release, model="second"))
    told = await talk.rewriting.tell(context, talk.bench.trace, FOLLOW_UP, (Asked(DAYS),))
    assert (told.text, first.called, second.called) == (WHOLE, 0, 1)
