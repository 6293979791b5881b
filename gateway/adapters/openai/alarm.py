"""An alarm: bounds many short waits with hardly any timers, where ``asyncio.timeout`` sets one each."""

import asyncio


class Alarm:
    """Between ``on`` and ``off`` it cancels the task that switched it on, once the time is up.

    Made on a running loop. The timer stays as it is while waits come and go, and is set again when it rings
    too early. As with ``asyncio.timeout``, a cancel of somebody else that came as well is left to go on.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[object] | None = None
        self._timer: asyncio.Handle | None = None
        self._rings_at = 0.0  # not the timer's word: uvloop gives one that is due at once no time
        self._due = 0.0
        self._cancels = 0
        self._rang = False

    def on(self, seconds: float) -> None:
        self._task = asyncio.current_task(self._loop)
        self._cancels = self._task.cancelling() if self._task is not None else 0
        self._due = self._loop.time() + seconds
        if self._timer is None or self._rings_at > self._due:
            self._set_timer()

    def off(self) -> bool:
        """Takes its cancel back; True when it rang and nobody else cancelled the task meanwhile."""
        task, self._task = self._task, None
        rang, self._rang = self._rang, False
        return rang and task is not None and task.uncancel() <= self._cancels

    def close(self) -> None:
        """Nothing is left behind on the loop."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self) -> None:
        self.close()
        self._rings_at = self._due
        self._timer = self._loop.call_at(self._due, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._task is None:
            return
        if self._loop.time() < self._due:
            self._set_timer()
            return
        self._rang = True
        self._task.cancel()
