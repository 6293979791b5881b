"""Differences between two releases of the in-memory catalog."""

from collections import Counter
from collections.abc import Mapping, Sequence

from gateway.adapters.memory.catalog_known_releases import record_of
from gateway.adapters.memory.catalog_rows import CatalogRows, ReleaseRow
from gateway.errors import NotFound
from gateway.ingest.plan import PlannedDocument
from gateway.release.diff import (
    NAMED_DOCUMENTS,
    DocumentList,
    HeldDocument,
    NamedDocument,
    ReleaseDiff,
    Texts,
    count_chunks,
    sort_documents,
)


class DiffRows(CatalogRows):
    """``diff_releases`` of ``ReleaseStore``."""

    async def diff_releases(self, tenant: str, release_id: str, against: str | None = None) -> ReleaseDiff:
        release = self._release(tenant, release_id)
        if release is None:
            raise NotFound()
        if against is None:
            return _diff(release, self._active(release.plan.kb_id))
        base = self._release(tenant, against)
        if base is None or base.plan.kb_id != release.plan.kb_id:
            raise NotFound()
        return _diff(release, base)


def _diff(release: ReleaseRow, base: ReleaseRow | None) -> ReleaseDiff:
    before = {} if base is None else {planned.ref.document_id: planned for planned in base.documents}
    after = {planned.ref.document_id: planned for planned in release.documents}
    kinds = sort_documents([*map(_held, before.values())], [*map(_held, after.values())])
    record, against = record_of(release), None if base is None else record_of(base)
    return ReleaseDiff(
        release=record,
        against=against,
        added=_named(kinds.added, after),
        changed=_named(kinds.changed, after),
        removed=_named(kinds.removed, before),
        moved=_named(kinds.moved, after),
        chunks=count_chunks(
            0 if against is None else against.chunks,
            record.chunks,
            _texts(kinds.only_before, before),
            _texts(kinds.only_after, after),
        ),
        vectors=record.vectors,
    )


def _held(planned: PlannedDocument) -> HeldDocument:
    return HeldDocument(planned.ref.document_id, planned.ref.document_version, planned.acl_class)


def _named(found: Sequence[HeldDocument], planned: Mapping[str, PlannedDocument]) -> DocumentList:
    first = (planned[document.document_id] for document in found[:NAMED_DOCUMENTS])
    return DocumentList(
        len(found),
        tuple(NamedDocument(p.ref.document_id, p.ref.document_version, p.source, p.title) for p in first),
    )


def _texts(held: Sequence[HeldDocument], planned: Mapping[str, PlannedDocument]) -> Texts:
    return Counter(
        (document.document_id, entry.text_hash)
        for document in held
        for entry in planned[document.document_id].manifest
    )
