"""The port through which a request finds its release."""

from typing import Protocol

from gateway.release.model import RetrievalRelease


class ReleaseCatalog(Protocol):
    """Reads the release pointer. Raises CatalogUnavailable when it can't answer."""

    async def active(self, tenant: str, kb_id: str) -> RetrievalRelease | None:
        """The active release, read fresh; None when there is none."""
        ...
