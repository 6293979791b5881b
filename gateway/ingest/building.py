"""Building: one file into its passages, and never into none."""

from typing import Protocol

from gateway.errors import DocumentRejected
from gateway.ingest.chunking import DEFAULT_LIMITS, SPLITTER_VERSION, ChunkLimits, chunk
from gateway.ingest.document import BuiltDocument
from gateway.ingest.parsing import parse
from gateway.ingest.risk import detected_risk


def build_document(
    source: str, media_type: str, content: bytes, limits: ChunkLimits = DEFAULT_LIMITS
) -> BuiltDocument:
    """Parses and chunks; pure computation without a time limit of its own.

    Raises DocumentRejected with any reason but too_large and corrupt.
    """
    document = parse(source, media_type, content)
    passages = chunk(document, limits)
    if not passages:
        raise DocumentRejected("blank", "No text was found in the file.")
    return BuiltDocument(
        document.title,
        document.parser_version,
        SPLITTER_VERSION,
        passages,
        document.valid_from,
        document.valid_until,
        detected_risk(source, document.title, passages),
    )


class DocumentParser(Protocol):
    """Turns a file into passages, away from the event loop and inside time and memory limits."""

    async def build(self, source: str, media_type: str, content: bytes) -> BuiltDocument:
        """Raises DocumentRejected with a reason a person understands."""
        ...
