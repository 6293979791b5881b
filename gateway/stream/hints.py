"""Hints that rights may have changed: they make the feed look now, and are never believed."""

from collections.abc import Callable
from typing import Protocol


class ChangeHints(Protocol):
    """A way between processes. It may stay silent, cry wolf, or be down: then the feed only polls."""

    async def follow(self, hinted: Callable[[], None]) -> None:
        """Calls ``hinted`` for each hint, and after a gap in which some may have been lost; never ends by
        itself and raises nothing.
        """
        ...

    async def tell(self) -> None:
        """Hints to every process that follows, in bounded time; raises nothing."""
        ...
