"""Model calls: what is asked again and where, what each call costs, and what an endpoint is held to."""

import anyio
import pytest

from gateway.adapters.memory.models import Gate, ScriptedModel
from gateway.answer.calls.fault import ModelRefused, ModelThrottled, ModelUnreached
from gateway.answer.model import ModelFinish, ModelPiece, TextPiece
from gateway.answer.reuse.keepable import why_unkept
from gateway.errors import (
    DeadlineExceeded,
    GatewayError,
    QuotaExceeded,
    QuotaUnavailable,
    UpstreamFailed,
)
from gateway.stream.session import CloseReason
from tests.unit.calling_bench import PROMPT_TOKENS, Bench, InTurn, failing, working

PATIENCE_S = 10
TEXT = "It is 42 [1]."
#: the pieces of a script cost a token each when it states its usage, and 1 for its prompt
STATED = 3

BROKEN = UpstreamFailed("it broke")
SLOW = DeadlineExceeded("first_token")
REPEATABLE: list[GatewayError] = [BROKEN, SLOW, ModelUnreached("nobody there"), ModelThrottled("busy")]
by_fault = pytest.mark.parametrize("fault", REPEATABLE, ids=lambda fault: type(fault).__name__)


async def test_a_call_that_works_is_made_once_and_settled_as_stated() -> None:
    """One reservation, one settlement, nothing repeated."""
    bench = Bench(working())
    generated = await bench.answer()
    assert (generated.text, why_unkept(generated), await bench.sent()) == (TEXT, "", TEXT)
    assert bench.quota.log == [("reserve", 1, "scripted"), ("settle", 1, STATED)]
    assert bench.trace.facts["models_asked"] == ["scripted"]
    assert bench.counted("gateway_model_retries_total", kind="same_endpoint") == 0


async def test_a_model_that_declines_in_its_own_words_has_given_no_sure_answer() -> None:
    """Its text has gone out by then: it stays an answer, which nothing supports and nobody keeps."""
    bench = Bench(working("The passages do not ", "mention a price [1]."))
    generated = await bench.answer()
    assert (generated.no_support, generated.sure) == (False, False)
    assert why_unkept(generated) == "unsure"
    assert await bench.sent() == "The passages do not mention a price [1]."


@by_fault
async def test_a_call_that_fails_before_its_first_text_is_repeated_once(fault: GatewayError) -> None:
    """The failed call is settled before the next one is reserved, under a key of its own."""
    bench = Bench(InTurn(failing(fault), working()))
    generated = await bench.answer()
    assert (generated.text, why_unkept(generated)) == (TEXT, "")
    used = None if type(fault) in {UpstreamFailed, DeadlineExceeded} else 0
    assert bench.quota.log == [
        ("reserve", 1, "first"),
        ("settle", 1, used),
        ("reserve", 2, "first"),
        ("settle", 2, STATED),
    ]
    assert bench.trace.facts["models_asked"] == ["first", "first"]
    assert bench.counted("gateway_model_retries_total", kind="same_endpoint") == 1
    assert bench.counted("gateway_model_calls_total", kind="generation") == 2


@pytest.mark.parametrize("retries", [0, 1, 3])
async def test_there_are_no_more_repetitions_than_the_setting_allows(retries: int) -> None:
    """Then the failure is told as it is."""
    model = InTurn(failing(BROKEN))
    bench = Bench(model, retries=retries)
    with pytest.raises(UpstreamFailed) as caught:
        await bench.answer()
    assert caught.value is BROKEN
    assert model.called == 1 + retries
    assert [entry[0] for entry in bench.quota.log] == ["reserve", "settle"] * (1 + retries)


FINAL: dict[str, ScriptedModel] = {
    "after text": failing(BROKEN, at=1),
    "after text that is still held back": failing(BROKEN, at=1, pieces=["[[NO_", "SUPPORT]]"]),
    "idle": failing(DeadlineExceeded("idle"), at=1),
    "a call nobody would accept": failing(ModelRefused("no")),
    "no time left in total": failing(DeadlineExceeded("total")),
}


