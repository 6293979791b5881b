"""Traces: what was searched for whom; their passages stand apart, so that a clean-up finds them."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import Connection, Row, Select, and_, delete, select, tuple_

from gateway.access.authorizer import DocumentRef
from gateway.adapters.sql.rows import batches, insert_missing, to_json
from gateway.adapters.sql.tables import document_versions
from gateway.adapters.sql.trace_tables import trace_passages, traces
from gateway.observe.tracelog import Findings, TracedCheck, TracedPassage, TraceRecord

#: columns of their own, and what stands in rows of its own
_COLUMNS = ("trace_id", "request_id", "at", "tenant", "subject", "question")
_FACTS = tuple(field.name for field in fields(TraceRecord) if field.name not in {*_COLUMNS, "findings"})
_FOUND = tuple(
    field.name for field in fields(Findings) if field.name not in {"documents", "passages", "checks"}
)
_MOST_PURGED = 500


def append(connection: Connection, records: Sequence[TraceRecord]) -> None:
    gone = deleted(connection, {passage.ref for record in records for passage in record.findings.passages})
    insert_missing(connection, traces, [_row(record) for record in records])
    insert_missing(
        connection,
        trace_passages,
        [
            _passage_row(record.trace_id, passage)
            for record in records
            for passage in record.findings.passages
            if passage.ref not in gone
        ],
    )


def deleted(connection: Connection, refs: Collection[DocumentRef]) -> frozenset[DocumentRef]:
    """Those of the versions that were deleted before this transaction; a clean-up finds the others."""
    if not refs:
        return frozenset()
    version = document_versions.c
    rows = connection.execute(
        select(version.document_id, version.version).where(
            tuple_(version.document_id, version.version).in_(
                sorted((ref.document_id, ref.document_version) for ref in refs)
            ),
            version.deleted_at.is_not(None),
        )
    )
    return frozenset(DocumentRef(row.document_id, row.version) for row in rows)


def _row(record: TraceRecord) -> Mapping[str, Any]:
    facts = {name: getattr(record, name) for name in _FACTS}
    facts["findings"] = _plain(record.findings)
    return {**{name: getattr(record, name) for name in _COLUMNS}, "facts": to_json(facts)}


def _plain(findings: Findings) -> Mapping[str, Any]:
    """Without its passages."""
    return {
        **{name: getattr(findings, name) for name in _FOUND},
        "documents": [[ref.document_id, ref.document_version] for ref in findings.documents],
        "checks": [[check.name, check.passed, check.value, check.threshold] for check in findings.checks],
    }


def _passage_row(trace_id: str, passage: TracedPassage) -> Mapping[str, Any]:
    named = {"n", "document_id", "document_version"}
    facts = {field.name: getattr(passage, field.name) for field in fields(passage)}
    return {
        "trace_id": trace_id,
        "n": passage.n,
        "document_id": passage.document_id,
        "version": passage.document_version,
        "facts": to_json({name: value for name, value in facts.items() if name not in named}),
    }


def found(
    connection: Connection, tenant: str, request_id: str | None, trace_id: str | None
) -> TraceRecord | None:
    wanted = traces.c.trace_id == trace_id if request_id is None else traces.c.request_id == request_id
    row = connection.execute(
        select(traces).where(traces.c.tenant == tenant, wanted).order_by(traces.c.seq).limit(1)
    ).one_or_none()
    if row is None:
        return None
    passages = connection.execute(
        select(trace_passages).where(trace_passages.c.trace_id == row.trace_id).order_by(trace_passages.c.n)
    )
    return _record(row, tuple(map(_passage, passages)))


def _record(row: Row[Any], passages: tuple[TracedPassage, ...]) -> TraceRecord:
    facts = json.loads(row.facts)
    facts["reasons"] = tuple(facts["reasons"])
    facts["findings"] = _findings(facts["findings"], passages)
    return TraceRecord(**{name: getattr(row, name) for name in _COLUMNS}, **facts)


def _findings(plain: dict[str, Any], passages: tuple[TracedPassage, ...]) -> Findings:
    return Findings(
        **{
            **plain,
            "hints": tuple(plain["hints"]),
            "missing": tuple(plain["missing"]),
            "documents": tuple(DocumentRef(*ref) for ref in plain["documents"]),
            "checks": tuple(TracedCheck(*check) for check in plain["checks"]),
        },
        passages=passages,
    )


def _passage(row: Row[Any]) -> TracedPassage:
    facts = json.loads(row.facts)
    return TracedPassage(n=row.n, document_id=row.document_id, document_version=row.version, **facts)


def erase(connection: Connection, tenant: str, subject: str) -> int:
    """Of a person, as many as one short transaction may hold."""
    mine = (traces.c.tenant == tenant, traces.c.subject == subject)
    return _delete(connection, select(traces.c.trace_id).where(*mine))


def purge(connection: Connection, before: float) -> int:
    """As ``erase``, of everybody."""
    old = select(traces.c.trace_id).where(traces.c.at < before).order_by(traces.c.at)
    return _delete(connection, old)


def _delete(connection: Connection, chosen: Select[tuple[str]]) -> int:
    gone = connection.execute(chosen.limit(_MOST_PURGED)).scalars().all()
    for batch in batches(gone):
        for table in (trace_passages, traces):
            connection.execute(delete(table).where(table.c.trace_id.in_(batch)))
    return len(gone)


def forget(connection: Connection, document_id: str, versions: Sequence[int]) -> int:
    """What traces quote of these versions, as much as one short transaction may hold; how many passages that
    were.
    """
    quoting = and_(trace_passages.c.document_id == document_id, trace_passages.c.version.in_(versions))
    passage = (trace_passages.c.trace_id, trace_passages.c.n)
    some = connection.execute(select(*passage).where(quoting).limit(_MOST_PURGED)).all()
    if some:
        named = [(row.trace_id, row.n) for row in some]
        connection.execute(delete(trace_passages).where(tuple_(*passage).in_(named)))
    return len(some)
