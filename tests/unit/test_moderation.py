"""The output policy: nothing leaves that nobody has judged, and nothing follows what is blocked."""

import anyio
import pytest

from gateway.adapters.memory.models import Gate, ScriptedModel
from gateway.adapters.memory.moderation import WordModerator
from gateway.answer.calls.moderation import ModerationMode, OutputPolicy
from gateway.errors import (
    AnswerBlocked,
    DeadlineExceeded,
    GatewayError,
    ModerationUnavailable,
    UpstreamFailed,
)
from gateway.stream.session import CloseReason
from tests.unit.calling_bench import PROMPT_TOKENS, Bench, InTurn, failing, working

PATIENCE_S = 10
WORDS = {"poison": "harm", "weapon": "violence"}
PIECES = ("It is 42 [1]. ", "Then more", " of it.\n", "The end")
TEXT = "".join(PIECES)
MODES = (ModerationMode.SEGMENTED, ModerationMode.BUFFERED)
by_mode = pytest.mark.parametrize("mode", MODES)


def policy(mode: ModerationMode, moderator: WordModerator, cap_ms: int = 60_000) -> OutputPolicy:
    return OutputPolicy(mode, moderator, cap_ms)


@by_mode
async def test_what_is_judged_harmless_arrives_whole(mode: ModerationMode) -> None:
    """With its citations; each check is counted and timed."""
    moderator = WordModerator(WORDS)
    bench = Bench(working(*PIECES), policy=policy(mode, moderator))
    generated = await bench.answer()
    assert (generated.text, generated.cited, await bench.sent()) == (TEXT, (1,), TEXT)
    checks = bench.counted("gateway_model_calls_total", kind="moderation")
    assert checks == len(moderator.checked) == (3 if mode is ModerationMode.SEGMENTED else 1)
    assert bench.counted("gateway_stage_seconds_count", stage="moderate") == checks
    assert "moderate_ms" in bench.trace.record()


async def test_each_segment_is_judged_with_the_end_of_what_left_before_it() -> None:
    """A phrase may begin in one sentence and end in the next."""
    moderator = WordModerator()
    bench = Bench(working("One. ", "Two. ", "Three."), policy=policy(ModerationMode.SEGMENTED, moderator))
    await bench.answer()
    assert moderator.checked == ["One.", "One. Two.", "One. Two. Three."]


@by_mode
async def test_nothing_leaves_while_it_is_judged(mode: ModerationMode) -> None:
    """Not a letter of what the moderator has not seen, or is still looking at."""
    gate = Gate()
    moderator = WordModerator(hold=gate)
    bench = Bench(working(*PIECES), policy=policy(mode, moderator))
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.answer)
            await gate.reached.wait()
            await anyio.wait_all_tasks_blocked()
            assert bench.channel.unread_bytes == 0
            assert bench.trace.first_text_ms is None
            gate.release.set()
    assert await bench.sent() == TEXT


async def test_segments_leave_before_the_answer_is_whole() -> None:
    """Segmented is not buffered: the first sentence is there while the model is still at the second."""
    gate = Gate()
    model = ScriptedModel(["It is 42. ", "And more."], hold={2: gate})
    bench = Bench(model, policy=policy(ModerationMode.SEGMENTED, WordModerator()))
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.answer)
            await gate.reached.wait()
            assert bench.channel.unread_bytes == len("It is 42.")
            gate.release.set()


LEFT_BEFORE = {ModerationMode.SEGMENTED: "It is 42.", ModerationMode.BUFFERED: ""}


@by_mode
async def test_what_is_blocked_does_not_leave_and_ends_the_answer(mode: ModerationMode) -> None:
    """What was judged before has left; the call is closed, settled as counted and never repeated."""
    moderator = WordModerator(WORDS)
    model = ScriptedModel(["It is 42. ", "Drink the poison. ", "And ", "more."])
    second = ScriptedModel(["harmless"])
    bench = Bench(model, second, policy=policy(mode, moderator), breaker_failures=1)
    with pytest.raises(AnswerBlocked):
        await bench.answer()
    assert await bench.sent() == LEFT_BEFORE[mode]
    assert (model.called, model.closed, second.called) == (1, 1, 0)
    if mode is ModerationMode.SEGMENTED:
        assert model.produced < 5, "the rest was still generated"
        assert bench.quota.log[-1] == ("settle", 1, PROMPT_TOKENS + 8)
    assert bench.trace.facts["blocked_for"] == ("harm",)
    assert "poison" not in repr(bench.trace.record())
    assert bench.first.breaker.admits, "the endpoint was held to what the moderator said"


