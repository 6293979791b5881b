"""Traces in the in-memory catalog, and which documents a release shows to whom."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from gateway.access.authorizer import DocumentRef
from gateway.adapters.memory.catalog_rows import CatalogRows
from gateway.ingest.task import TaskClaim
from gateway.observe.tracelog import TraceRecord

_MOST_PURGED = 500


class TraceRows(CatalogRows):
    """TraceStore, ReleaseContents, and what of traces a clean-up takes."""

    async def append_traces(self, records: Sequence[TraceRecord]) -> None:
        for record in records:
            gone = frozenset(ref for ref in record.findings.refs if self._is_deleted(ref))
            self._traces.setdefault(record.trace_id, _without(record, gone))

    def _is_deleted(self, ref: DocumentRef) -> bool:
        document = self._documents.get(ref.document_id)
        versions = [] if document is None else document.versions
        known = 0 < ref.document_version <= len(versions)
        return known and versions[ref.document_version - 1].deleted_at is not None

    async def trace(
        self, tenant: str, *, request_id: str | None = None, trace_id: str | None = None
    ) -> TraceRecord | None:
        for record in self._traces.values():
            wanted = record.trace_id == trace_id if request_id is None else record.request_id == request_id
            if record.tenant == tenant and wanted:
                return record
        return None

    async def erase_traces(self, tenant: str, subject: str) -> int:
        mine = [r.trace_id for r in self._traces.values() if (r.tenant, r.subject) == (tenant, subject)]
        for trace_id in mine:
            del self._traces[trace_id]
        return len(mine)

    async def purge_traces(self, older_s: float) -> int:
        before = self._clock() - older_s
        old = sorted((r.at, r.trace_id) for r in self._traces.values() if r.at < before)[:_MOST_PURGED]
        for _, trace_id in old:
            del self._traces[trace_id]
        return len(old)

    async def erase_quotes(self, claim: TaskClaim, versions: Sequence[int]) -> int:
        self._held(claim)
        gone = frozenset(DocumentRef(str(claim.target), version) for version in versions)
        erased = 0
        for trace_id, record in self._traces.items():
            erased += sum(passage.ref in gone for passage in record.findings.passages)
            self._traces[trace_id] = _without(record, gone)
        return erased

    async def documents_in(
        self, tenant: str, release_id: str, classes: Collection[int], limit: int
    ) -> list[DocumentRef]:
        release = self._release(tenant, release_id)
        planned = () if release is None else release.documents
        refs = [each.ref for each in planned if each.acl_class in classes]
        return sorted(refs, key=lambda ref: ref.document_id)[:limit]


def _without(record: TraceRecord, gone: Collection[DocumentRef]) -> TraceRecord:
    left = tuple(passage for passage in record.findings.passages if passage.ref not in gone)
    return replace(record, findings=replace(record.findings, passages=left))