@pytest.mark.parametrize("script", FINAL.values(), ids=FINAL)
async def test_what_cannot_be_repeated_is_not(script: ScriptedModel) -> None:
    """Text that came can't be taken back, and some failures would only come again."""
    called_before = script.called
    bench = Bench(script)
    with pytest.raises(GatewayError):
        await bench.answer()
    assert script.called == called_before + 1
    assert bench.counted("gateway_model_retries_total", kind="same_endpoint") == 0


async def test_an_answer_without_text_counts_as_a_failure_before_it() -> None:
    """Blank text is no answer, though it came to its end."""
    bench = Bench(InTurn(ScriptedModel([]), working()))
    assert (await bench.answer()).text == TEXT


async def test_a_retry_after_that_fits_is_waited_for() -> None:
    """And the call is made again after it, not before."""
    model = InTurn(failing(ModelThrottled("busy", retry_after_ms=30)), working())
    bench = Bench(model)
    before = anyio.current_time()
    await bench.answer()
    assert anyio.current_time() - before >= 0.03
    assert model.called == 2


async def test_a_retry_after_that_does_not_fit_is_told_at_once() -> None:
    """Nobody is kept waiting for what can't come in time."""
    model = InTurn(failing(ModelThrottled("busy", retry_after_ms=61_000)), working())
    bench = Bench(model)
    with anyio.fail_after(PATIENCE_S), pytest.raises(ModelThrottled) as caught:
        await bench.answer()
    assert (caught.value.retry_after_ms, model.called) == (61_000, 1)


@pytest.mark.parametrize(
    ("pause_ms", "deadline_ms"), [(2001, 60_000), (1900, 3000)], ids=["longer than a first token", "late"]
)
async def test_an_answer_keeps_its_place_no_longer_than_a_first_token_may_take(
    pause_ms: int, deadline_ms: float
) -> None:
    """Others could be answered meanwhile; nor is it kept when no time for a first token would be left."""
    model = InTurn(failing(ModelThrottled("busy", retry_after_ms=pause_ms)), working())
    bench = Bench(model, deadline_ms=deadline_ms, first_token_cap_ms=2000)
    with pytest.raises(ModelThrottled) as caught:
        await bench.answer()
    assert (caught.value.retry_after_ms, model.called) == (pause_ms, 1)


async def test_a_call_that_need_not_wait_is_repeated_however_little_time_is_left() -> None:
    """It keeps nobody waiting."""
    model = InTurn(failing(ModelUnreached("nobody there")), working())
    assert (await Bench(model, first_token_cap_ms=90_000).answer()).text == TEXT


# -- the second endpoint -----------------------------------------------------------------------------


@by_fault
async def test_the_second_endpoint_is_asked_when_the_first_one_fails(fault: GatewayError) -> None:
    """Instead of the same one again; its answer is not kept, and the trace names who was asked."""
    first, second = InTurn(failing(fault)), InTurn(working("Second [1]."), name="second")
    bench = Bench(first, second)
    generated = await bench.answer()
    assert (generated.text, why_unkept(generated)) == ("Second [1].", "second_endpoint")
    assert [entry[:2] for entry in bench.quota.log] == [
        ("reserve", 1),
        ("settle", 1),
        ("reserve", 2),
        ("settle", 2),
    ]
    assert bench.quota.log[2] == ("reserve", 2, "second")
    assert (bench.trace.facts["model"], bench.trace.facts["models_asked"]) == ("second", ["first", "second"])
    assert bench.counted("gateway_model_retries_total", kind="second_endpoint") == 1
    assert bench.counted("gateway_model_retries_total", kind="same_endpoint") == 0


@pytest.mark.parametrize("retries", [0, 1, 3])
async def test_the_second_endpoint_is_asked_once(retries: int) -> None:
    """However many repetitions there may be; also for a call that the first one refuses."""
    first = InTurn(failing(ModelRefused("no such model")))
    second = InTurn(failing(BROKEN), name="second")
    bench = Bench(first, second, retries=retries)
    with pytest.raises(UpstreamFailed) as caught:
        await bench.answer()
    assert caught.value is BROKEN
    assert (first.called, second.called) == (1, 1)


async def test_the_second_endpoint_gets_nothing_it_is_not_cleared_for() -> None:
    """One passage above its clearance is enough; the first one is asked again instead."""
    first, second = InTurn(failing(BROKEN), working()), InTurn(working(), name="second", max_sensitivity=1)
    bench = Bench(first, second, sensitivity=2)
    assert (await bench.answer()).second_choice is False
    assert (first.called, second.called) == (2, 0)


