"""Parsed documents: what an import knows of a version before anything of it is stored."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from gateway.errors import DocumentRejected, GatewayError
from gateway.ingest import chunkfile
from gateway.ingest.document import BuiltDocument
from gateway.ingest.task import TaskClaim
from gateway.ingest.vectors import text_hash
from gateway.ingest.version import BuiltVersion, ManifestEntry, VectorPlace, VersionJob
from gateway.retrieval.chunk import chunk_id, embedded_text, stable_hash


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """``texts`` to embed stand under their hashes, ``chunks`` is the content of the file ``chunks_key``."""

    job: VersionJob
    built: BuiltDocument
    manifest: tuple[ManifestEntry, ...]
    texts: Mapping[str, str]
    chunks_key: str
    chunks: bytes

    def version(self, space_id: str, new_vectors: Mapping[str, VectorPlace]) -> BuiltVersion:
        return BuiltVersion(
            ref=self.job.ref,
            title=self.built.title,
            parser_version=self.built.parser_version,
            splitter_version=self.built.splitter_version,
            chunks_key=self.chunks_key,
            manifest=self.manifest,
            space_id=space_id,
            new_vectors=new_vectors,
            valid_from=self.built.valid_from,
            valid_until=self.built.valid_until,
            risk=self.built.risk,
        )


@dataclass(frozen=True, slots=True)
class ParsedGroup:
    """Documents that are stored together, those that can't be imported, and what ended the reading."""

    documents: tuple[ParsedDocument, ...]
    rejected: tuple[tuple[VersionJob, DocumentRejected], ...]
    trouble: GatewayError | None = None

    def __len__(self) -> int:
        return len(self.documents) + len(self.rejected)


def parsed(claim: TaskClaim, job: VersionJob, built: BuiltDocument) -> ParsedDocument:
    """Takes tens of milliseconds for thousands of passages."""
    embedded = [embedded_text(built.title, p.section, p.content) for p in built.passages]
    hashes = [text_hash(claim.tenant, text) for text in embedded]
    chunks = chunkfile.dump(built)
    # Named by its content: a worker that comes back late, of another version, overwrites nothing.
    digest = hashlib.sha256(chunks).hexdigest()[:32]
    return ParsedDocument(
        job,
        built,
        _manifest(claim, job, built, hashes),
        dict(zip(hashes, embedded, strict=True)),
        f"chunks/{job.ref.document_id}/{job.ref.document_version}-{digest}.json",
        chunks,
    )


def _manifest(
    claim: TaskClaim, job: VersionJob, built: BuiltDocument, hashes: list[str]
) -> tuple[ManifestEntry, ...]:
    return tuple(
        ManifestEntry(
            chunk_index=index,
            chunk_id=chunk_id(
                claim.tenant,
                claim.kb_id,
                job.ref.document_id,
                job.ref.document_version,
                built.parser_version,
                built.splitter_version,
                index,
            ),
            content_hash=stable_hash(passage.content),
            text_hash=text,
        )
        for index, (passage, text) in enumerate(zip(built.passages, hashes, strict=True))
    )
