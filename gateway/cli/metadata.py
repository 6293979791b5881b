"""What an import says of all its documents: who may see them, and what they are."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from gateway.access.classes import Acl
from gateway.ingest.uploads import NewDocument

_UNKNOWN = "application/octet-stream"
#: not the machine's or Python's own table: the same file is the same upload everywhere
_TYPES = {
    ".md": "text/markdown",
    ".markdown": "text/markdown",
    ".html": "text/html",
    ".htm": "text/html",
    ".xhtml": "application/xhtml+xml",
    ".txt": "text/plain",
    ".csv": "text/csv",
    ".pdf": "application/pdf",
}


@dataclass(frozen=True, slots=True)
class Metadata:
    knowledge_base: str
    acl: Acl
    category: str = ""
    sensitivity: int = 0
    author: str = ""
    risk: tuple[str, ...] = ()

    def fields(self) -> Mapping[str, str | list[str]]:
        """As form fields of an upload."""
        return {
            "knowledge_base": self.knowledge_base,
            "allow": sorted(self.acl.allow),
            "deny": sorted(self.acl.deny),
            "category": self.category,
            "sensitivity": str(self.sensitivity),
            "author": self.author,
            "risk": list(self.risk),
        }

    def fingerprint(self, source: str, content_sha256: str, size_bytes: int) -> str:
        """What the catalog would keep of an upload of such bytes under this name."""
        return NewDocument(
            source=source,
            uri=source,
            media_type=media_type_of(source),
            original_key="",
            content_sha256=content_sha256,
            size_bytes=size_bytes,
            acl=self.acl,
            category=self.category,
            sensitivity=self.sensitivity,
            author=self.author,
            risk=self.risk,
        ).fingerprint


def media_type_of(source: str) -> str:
    """By the name's ending."""
    return _TYPES.get(PurePosixPath(source).suffix.lower(), _UNKNOWN)
