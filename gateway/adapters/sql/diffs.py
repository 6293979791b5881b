"""What differs between two releases, read from their lists of documents."""

from collections import Counter
from collections.abc import Sequence

from sqlalchemy import Connection, select, tuple_

from gateway.adapters.sql import releases as release_rows
from gateway.adapters.sql.rows import batches
from gateway.adapters.sql.tables import (
    document_versions,
    documents,
    knowledge_bases,
    manifest,
    release_documents,
)
from gateway.errors import NotFound
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
from gateway.release.model import ReleaseRecord


def diff(connection: Connection, tenant: str, release_id: str, against: str | None) -> ReleaseDiff:
    release = _known(connection, tenant, release_id)
    base = _base(connection, release, against)
    kinds = sort_documents(
        [] if base is None else _held(connection, base.release_id), _held(connection, release_id)
    )
    return ReleaseDiff(
        release=release,
        against=base,
        added=_named(connection, kinds.added),
        changed=_named(connection, kinds.changed),
        removed=_named(connection, kinds.removed),
        moved=_named(connection, kinds.moved),
        chunks=count_chunks(
            0 if base is None else base.chunks,
            release.chunks,
            _texts(connection, kinds.only_before),
            _texts(connection, kinds.only_after),
        ),
        vectors=release.vectors,
    )


def _known(connection: Connection, tenant: str, release_id: str) -> ReleaseRecord:
    release = release_rows.one(connection, tenant, release_id)
    if release is None:
        raise NotFound()
    return release


def _base(connection: Connection, release: ReleaseRecord, against: str | None) -> ReleaseRecord | None:
    """The named one, of the same knowledge base, or the active one."""
    if against is None:
        against = connection.execute(
            select(knowledge_bases.c.active_release_id).where(knowledge_bases.c.kb_id == release.kb_id)
        ).scalar_one()
        if against is None:
            return None
    base = _known(connection, release.tenant, against)
    if base.kb_id != release.kb_id:
        raise NotFound()
    return base


def _held(connection: Connection, release_id: str) -> list[HeldDocument]:
    rows = connection.execute(
        select(
            release_documents.c.document_id, release_documents.c.version, release_documents.c.acl_class
        ).where(release_documents.c.release_id == release_id)
    )
    return [HeldDocument(*row) for row in rows]


def _named(connection: Connection, found: Sequence[HeldDocument]) -> DocumentList:
    wanted = [(document.document_id, document.version) for document in found[:NAMED_DOCUMENTS]]
    key = tuple_(document_versions.c.document_id, document_versions.c.version)
    rows = connection.execute(
        select(
            document_versions.c.document_id,
            document_versions.c.version,
            documents.c.source,
            document_versions.c.title,
        )
        .join(documents, documents.c.document_id == document_versions.c.document_id)
        .where(key.in_(wanted))
        .order_by(document_versions.c.document_id)
    )
    return DocumentList(len(found), tuple(NamedDocument(*row) for row in rows))


def _texts(connection: Connection, held: Sequence[HeldDocument]) -> Texts:
    key = tuple_(manifest.c.document_id, manifest.c.version)
    counted: Texts = Counter()
    for batch in batches([(document.document_id, document.version) for document in held]):
        found = select(manifest.c.document_id, manifest.c.text_hash).where(key.in_(list(batch)))
        counted.update((document_id, text_hash) for document_id, text_hash in connection.execute(found))
    return counted