async def test_a_word_that_is_cut_in_two_is_still_found() -> None:
    """A sentence too long to wait for is judged in parts, but not apart."""
    bench = Bench(
        working("x" * 396 + "weap", "ons", " and more"),
        policy=policy(ModerationMode.SEGMENTED, WordModerator(WORDS)),
    )
    with pytest.raises(AnswerBlocked):
        await bench.answer()


@by_mode
@pytest.mark.parametrize("error", [ModerationUnavailable("down"), DeadlineExceeded("moderation")])
async def test_a_moderator_that_fails_lets_nothing_pass(mode: ModerationMode, error: GatewayError) -> None:
    """It is no failure of the model's: nothing is asked again and no endpoint is left alone for it."""
    model = working(*PIECES)
    bench = Bench(model, policy=policy(mode, WordModerator(error=error)), breaker_failures=1)
    with pytest.raises(type(error)) as caught:
        await bench.answer()
    assert caught.value is error
    assert (await bench.sent(), model.called, model.closed) == ("", 1, 1)
    assert bench.first.breaker.admits


@by_mode
async def test_a_moderator_that_is_slow_lets_nothing_pass(mode: ModerationMode) -> None:
    """Each check has its own cap."""
    moderator = WordModerator(hold=Gate())
    bench = Bench(working(*PIECES), policy=policy(mode, moderator, cap_ms=1))
    with anyio.fail_after(PATIENCE_S), pytest.raises(DeadlineExceeded) as caught:
        await bench.answer()
    assert (caught.value.stage, await bench.sent()) == ("moderation", "")


@by_mode
async def test_a_cancel_while_it_is_judged_closes_the_call(mode: ModerationMode) -> None:
    """And nothing leaves any more."""
    gate, model = Gate(), working(*PIECES)
    bench = Bench(model, policy=policy(mode, WordModerator(hold=gate)))

    async def answer() -> None:
        with pytest.raises(AssertionError):
            await bench.answer()

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer)
            await gate.reached.wait()
            bench.session.cancel(CloseReason.CLIENT_GONE)
    assert (await bench.sent(), model.closed) == ("", 1)


@by_mode
async def test_a_refusal_and_a_blank_answer_need_no_judge(mode: ModerationMode) -> None:
    """Nothing of them leaves."""
    moderator = WordModerator()
    bench = Bench(working("[[NO_", "SUPPORT]]"), policy=policy(mode, moderator))
    assert (await bench.answer()).no_support
    bench = Bench(working("  ", "\n"), policy=policy(mode, moderator), retries=0)
    with pytest.raises(UpstreamFailed):
        await bench.answer()
    assert (moderator.checked, await bench.sent()) == ([], "  \n" if mode is ModerationMode.SEGMENTED else "")


@by_mode
async def test_a_call_that_is_repeated_is_judged_from_its_own_beginning(mode: ModerationMode) -> None:
    """Nothing is left over from the one before."""
    moderator = WordModerator(WORDS)
    model = InTurn(failing(UpstreamFailed("it broke"), at=0), working(*PIECES))
    bench = Bench(model, policy=policy(mode, moderator))
    assert (await bench.answer()).text == TEXT
    assert await bench.sent() == TEXT


async def test_passages_above_the_moderators_clearance_are_no_evidence() -> None:
    """An answer that rests on them could not be judged."""
    for model, moderator, least in ((3, 1, 1), (1, 3, 1), (2, 2, 2)):
        judge = WordModerator(max_sensitivity=moderator)
        bench = Bench(ScriptedModel(max_sensitivity=model), policy=policy(ModerationMode.BUFFERED, judge))
        assert bench.calls.max_sensitivity == least


async def test_a_long_buffered_answer_leaves_in_slices_that_the_session_can_hold_back() -> None:
    """Its reader may be slow: no more than what is unread, and one slice, is held for him."""
    text = "0123456789" * 20_000
    bench = Bench(working(text), policy=policy(ModerationMode.BUFFERED, WordModerator()))
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.answer)
            await anyio.wait_all_tasks_blocked()
            assert 65_536 <= bench.channel.unread_bytes < 65_536 + 4096
            bench.session.cancel(CloseReason.CLIENT_GONE)
            tasks.cancel_scope.cancel()
