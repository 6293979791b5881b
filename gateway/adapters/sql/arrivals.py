"""Arrivals: what becomes of uploaded documents, found out and written for many at once.

A statement costs about as much for two hundred documents as for one, and everybody else's writes wait.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, bindparam, func, insert, select, update

from gateway.access.authorizer import DocumentRef
from gateway.access.classes import Acl
from gateway.adapters.sql import classes, moves, rights
from gateway.adapters.sql.rows import acl_from, to_json
from gateway.adapters.sql.tables import acl_classes, document_versions, documents
from gateway.ingest.uploads import NewDocument
from gateway.release.model import VersionState
from gateway.retrieval.chunk import stable_hash
from gateway.retrieval.risk import APPROVED, needs_approval

_CURRENT = (
    update(documents)
    .where(documents.c.document_id == bindparam("of_document"))
    .values(acl_class=bindparam("of_class"), newest_version=bindparam("of_version"), deleted_at=None)
)


@dataclass(frozen=True, slots=True)
class Arrival:
    """An upload beside what is known of its document. ``standing``: its newest version that neither failed
    nor was withdrawn.
    """

    upload: NewDocument
    document_id: str
    acl_class: int
    known: Row[Any] | None
    standing: Any

    @property
    def is_live(self) -> bool:
        return self.known is not None and self.known.deleted_at is None

    @property
    def moves(self) -> bool:
        """Whether a known document is for others now."""
        return self.known is not None and (not self.is_live or self.known.acl_class != self.acl_class)

    @property
    def brings_nothing(self) -> bool:
        return (
            self.is_live
            and self.standing is not None
            and self.standing.fingerprint == self.upload.fingerprint
        )

    @property
    def newest_version(self) -> int:
        """Of the document, from now on."""
        before = 0 if self.known is None else int(self.known.newest_version)
        return before if self.brings_nothing else before + 1

    @property
    def ref(self) -> DocumentRef:
        """The version that stands for the upload."""
        if self.brings_nothing and self.standing is not None:
            return DocumentRef(self.document_id, self.standing.version)
        return DocumentRef(self.document_id, self.newest_version)


def arrive(
    connection: Connection,
    now: float,
    kb: Row[Any],
    task_id: str,
    uploads: Sequence[NewDocument],
    *,
    subject: str,
    deadline_s: float,
) -> tuple[list[DocumentRef], bool]:
    """Of uploads under different sources: the version that stands for each, and whether they changed who may
    see what. The caller holds ``kb`` locked.
    """
    arrivals = _arrivals(connection, kb, uploads)
    changed = _change_permissions(connection, kb, arrivals)
    _journal_narrowings(connection, now, kb, arrivals)
    _keep_documents(connection, now, kb, arrivals)
    _keep_versions(connection, now, task_id, arrivals, subject)
    for arrival in arrivals:
        if arrival.moves and arrival.brings_nothing:  # no new version brings new rows
            moves.queue(connection, now, kb, arrival.document_id, deadline_s)
    return [arrival.ref for arrival in arrivals], changed


def _arrivals(connection: Connection, kb: Row[Any], uploads: Sequence[NewDocument]) -> list[Arrival]:
    numbers = {upload.acl: 0 for upload in uploads}
    for acl in numbers:
        numbers[acl] = classes.number_of(connection, kb.kb_id, acl)
    ids = ["doc_" + stable_hash(kb.tenant, kb.kb_id, upload.source) for upload in uploads]
    rows = connection.execute(select(documents).where(documents.c.document_id.in_(ids)))
    known = {row.document_id: row for row in rows}
    standing = _standing(connection, list(known))
    return [
        Arrival(upload, document_id, numbers[upload.acl], known.get(document_id), standing.get(document_id))
        for upload, document_id in zip(uploads, ids, strict=True)
    ]


def _standing(connection: Connection, document_ids: Sequence[str]) -> Mapping[str, Any]:
    newest = (
        select(document_versions.c.document_id, func.max(document_versions.c.version).label("version"))
        .where(
            document_versions.c.document_id.in_(document_ids),
            document_versions.c.state != VersionState.FAILED.value,
            document_versions.c.withdrawn_at.is_(None),
        )
        .group_by(document_versions.c.document_id)
        .subquery()
    )
    version = document_versions.c
    rows = connection.execute(
        select(version.document_id, version.version, version.fingerprint).join(
            newest,
            (newest.c.document_id == version.document_id) & (newest.c.version == version.version),
        )
    )
    return {row.document_id: row for row in rows}


def _change_permissions(connection: Connection, kb: Row[Any], arrivals: Iterable[Arrival]) -> bool:
    new = {arrival.acl_class for arrival in arrivals if arrival.known is None}
    if any(arrival.moves for arrival in arrivals):
        return True
    return any(not classes.is_used(connection, kb.kb_id, number) for number in new)


def _journal_narrowings(
    connection: Connection, now: float, kb: Row[Any], arrivals: Iterable[Arrival]
) -> None:
    """A restored backup must not widen them again."""
    moving = [(each, each.known) for each in arrivals if each.is_live and each.moves and each.known]
    before = _acls(connection, kb, {known.acl_class for _, known in moving})
    for arrival, known in moving:
        if not arrival.upload.acl.covers(before[known.acl_class]):
            rights.journal(connection, now, kb.tenant, arrival.document_id, arrival.upload.acl)


def _acls(connection: Connection, kb: Row[Any], numbers: Iterable[int]) -> Mapping[int, Acl]:
    rows = connection.execute(
        select(acl_classes.c.number, acl_classes.c.allow, acl_classes.c.deny).where(
            acl_classes.c.kb_id == kb.kb_id, acl_classes.c.number.in_(sorted(numbers))
        )
    )
    return {row.number: acl_from(row.allow, row.deny) for row in rows}


def _keep_documents(connection: Connection, now: float, kb: Row[Any], arrivals: Iterable[Arrival]) -> None:
    new = [
        {
            "document_id": arrival.document_id,
            "tenant": kb.tenant,
            "kb_id": kb.kb_id,
            "source": arrival.upload.source,
            "acl_class": arrival.acl_class,
            "newest_version": 1,
            "deleted_at": None,
            "created_at": now,
        }
        for arrival in arrivals
        if arrival.known is None
    ]
    changed = [
        {
            "of_document": arrival.document_id,
            "of_class": arrival.acl_class,
            "of_version": arrival.newest_version,
        }
        for arrival in arrivals
        if arrival.known is not None and (arrival.moves or not arrival.brings_nothing)
    ]
    if new:
        connection.execute(insert(documents), new)
    if changed:
        connection.execute(_CURRENT, changed)


def _keep_versions(
    connection: Connection, now: float, task_id: str, arrivals: Iterable[Arrival], subject: str
) -> None:
    rows = [_version(now, task_id, arrival, subject) for arrival in arrivals if not arrival.brings_nothing]
    if rows:
        connection.execute(insert(document_versions), rows)


def _version(now: float, task_id: str, arrival: Arrival, subject: str) -> dict[str, Any]:
    """Whoever says at import that a version is approved has approved it."""
    upload = arrival.upload
    approved = upload.approval == APPROVED
    return {
        "document_id": arrival.document_id,
        "version": arrival.newest_version,
        "task_id": task_id,
        "fence": 0,
        "state": VersionState.PENDING.value,
        "acl_class": arrival.acl_class,
        "fingerprint": upload.fingerprint,
        "content_sha256": upload.content_sha256,
        "size_bytes": upload.size_bytes,
        "original_key": upload.original_key,
        "media_type": upload.media_type,
        "title": "",
        "uri": upload.uri,
        "category": upload.category,
        "valid_from": upload.valid_from,
        "valid_until": upload.valid_until,
        "sensitivity": upload.sensitivity,
        "author": upload.author,
        "approval": upload.approval,
        "approved_by": subject if approved else None,
        "approved_at": now if approved else None,
        "risk": to_json(list(upload.risk)),
        "high_risk": needs_approval(upload.risk),
        "parser_version": "",
        "splitter_version": "",
        "chunks_key": "",
        "created_at": now,
    }
