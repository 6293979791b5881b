"""Stage time: what one stage may take, cut to what is left of the whole."""

from collections.abc import Iterator
from contextlib import contextmanager

import anyio

from gateway.context import Deadline
from gateway.errors import DeadlineExceeded


@contextmanager
def stage_time(deadline: Deadline, stage: str, cap_ms: int) -> Iterator[Deadline]:
    """Cancels the block when its time is up and raises DeadlineExceeded(stage) then.

    Yields the stage's own deadline, for client libraries that take one.
    """
    seconds = deadline.budget(stage, cap_ms)
    with anyio.move_on_after(seconds) as scope:
        yield Deadline.after(seconds * 1000)
    if scope.cancelled_caught:
        raise DeadlineExceeded(stage)
