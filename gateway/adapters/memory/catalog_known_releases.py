"""Releases of the in-memory catalog as readers and operators see them, with their term statistics."""

from collections.abc import Sequence

from gateway.adapters.memory import lexicon
from gateway.adapters.memory.catalog_rows import CatalogRows, ReleaseRow
from gateway.context import Deadline
from gateway.errors import DeadlineExceeded, InvalidField
from gateway.release.model import KnowledgeBaseRecord, ReleaseRecord, ReleaseState, RetrievalRelease
from gateway.retrieval.lexicon import TermStatistics
from gateway.retrieval.query import ScopedQuery


class KnownReleases(CatalogRows):
    """``ReleaseCatalog``, ``Lexicon`` and the lists of ``ReleaseStore``."""

    async def active(self, tenant: str, kb_id: str) -> RetrievalRelease | None:
        release = self._active(kb_id)
        if release is None or release.plan.tenant != tenant:
            return None
        plan = release.plan
        return RetrievalRelease(
            release_id=plan.release_id,
            tenant=plan.tenant,
            kb_id=plan.kb_id,
            knowledge_base=plan.knowledge_base,
            kb_revision=plan.kb_revision,
            sequence=release.sequence or 0,
            space=plan.space,
            collection=plan.space.collection,
            config=plan.config,
            model=plan.model,
        )

    async def active_spaces(self) -> frozenset[str]:
        """The ids of the embedding spaces that any active release needs."""
        active = (release for release in self._releases.values() if release.state is ReleaseState.ACTIVE)
        return frozenset(release.plan.space.space_id for release in active)

    async def knowledge_bases(self, tenant: str) -> list[KnowledgeBaseRecord]:
        mine = [kb for kb in self._knowledge_bases.values() if kb.tenant == tenant]
        active = {kb.kb_id: self._active(kb.kb_id) for kb in mine}
        found = (
            KnowledgeBaseRecord(
                kb.kb_id,
                kb.name,
                kb.sequence,
                None if release is None else release.plan.release_id,
                None if release is None else release.plan.space.space_id,
            )
            for kb in mine
            for release in [active[kb.kb_id]]
        )
        return sorted(found, key=lambda record: record.name)

    async def releases(
        self, tenant: str, knowledge_base: str, *, limit: int | None = None, before: str | None = None
    ) -> list[ReleaseRecord]:
        kb = self._kb_named(tenant, knowledge_base)
        found = [] if kb is None else [record_of(r) for r in reversed(list(self._releases_of(kb.kb_id)))]
        if before is not None:
            places = [release.release_id for release in found]
            if before not in places:
                raise InvalidField("before is the id of a release of the knowledge base")
            found = found[places.index(before) + 1 :]
        return found[:limit]

    async def release(self, tenant: str, release_id: str) -> ReleaseRecord | None:
        release = self._release(tenant, release_id)
        return None if release is None else record_of(release)

    async def statistics(
        self, query: ScopedQuery, terms: Sequence[str], deadline: Deadline
    ) -> TermStatistics:
        if deadline.remaining() <= 0:
            raise DeadlineExceeded("term statistics")
        scope = query.scope
        counted = self._terms.get((scope.tenant, scope.kb_id, query.release.kb_revision), {})
        return lexicon.statistics(counted, query, terms)


def record_of(release: ReleaseRow) -> ReleaseRecord:
    """As operators see it."""
    plan = release.plan
    return ReleaseRecord(
        release_id=plan.release_id,
        tenant=plan.tenant,
        kb_id=plan.kb_id,
        knowledge_base=plan.knowledge_base,
        kb_revision=plan.kb_revision,
        state=release.state,
        sequence=release.sequence,
        base_sequence=plan.base_sequence,
        space_id=plan.space.space_id,
        config=plan.config,
        manifest_hash=plan.manifest_hash,
        documents=len(plan.documents),
        chunks=sum(len(document.manifest) for document in plan.documents),
        created_at=release.created_at,
        activated_at=release.activated_at,
        error=release.error,
        barrier=release.barrier,
        model=plan.model,
    )
