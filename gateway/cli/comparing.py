"""What an import has to send: the files that the gateway doesn't have just so."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from gateway.cli.folder import Found, FoundFile, LeftOut
from gateway.cli.metadata import Metadata

READY = "READY"
_BLOCK_BYTES = 1024 * 1024


@dataclass(slots=True)
class ImportPlan:
    """``unchanged`` and ``gone`` are documents as the gateway lists them.

    Of ``failed_before`` and ``rolled_back`` no version stands; ``under_way`` is being imported just so.
    """

    new: list[FoundFile] = field(default_factory=list)
    changed: list[FoundFile] = field(default_factory=list)
    failed_before: list[FoundFile] = field(default_factory=list)
    rolled_back: list[FoundFile] = field(default_factory=list)
    under_way: list[FoundFile] = field(default_factory=list)
    unchanged: list[Mapping[str, Any]] = field(default_factory=list)
    failed: list[LeftOut] = field(default_factory=list)
    gone: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def why_sent(self) -> dict[str, list[FoundFile]]:
        return {
            "new": self.new,
            "changed": self.changed,
            "failed_before": self.failed_before,
            "rolled_back": self.rolled_back,
            "under_way": self.under_way,
        }

    @property
    def to_send(self) -> list[FoundFile]:
        return sorted(chain(*self.why_sent.values()), key=lambda file: file.source)


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
        same = _seen_by(document, metadata) and _same_content(file, document, metadata)
    except OSError as error:
        plan.failed.append(LeftOut(file.source, "unreadable", error.strerror or ""))
        return
    if same and document["standing"]["state"] == READY:
        plan.unchanged.append(document)
    elif same:
        plan.under_way.append(file)
    else:
        _why_different(plan, document).append(file)


def _why_different(plan: ImportPlan, document: Mapping[str, Any]) -> list[FoundFile]:
    """An older gateway doesn't say what stands."""
    if document.get("standing", document) is not None:
        return plan.changed
    return plan.rolled_back if document["withdrawn"] else plan.failed_before


def _seen_by(document: Mapping[str, Any], metadata: Metadata) -> bool:
    """Whether the very people see it whom this import means."""
    seen_by = (frozenset(document["allow"]), frozenset(document["deny"]))
    return seen_by == (metadata.acl.allow, metadata.acl.deny)


def _same_content(file: FoundFile, document: Mapping[str, Any], metadata: Metadata) -> bool:
    standing = document.get("standing")
    if standing is None or standing["size_bytes"] != file.size_bytes:
        return False
    digest = _sha256(file.path)
    return bool(standing["fingerprint"] == metadata.fingerprint(file.source, digest, file.size_bytes))


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as content:
        while block := content.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()