@pytest.mark.parametrize("refusal", [QuotaExceeded("full"), QuotaUnavailable("nobody knows")])
async def test_a_repetition_without_a_place_tells_the_failure_before_it(refusal: GatewayError) -> None:
    """The upstream is why there is no answer."""
    first, second = InTurn(failing(BROKEN)), InTurn(working(), name="second")
    bench = Bench(first, second)
    bench.quota.refused["second"] = refusal
    with pytest.raises(UpstreamFailed) as caught:
        await bench.answer()
    assert caught.value is BROKEN
    assert (second.called, second.max_sensitivity) == (0, 3)


# -- the breaker -------------------------------------------------------------------------------------


async def fail_often(bench: Bench, times: int) -> None:
    for _ in range(times):
        with pytest.raises(UpstreamFailed):
            await bench.answer()
        bench.next_answer()


async def test_an_endpoint_that_keeps_failing_is_left_alone() -> None:
    """Nothing is reserved, nobody is asked, and before any embedding the caller hears when to come again."""
    model = InTurn(failing(BROKEN), failing(BROKEN), working())
    bench = Bench(model, retries=0, breaker_failures=2)
    await fail_often(bench, 2)
    del bench.quota.log[:]
    bench.clock += 1
    with pytest.raises(UpstreamFailed) as caught:
        bench.calls.check()
    assert caught.value.retry_after_ms == 4000
    with pytest.raises(UpstreamFailed):
        await bench.answer()
    assert (model.called, bench.quota.log) == (2, [])
    bench.clock += 4
    bench.next_answer()
    bench.calls.check()
    assert (await bench.answer()).text == TEXT


async def test_a_first_choice_that_is_left_alone_isnt_asked_before_the_second() -> None:
    """The second answers at once, without a repetition; with no clearance there is no answer."""
    first, second = InTurn(failing(BROKEN)), InTurn(working(), name="second", max_sensitivity=1)
    bench = Bench(first, second, breaker_failures=1)
    assert (await bench.answer()).second_choice
    bench.next_answer()
    bench.calls.check()
    assert (await bench.answer()).second_choice
    assert (first.called, second.called) == (1, 2)
    assert bench.trace.facts["models_asked"] == ["second"]
    assert bench.counted("gateway_model_retries_total", kind="second_endpoint") == 1
    secret = Bench(first, second, breaker_failures=1, sensitivity=2)
    await fail_often(secret, 1)
    with pytest.raises(UpstreamFailed) as caught:
        await secret.answer()
    assert caught.value.retry_after_ms == 5000
    assert second.called == 2


async def test_a_second_endpoint_that_is_left_alone_is_no_way_out() -> None:
    """The first one is asked again instead."""
    second = InTurn(working(), name="second")
    bench = Bench(InTurn(failing(BROKEN), working()), second, breaker_failures=2)
    assert bench.second is not None
    for _ in range(2):
        trial = bench.second.breaker.admit()
        assert trial is not None
        trial.failed()
    assert (await bench.answer()).second_choice is False
    assert second.called == 0


async def test_a_probe_that_is_refused_lets_the_next_one_probe_while_the_second_endpoint_answers() -> None:
    """It said nothing about the endpoint, and its session may last."""
    gate = Gate()
    first = InTurn(failing(BROKEN), failing(ModelRefused("too long")))
    second = InTurn(working(), ScriptedModel(["It is "], hold={1: gate}), name="second")
    bench = Bench(first, second, breaker_failures=1)
    await bench.answer()
    bench.clock += 5
    bench.next_answer()
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.answer)
            await gate.reached.wait()
            assert first.called == 2
            assert bench.first.breaker.admits
            gate.release.set()


HELD_AGAINST: dict[str, tuple[ScriptedModel, bool]] = {
    "a break": (failing(BROKEN), True),
    "no first token": (failing(SLOW), True),
    "a break after text": (failing(BROKEN, at=1), True),
    "idle": (failing(DeadlineExceeded("idle"), at=1), True),
    "the total deadline": (failing(DeadlineExceeded("total")), False),
    "a call it refuses": (failing(ModelRefused("too long")), False),
}


