"""The alarm that bounds the waits of a model call: it cancels its own task, once, and only while it is on."""

import asyncio
import gc
import weakref

import anyio
import pytest

from gateway.adapters.openai.alarm import Alarm

PATIENCE_S = 10


async def rung(alarm: Alarm) -> bool:
    """Waits for good with the alarm due at once; whether ``off`` says that it rang."""
    alarm.on(0)
    try:
        with anyio.fail_after(PATIENCE_S):
            await asyncio.Event().wait()
    except asyncio.CancelledError:
        return alarm.off()
    raise AssertionError("it didn't ring")


async def test_it_cancels_the_wait_and_takes_its_cancel_back() -> None:
    """As often as it is switched on; nothing of it is left in the task."""
    alarm = Alarm()
    for _ in range(3):
        assert await rung(alarm)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
    alarm.close()


async def test_switched_off_in_time_it_never_rings() -> None:
    """The timer that is left runs into nothing, and the next wait sets it again for itself."""
    alarm = Alarm()
    alarm.on(0)
    assert not alarm.off()
    late = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.01, late.set_result, None)
    with anyio.fail_after(PATIENCE_S):
        await late
    assert await rung(alarm)
    alarm.close()


async def test_off_without_on_is_harmless() -> None:
    """Also twice after it rang."""
    alarm = Alarm()
    assert not alarm.off()
    assert await rung(alarm)
    assert not alarm.off()
    alarm.close()
    alarm.close()


@pytest.mark.parametrize(("first_s", "then_s"), [(60.0, 0.0), (0.0, 0.01)])
async def test_the_latest_wait_decides(first_s: float, then_s: float) -> None:
    """A shorter one sets the timer anew; for a longer one it rings too early and goes on."""
    alarm = Alarm()
    alarm.on(first_s)
    assert not alarm.off()
    alarm.on(then_s)
    due = asyncio.get_running_loop().time() + then_s
    with pytest.raises(asyncio.CancelledError), anyio.fail_after(PATIENCE_S):
        await asyncio.Event().wait()
    assert alarm.off()
    assert asyncio.get_running_loop().time() >= due
    alarm.close()


async def test_a_cancel_of_somebody_else_goes_on() -> None:
    """``off`` says that it wasn't the alarm alone, so that the task ends as it was told to."""
    alarm_said: list[bool] = []
    waiting = asyncio.Event()

    async def wait() -> None:
        alarm = Alarm()
        alarm.on(0)
        waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            alarm_said.append(alarm.off())
            alarm.close()

    async def cancelled_from(loop: asyncio.AbstractEventLoop) -> None:
        task = loop.create_task(wait())
        await waiting.wait()
        loop.call_soon(task.cancel)  # in the same turn as the alarm, or before it
        with anyio.fail_after(PATIENCE_S), pytest.raises(asyncio.CancelledError):
            await task

    await cancelled_from(asyncio.get_running_loop())
    assert alarm_said == [False]


async def test_closed_it_leaves_nothing_on_the_loop() -> None:
    """The loop would keep the call alive until the timer is due."""
    alarm = Alarm()
    alarm.on(3600)
    alarm.off()
    gone = weakref.ref(alarm)
    alarm.close()
    del alarm
    gc.collect()
    assert gone() is None


async def test_closed_while_on_it_never_rings() -> None:
    """Closing comes first in a cleanup that waits itself."""
    alarm = Alarm()
    alarm.on(0)
    alarm.close()
    late = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.01, late.set_result, None)
    with anyio.fail_after(PATIENCE_S):
        await late
    assert not alarm.off()


def test_on_uvloop_a_wait_may_follow_one_that_is_due_at_once() -> None:
    """There a timer without a delay is a plain handle that doesn't know its time."""
    uvloop = pytest.importorskip("uvloop")

    async def waits() -> None:
        alarm = Alarm()
        for seconds in (0.0, 60.0, 0.0, 0.0001, 60.0):
            alarm.on(seconds)
            assert not alarm.off()
        assert await rung(alarm)
        alarm.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(waits())
