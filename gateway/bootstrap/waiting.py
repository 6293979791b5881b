"""Waiting for parts: at a start they may still be coming up, in any order."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from gateway.errors import DeadlineExceeded, Unavailable
from gateway.observe.logging import get_logger

T = TypeVar("T")

_FIRST_S, _LONGEST_S = 0.25, 3.0


async def patiently(part: str, wait_s: float, open_part: Callable[[], Awaitable[T]]) -> T:
    """What ``open_part`` gives, tried again with growing pauses for ``wait_s`` seconds.

    Raises Unavailable or DeadlineExceeded, whatever the last try raised.
    """
    give_up = anyio.current_time() + wait_s
    pause = _FIRST_S
    while True:
        try:
            return await open_part()
        except (Unavailable, DeadlineExceeded) as error:
            if anyio.current_time() + pause > give_up:
                raise
            get_logger("start").warning("part.waiting", part=part, code=error.code)
        await anyio.sleep(pause)
        pause = min(2 * pause, _LONGEST_S)