@pytest.mark.parametrize(("script", "counts"), HELD_AGAINST.values(), ids=HELD_AGAINST)
async def test_only_its_own_failures_are_held_against_an_endpoint(
    script: ScriptedModel, counts: bool
) -> None:
    """Not the question's, nor its deadline's."""
    bench = Bench(script, retries=0, breaker_failures=1)
    with pytest.raises(GatewayError):
        await bench.answer()
    assert bench.first.breaker.admits is not counts


# -- leaving -----------------------------------------------------------------------------------------

#: where the call is when it is left: what is settled then
LEFT: dict[int, int | None] = {-1: None, 0: PROMPT_TOKENS, 1: PROMPT_TOKENS + 2}


@pytest.mark.parametrize(("place", "used"), LEFT.items(), ids=["before headers", "before text", "mid-stream"])
async def test_an_answer_that_is_cancelled_settles_what_was_counted(place: int, used: int | None) -> None:
    """Prompt and text that came; nobody knows before the headers. Nothing is repeated or held against it."""
    gate = Gate()
    model = InTurn(ScriptedModel(["It is ", "42 [1]."], hold={place: gate}))
    bench = Bench(model, breaker_failures=1)
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancelled_answer, bench)
            await gate.reached.wait()
            bench.session.cancel(CloseReason.CLIENT_GONE)
    assert bench.quota.log == [("reserve", 1, "first"), ("settle", 1, used)]
    assert model.called == 1
    assert bench.first.breaker.admits


async def _cancelled_answer(bench: Bench) -> None:
    with pytest.raises(AssertionError):
        await bench.answer()


async def test_a_call_that_was_reserved_and_never_made_has_used_nothing() -> None:
    """Permissions changed meanwhile, say."""
    bench = Bench(working())
    await bench.calls.reserve(bench.session, bench.context, bench.evidence)
    bench.session.release_all()
    assert bench.quota.log == [("reserve", 1, "scripted"), ("settle", 1, 0)]


async def test_a_probe_that_is_cancelled_lets_the_next_one_probe() -> None:
    """At every place where it may be cancelled."""
    for place in (-1, 0, 1):
        gate = Gate()
        model = InTurn(failing(BROKEN), ScriptedModel(["It is ", "42."], hold={place: gate}), working())
        bench = Bench(model, retries=0, breaker_failures=1)
        await fail_often(bench, 1)
        bench.clock += 5
        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_cancelled_answer, bench)
                await gate.reached.wait()
                bench.session.cancel(CloseReason.CLIENT_GONE)
        bench.next_answer()
        assert (await bench.answer()).text == TEXT


async def test_a_refused_reservation_leaves_the_probe_to_the_next() -> None:
    """The quota has no say about the endpoint."""
    bench = Bench(InTurn(failing(BROKEN), working()), retries=0, breaker_failures=1)
    await fail_often(bench, 1)
    bench.clock += 5
    bench.quota.refused["first"] = QuotaExceeded("full")
    with pytest.raises(QuotaExceeded):
        await bench.answer()
    bench.quota.refused.clear()
    bench.next_answer()
    assert (await bench.answer()).text == TEXT


async def test_a_place_that_is_lost_ends_the_session() -> None:
    """Also the place of a repetition."""
    gate = Gate()
    bench = Bench(InTurn(failing(BROKEN), ScriptedModel(["It is "], hold={1: gate})))
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancelled_answer, bench)
            await gate.reached.wait()
            bench.quota.lost[-1]()
    assert bench.session.close_reason is CloseReason.QUOTA_LOST
    assert bench.quota.log[-1] == ("settle", 2, PROMPT_TOKENS + 2)


async def test_usage_that_was_not_stated_is_estimated_from_all_that_came() -> None:
    """Markers that were dropped on the way have been generated as well."""
    pieces: list[ModelPiece] = [TextPiece("It is 42 [9][9][9].     "), ModelFinish("stop")]
    bench = Bench(ScriptedModel(pieces))
    generated = await bench.answer()
    assert "[9]" not in generated.text
    assert bench.quota.log[-1] == ("settle", 1, PROMPT_TOKENS + 6)
    assert generated.usage.estimated
