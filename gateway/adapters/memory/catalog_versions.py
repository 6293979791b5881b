"""Document versions of the in-memory catalog: building them, listing and deleting documents."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gateway.access.authorizer import DocumentRef
from gateway.adapters.memory.catalog_rows import CatalogRows, DocumentRow, VersionRow, newest_standing
from gateway.errors import IllegalTransition, NotFound
from gateway.ingest.task import TaskClaim
from gateway.ingest.uploads import DocumentRecord, StandingVersion
from gateway.ingest.version import BuiltVersion, VectorPlace, VersionJob
from gateway.release.model import VersionState, check_version_transition
from gateway.retrieval.risk import REJECTED, REJECTED_BEFORE
from gateway.stream.revocation import RevocationKind

_ENDED = frozenset({VersionState.READY, VersionState.FAILED})


class VersionRows(CatalogRows):
    """``VersionStore``. A version that isn't one of the claimed task's looks missing (NotFound)."""

    async def unfinished_versions(self, claim: TaskClaim) -> list[VersionJob]:
        versions = [self._version(ref) for ref in self._held(claim).refs]
        return [
            VersionJob(
                ref=version.ref,
                source=version.document.source,
                media_type=version.document.media_type,
                original_key=version.document.original_key,
                sensitivity=version.document.sensitivity,
                state=version.state,
            )
            for version in versions
            if version.state not in _ENDED
        ]

    def _claimed(self, claim: TaskClaim, ref: DocumentRef) -> VersionRow:
        if ref not in self._held(claim).refs:
            raise NotFound()
        return self._version(ref)

    async def advance_versions(
        self, claim: TaskClaim, refs: Sequence[DocumentRef], state: VersionState
    ) -> None:
        if state is VersionState.READY:
            raise IllegalTransition("a version becomes READY together with its manifest")
        for version in self._movable(claim, refs, state):
            version.state = state

    async def complete_versions(self, claim: TaskClaim, built: Sequence[BuiltVersion]) -> None:
        of = {each.ref: each for each in built}
        for version in self._movable(claim, list(of), VersionState.READY):
            version.state = VersionState.READY
            self._complete(claim, version, of[version.ref])

    def _movable(
        self, claim: TaskClaim, refs: Sequence[DocumentRef], state: VersionState
    ) -> list[VersionRow]:
        """Those that aren't there yet (else it is a replay). Raises IllegalTransition, NotFound."""
        self._held(claim)
        versions = [self._claimed(claim, ref) for ref in refs]
        moving = [version for version in versions if version.state is not state]
        for version in moving:
            check_version_transition(version.state, state)
        return moving

    def _complete(self, claim: TaskClaim, version: VersionRow, built: BuiltVersion) -> None:
        kb = self._knowledge_bases[self._documents[built.ref.document_id].kb_id]
        if self._is_rejected(kb.kb_id, version.document.content_sha256):
            built = replace(built, risk=(*built.risk, REJECTED_BEFORE))
        kb.ready += 1
        version.built, version.ready_number = built, kb.ready
        self._add_places(claim, built.space_id, built.new_vectors)

    def _is_rejected(self, kb_id: str, content_sha256: str) -> bool:
        """Whether a person has rejected a version with these bytes."""
        versions = (version for document in self._documents_of(kb_id) for version in document.versions)
        return any(v.approval == REJECTED and v.document.content_sha256 == content_sha256 for v in versions)

    async def fail_version(self, claim: TaskClaim, ref: DocumentRef, reason: str, detail: str) -> None:
        version = self._claimed(claim, ref)
        if _move(version, VersionState.FAILED):
            version.error = f"{reason}: {detail}"

    async def vector_places(self, space_id: str, text_hashes: Sequence[str]) -> Mapping[str, VectorPlace]:
        places = ((text_hash, self._vectors.get((space_id, text_hash))) for text_hash in text_hashes)
        return {text_hash: place for text_hash, place in places if place is not None}

    async def add_vector_places(
        self, claim: TaskClaim, space_id: str, places: Mapping[str, VectorPlace]
    ) -> None:
        self._held(claim)
        self._add_places(claim, space_id, places)

    def _add_places(self, claim: TaskClaim, space_id: str, places: Mapping[str, VectorPlace]) -> None:
        for text_hash, place in places.items():
            made = replace(place, made_by=claim.task_id)
            self._vectors.setdefault((space_id, text_hash), made)

    async def documents(
        self, tenant: str, knowledge_base: str, *, limit: int | None = None, after: str | None = None
    ) -> list[DocumentRecord]:
        kb = self._kb_named(tenant, knowledge_base)
        if kb is None:
            return []
        live = (document for document in self._documents_of(kb.kb_id) if not document.deleted)
        behind = [self._record(one) for one in live if after is None or one.source > after]
        return behind[:limit]

    async def document(self, tenant: str, document_id: str) -> DocumentRecord | None:
        document = self._document(tenant, document_id)
        return None if document is None or document.deleted else self._record(document)

    def _record(self, document: DocumentRow) -> DocumentRecord:
        newest = document.versions[-1]
        return DocumentRecord(
            document_id=document.document_id,
            knowledge_base=self._knowledge_bases[document.kb_id].name,
            source=document.source,
            document_version=newest.ref.document_version,
            state=newest.state,
            title=newest.built.title if newest.built else "",
            category=newest.document.category,
            allow=tuple(sorted(document.acl.allow)),
            deny=tuple(sorted(document.acl.deny)),
            error=newest.error,
            created_at=document.created_at,
            standing=_standing(document),
            withdrawn=newest.withdrawn,
            approval=newest.approval,
            approved_by=newest.approved_by,
            approved_at=newest.approved_at,
            risk=newest.risk,
            revoked_at=self._revoked_at(document),
        )

    def _revoked_at(self, document: DocumentRow) -> float | None:
        """Of the document or its knowledge base."""
        subjects = {
            (RevocationKind.DOCUMENT, document.document_id),
            (RevocationKind.KNOWLEDGE_BASE, self._knowledge_bases[document.kb_id].name),
        }
        in_force = (
            record
            for record in self._revocations.values()
            if record.tenant == document.tenant and record.lifted_at is None
        )
        return min((r.created_at for r in in_force if (r.kind, r.subject) in subjects), default=None)


def _standing(document: DocumentRow) -> StandingVersion | None:
    version = newest_standing(document)
    if version is None:
        return None
    return StandingVersion(
        document_version=version.ref.document_version,
        state=version.state,
        content_sha256=version.document.content_sha256,
        size_bytes=version.document.size_bytes,
        fingerprint=version.document.fingerprint,
    )


def _move(version: VersionRow, state: VersionState) -> bool:
    """False when it is there already (a replay); raises IllegalTransition."""
    if version.state is state:
        return False
    check_version_transition(version.state, state)
    version.state = state
    return True
