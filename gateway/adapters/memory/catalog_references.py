"""What the in-memory catalog's objects are needed for: nobody refers to one that is being taken away."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from gateway.access.authorizer import DocumentRef
from gateway.adapters.memory.catalog_governance import GovernanceRows
from gateway.adapters.memory.catalog_rows import ReleaseRow, VersionRow
from gateway.adapters.memory.catalog_versions import VersionRows
from gateway.errors import ObjectStoreUnavailable
from gateway.ingest.references import (
    CHUNKS,
    FILES_GONE,
    ORIGINALS,
    TAKEOVER_S,
    VECTORS,
    Sentence,
    owner_of,
)
from gateway.ingest.task import TaskClaim
from gateway.ingest.uploads import Accepted, ImportRequest
from gateway.ingest.version import BuiltVersion, VectorPlace
from gateway.release.model import ReleaseState, VersionState

OVER = frozenset({ReleaseState.FAILED, ReleaseState.RECLAIMED})
_ENDED = frozenset({VersionState.READY, VersionState.FAILED})


class ReferenceRows(GovernanceRows, VersionRows):
    """``ReferenceStore``, and the checks of whoever is about to refer to an object."""

    async def accept_import(self, request: ImportRequest) -> Accepted:
        originals = [document.original_key for document in request.documents]
        until = self._clock() - TAKEOVER_S
        left = {key for key in originals if self._condemned.get(key, self._clock()) <= until}
        self._expect_kept(set(originals) - left)
        accepted = await super().accept_import(request)
        for key in left:  # nobody came to bury it, and he looks again afterwards
            self._condemned.pop(key, None)
        return accepted

    async def complete_versions(self, claim: TaskClaim, built: Sequence[BuiltVersion]) -> None:
        known = set(self._vectors)
        for each in built:
            self._expect_kept([each.chunks_key, *(p.object_key for p in each.new_vectors.values())])
            known |= {(each.space_id, text) for text in each.new_vectors}
        if not known >= {(each.space_id, entry.text_hash) for each in built for entry in each.manifest}:
            raise ObjectStoreUnavailable("vectors of known texts were cleaned up meanwhile")
        await super().complete_versions(claim, built)

    async def add_vector_places(
        self, claim: TaskClaim, space_id: str, places: Mapping[str, VectorPlace]
    ) -> None:
        self._expect_kept(place.object_key for place in places.values())
        await super().add_vector_places(claim, space_id, places)

    def _expect_kept(self, keys: Iterable[str]) -> None:
        moments = [self._condemned[key] for key in keys if key in self._condemned]
        if moments:
            left_s = max(moments) + TAKEOVER_S - self._clock()
            raise ObjectStoreUnavailable(
                "what was stored is just being cleaned up", retry_after_ms=math.ceil(max(left_s, 1.0) * 1000)
            )

    async def condemn(self, keys: Sequence[str], window_s: float, takeover_s: float) -> Sentence:
        now = self._clock()
        wanted = sorted(set(keys))
        busy = [key for key in wanted if self._condemned.get(key, 0.0) > now - takeover_s]
        needed = [key for key in wanted if key not in busy and self._has_need(key, now - window_s)]
        doomed = [key for key in wanted if key not in busy and key not in needed]
        self._condemned.update(dict.fromkeys(doomed, now))
        self._vectors = {text: p for text, p in self._vectors.items() if p.object_key not in doomed}
        self._withdraw_versions_of(doomed)
        return Sentence(now, tuple(doomed), tuple(needed), tuple(busy))

    def _withdraw_versions_of(self, doomed: Sequence[str]) -> None:
        for version in (v for d in self._documents.values() for v in d.versions):
            files = {version.document.original_key, version.built.chunks_key if version.built else ""}
            if version.state is VersionState.READY and not version.withdrawn and not files.isdisjoint(doomed):
                version.withdrawn, version.withdrawn_at = True, FILES_GONE

    def _has_need(self, key: str, withdrawn_since: float) -> bool:
        kind, owner = key.partition("/")[0], owner_of(key)
        versions = [v for d in self._documents.values() for v in d.versions]
        needed = [version for version in versions if self._is_needed(version, withdrawn_since)]
        if kind == ORIGINALS:
            return any(version.document.original_key == key for version in needed)
        if kind == CHUNKS and owner is not None:
            mine = (version for version in needed if version.ref == owner)
            return any(v.state not in _ENDED or (v.built and v.built.chunks_key == key) for v in mine)
        if kind == VECTORS and owner is not None:
            texts = {text for (_, text), place in self._vectors.items() if place.object_key == key}
            return any(e.text_hash in texts for v in needed if v.built for e in v.built.manifest)
        return True

    def _is_needed(self, version: VersionRow, withdrawn_since: float) -> bool:
        if version.deleted_at is not None:
            return False
        if version.state not in _ENDED or self._is_in_a_release(version.ref):
            return True
        if version.state is not VersionState.READY:
            return False
        document = self._documents[version.ref.document_id]
        active = self._active(document.kb_id)
        shown = None if active is None else held_version(active, document.document_id)
        if not version.withdrawn:
            return shown is None or shown <= version.ref.document_version
        return (version.withdrawn_at or 0.0) > withdrawn_since

    def _is_in_a_release(self, ref: DocumentRef) -> bool:
        retained = (release for release in self._releases.values() if release.state not in OVER)
        return any(planned.ref == ref for release in retained for planned in release.documents)

    async def bury(self, sentence: Sentence) -> None:
        for key in sentence.condemned:
            if self._condemned.get(key) == sentence.at:
                del self._condemned[key]

    async def left_condemned(self, takeover_s: float) -> list[str]:
        until = self._clock() - takeover_s
        return sorted(key for key, at in self._condemned.items() if at <= until)


def held_version(release: ReleaseRow, document_id: str) -> int | None:
    refs: Collection[DocumentRef] = [planned.ref for planned in release.documents]
    return next((ref.document_version for ref in refs if ref.document_id == document_id), None)
