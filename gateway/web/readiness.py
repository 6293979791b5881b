"""Readiness: whether every part answers, so that asking costs a part next to nothing.

Nothing is asked while nobody asks. Whoever finds an answer too old asks the part again: a part that was
up is waited for, one that is down is asked behind the caller's back, less and less often.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import anyio

from gateway.errors import DeadlineExceeded, GatewayError, Unavailable
from gateway.observe.logging import get_logger

#: asks one part; it is down when this raises a GatewayError, whose code tells why, or answers False
Check = Callable[[], Awaitable[bool | None]]
Clock = Callable[[], float]

_CAP_S = 2.0
_REMEMBERED_S = 1.0
_LOOK_S = 0.25
#: how long a part that is down is left alone after its first, second, ... failure in a row
_BACK_OFF_S = (1.0, 2.0, 4.0, 5.0)

_log = get_logger("readiness")


@dataclass(frozen=True, slots=True)
class PartState:
    """``since_s``: seconds in this state, as far as anybody asked. ``code``: why it is down. Without a part
    that isn't ``needed`` questions are answered, only not as well.
    """

    up: bool
    since_s: float
    code: str | None = None
    needed: bool = True


class Readiness:
    """Each part by itself: asked beside the others, at most ``cap_s`` long, never twice at a time."""

    def __init__(
        self,
        checks: Mapping[str, Check],
        *,
        optional: Mapping[str, Check] | None = None,
        cap_s: float = _CAP_S,
        clock: Clock = time.monotonic,
    ) -> None:
        self._parts = {
            name: _Part(name, check, cap_s, clock, needed=needed)
            for asked, needed in ((checks, True), (optional or {}, False))
            for name, check in asked.items()
        }

    async def states(self) -> dict[str, PartState]:
        """Every part, within ``cap_s``; never raises what a part raises."""
        awaited = [asking for part in self._parts.values() if (asking := part.asked())]
        if awaited:
            await asyncio.wait(awaited)
        return {name: part.state() for name, part in self._parts.items()}

    async def until_up(self) -> None:
        """Returns once every part that is needed answers; bound it yourself."""
        while not all(state.up or not state.needed for state in (await self.states()).values()):  # noqa: ASYNC110 - nobody tells us
            await asyncio.sleep(_LOOK_S)


class _Part:
    """One part's last answer, and when it is asked again."""

    def __init__(self, name: str, check: Check, cap_s: float, clock: Clock, *, needed: bool) -> None:
        self._name = name
        self._needed = needed
        self._check = check
        self._cap_s = cap_s
        self._clock = clock
        self._code: str | None = None
        self._failures = 0
        self._since: float | None = None
        self._ask_at = float("-inf")
        self._asking: asyncio.Task[None] | None = None
        self._hanging: asyncio.Task[bool | None] | None = None

    def state(self) -> PartState:
        since = self._clock() if self._since is None else self._since
        return PartState(self._code is None, self._clock() - since, self._code, self._needed)

    def asked(self) -> asyncio.Task[None] | None:
        """Asks when it is time to; the question that a caller waits for, if any."""
        if self._asking is None and self._hanging is None and self._clock() >= self._ask_at:
            # A task of its own: a caller that leaves doesn't spoil the answer for the others.
            self._asking = asyncio.create_task(self._ask())
        return self._asking if self._code is None else None

    async def _ask(self) -> None:
        try:
            self._record(await self._answer())
        finally:
            self._asking = None

    async def _answer(self) -> str | None:
        """None, or the code of what is wrong; in time, even when the check neither ends nor lets go."""
        check = asyncio.create_task(self._bounded())
        done, _ = await asyncio.wait({check}, timeout=self._cap_s)
        if done:
            return _code_of(check)
        self._hanging = check
        check.add_done_callback(self._let_go)
        return DeadlineExceeded.code

    async def _bounded(self) -> bool | None:
        with anyio.fail_after(self._cap_s):
            return await self._check()

    def _let_go(self, check: "asyncio.Task[bool | None]") -> None:
        self._hanging = None
        if not check.cancelled():
            check.exception()  # too late to matter; unread, it would be reported as forgotten

    def _record(self, code: str | None) -> None:
        now = self._clock()
        if self._since is None or (code is None) != (self._code is None):
            self._tell(code, now)
            self._since = now
        self._code = code
        if code is None:
            self._failures = 0
            self._ask_at = now + _REMEMBERED_S
        else:
            self._ask_at = now + _BACK_OFF_S[min(self._failures, len(_BACK_OFF_S) - 1)]
            self._failures += 1

    def _tell(self, code: str | None, now: float) -> None:
        if code is not None:
            _log.warning("readiness.part_down", part=self._name, code=code)
        elif self._since is not None:
            _log.info("readiness.part_up", part=self._name, down_s=round(now - self._since, 3))


def _code_of(check: "asyncio.Task[bool | None]") -> str | None:
    try:
        return Unavailable.code if check.result() is False else None
    except GatewayError as error:
        return error.code
    except TimeoutError:
        return DeadlineExceeded.code
    except Exception:  # noqa: BLE001 - a defect in one check must not hide how the other parts are
        _log.exception("readiness.defect")
        return GatewayError.code
