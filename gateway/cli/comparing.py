"""What an import has to send: the files that the gateway doesn't have just so."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.cli.folder import Found, FoundFile, LeftOut
from gateway.cli.metadata import Metadata

READY = "READY"
_BLOCK_BYTES = 1024 * 1024


@dataclass(slots=True)
class ImportPlan:
    """``unchanged`` and ``gone`` are documents as the gateway lists them."""

    new: list[FoundFile] = field(default_factory=list)
    changed: list[FoundFile] = field(default_factory=list)
    unchanged: list[Mapping[str, Any]] = field(default_factory=list)
    failed: list[LeftOut] = field(default_factory=list)
    gone: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def to_send(self) -> list[FoundFile]:
        return sorted((*self.new, *self.changed), key=lambda file: file.source)


def compared(
    found: Found,
    documents: Iterable[Mapping[str, Any]],
    metadata: Metadata,
    largest_bytes: int | None = None,
) -> ImportPlan:
    """``documents`` are the knowledge base's. A file is unchanged when the version that stands is READY, came
    from the same bytes and metadata, and is seen by the same people now. What is under way or has failed is
    sent again, for the gateway to say what becomes of it.
    """
    known = {document["source"]: document for document in documents}
    plan = ImportPlan(failed=list(found.failed))
    for file in found.files:
        document = known.get(file.source)
        if largest_bytes is not None and file.size_bytes > largest_bytes:
            plan.failed.append(LeftOut(file.source, "too_large", f"it has {file.size_bytes:,} bytes"))
        elif document is None:
            plan.new.append(file)
        else:
            _compare(plan, file, document, metadata)
    there = found.names()
    plan.gone = [document for source, document in sorted(known.items()) if source not in there]
    return plan


def _compare(plan: ImportPlan, file: FoundFile, document: Mapping[str, Any], metadata: Metadata) -> None:
    try:
        same = _stands(document, metadata) and _same_content(file, document, metadata)
    except OSError as error:
        plan.failed.append(LeftOut(file.source, "unreadable", error.strerror or ""))
        return
    if same:
        plan.unchanged.append(document)
    else:
        plan.changed.append(file)


def _stands(document: Mapping[str, Any], metadata: Metadata) -> bool:
    """Whether there is a version that can be used, by those whom this import means."""
    standing = document.get("standing") or {}
    seen_by = (frozenset(document["allow"]), frozenset(document["deny"]))
    return standing.get("state") == READY and seen_by == (metadata.acl.allow, metadata.acl.deny)


def _same_content(file: FoundFile, document: Mapping[str, Any], metadata: Metadata) -> bool:
    standing = document["standing"]
    if standing["size_bytes"] != file.size_bytes:
        return False
    digest = _sha256(file.path)
    return bool(standing["fingerprint"] == metadata.fingerprint(file.source, digest, file.size_bytes))


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as content:
        while block := content.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()
