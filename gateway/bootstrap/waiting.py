"""Waiting for parts: at a start they may still be coming up, in any order."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from gateway.bootstrap.advice import advised, told
from gateway.errors import DeadlineExceeded, EmbeddingSpaceMismatch, Unavailable
from gateway.observe.logging import get_logger

T = TypeVar("T")

_FIRST_S, _LONGEST_S = 0.25, 3.0

_log = get_logger("start")


async def patiently(
    part: str, wait_s: float, open_part: Callable[[], Awaitable[T]], down: type[Unavailable]
) -> T:
    """What ``open_part`` gives, tried again with growing pauses for ``wait_s`` seconds.

    Says so once, and again when the reason is another one. Raises ``down`` with the last reason and what
    to do about it; EmbeddingSpaceMismatch at once, for no waiting mends that.
    """
    give_up = anyio.current_time() + wait_s
    pause, said = _FIRST_S, ""
    while True:
        try:
            opened = await open_part()
        except EmbeddingSpaceMismatch:
            raise
        except (Unavailable, DeadlineExceeded) as error:
            if anyio.current_time() + pause > give_up:
                raise down(advised(error, down.code)) from error
            if told(error) != said:
                said = told(error)
                _log.warning("part.waiting", part=part, code=down.code, reason=said)
        else:
            if said:
                _log.info("part.answering", part=part)
            return opened
        await anyio.sleep(pause)
        pause = min(2 * pause, _LONGEST_S)
