"""The import policy: which types of documents an installation takes in at all."""

from collections.abc import Collection

from gateway.errors import DocumentRejected, DocumentTypeRefused
from gateway.ingest.parsing.formats import Format, choose


class ImportPolicy:
    """An allow list of formats, by content; None takes every format that can be read, and refuses nothing."""

    def __init__(self, types: Collection[str] | None) -> None:
        self._types = None if types is None else frozenset(map(Format, types))

    @property
    def is_open(self) -> bool:
        return self._types is None

    def check(self, source: str, media_type: str, content: bytes) -> None:
        """Raises DocumentTypeRefused, naming the document."""
        if self._types is None:
            return
        try:
            found = choose(source, media_type, content)
        except DocumentRejected as error:
            raise DocumentTypeRefused(f"{source}: {error.detail}") from error
        if found not in self._types:
            accepted = ", ".join(sorted(self._types))
            raise DocumentTypeRefused(f"{source} is of type {found}; imported here are: {accepted}")
