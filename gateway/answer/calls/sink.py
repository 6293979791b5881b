"""A sink: where the text of one answer goes while it is made, and what keeps its places."""

from typing import Protocol

from gateway.stream.session import CloseReason, Releasable


class Sink(Protocol):
    """A session, or a flight with several of them."""

    @property
    def close_reason(self) -> CloseReason | None:
        """None as long as somebody waits for the answer."""
        ...

    def hold(self, item: Releasable) -> None:
        """Kept until the making is over, however it ends."""
        ...

    def cancel(self, reason: CloseReason) -> bool:
        """Ends it early for everybody; idempotent, and True for who ended it."""
        ...

    async def write(self, text: str) -> None:
        """Waits while nobody reads fast enough."""
        ...
