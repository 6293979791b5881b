"""Stored manifest hashes: they follow one document of a release."""

from collections.abc import Iterable

from sqlalchemy import Connection, and_, bindparam, select, update

from gateway.adapters.sql.tables import manifest, release_documents, releases
from gateway.ingest.manifest import Entry, changed_hash, manifest_hash

_ENTRIES = select(manifest.c.chunk_id, manifest.c.content_hash).where(
    manifest.c.document_id == bindparam("document_id"), manifest.c.version == bindparam("version")
)
_ENTRIES_OF_RELEASE = (
    select(
        manifest.c.chunk_id,
        manifest.c.content_hash,
        release_documents.c.acl_class,
        release_documents.c.approval,
    )
    .select_from(release_documents)
    .join(
        manifest,
        and_(
            manifest.c.document_id == release_documents.c.document_id,
            manifest.c.version == release_documents.c.version,
        ),
    )
    .where(release_documents.c.release_id == bindparam("release_id"))
)


def entries(
    connection: Connection, document_id: str, version: int, acl_class: int, approval: str
) -> list[Entry]:
    """Of a version as a release holds it."""
    named = {"document_id": document_id, "version": version}
    return [
        (chunk_id, content_hash, acl_class, approval)
        for chunk_id, content_hash in connection.execute(_ENTRIES, named)
    ]


def change(
    connection: Connection, release_id: str, gone: Iterable[Entry], come: Iterable[Entry] = ()
) -> None:
    """After the release's rows say so already: a hash in the old form is made anew from them."""
    stored = connection.execute(
        select(releases.c.manifest_hash).where(releases.c.release_id == release_id)
    ).scalar_one()
    hashed = changed_hash(stored, gone, come)
    if hashed is None:
        rows = connection.execute(_ENTRIES_OF_RELEASE, {"release_id": release_id})
        hashed = manifest_hash((row[0], row[1], row[2], row[3]) for row in rows)
    connection.execute(
        update(releases).where(releases.c.release_id == release_id).values(manifest_hash=hashed)
    )
