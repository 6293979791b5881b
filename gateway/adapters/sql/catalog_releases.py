"""The catalog as releasers see it."""

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import Connection

from gateway.access.act import Act
from gateway.adapters.sql import (
    activation,
    acts,
    beginning,
    counting,
    diffs,
    releases,
)
from gateway.adapters.sql.catalog_part import SqlPart
from gateway.ingest.plan import Activation, ClassTerms, ReleasePlan
from gateway.ingest.task import TaskClaim
from gateway.release.diff import ReleaseDiff
from gateway.release.model import (
    EmbeddingSpace,
    KnowledgeBaseRecord,
    ReleaseRecord,
    ReleaseState,
    RetrievalConfig,
)


class SqlReleases(SqlPart):
    """Implements ReleaseStore."""

    # releases

    async def begin_release(
        self, claim: TaskClaim, space: EmbeddingSpace, config: RetrievalConfig, model: str = ""
    ) -> ReleasePlan:
        return await beginning.begin(self._database, claim, beginning.Wanted(space, config, model))

    async def advance_release(
        self,
        claim: TaskClaim,
        release_id: str,
        state: ReleaseState,
        *,
        barrier: Mapping[str, object] | None = None,
        error: str | None = None,
    ) -> None:
        await self._write(lambda c, now: releases.advance(c, claim, release_id, state, barrier, error))

    async def store_terms(self, claim: TaskClaim, kb_revision: str, classes: Sequence[ClassTerms]) -> None:
        await counting.store(self._database, claim, kb_revision, classes)

    async def activate(
        self,
        tenant: str,
        release_id: str,
        expected_sequence: int | None,
        claim: TaskClaim | None = None,
        *,
        act: Act | None = None,
    ) -> Activation:
        known = await self._browse(lambda c: activation.as_built(c, tenant, release_id))

        def change(c: Connection, now: float) -> Activation:
            return activation.activate(c, now, tenant, release_id, expected_sequence, claim, known)

        return await self._act(act, acts.kept_activation, change)

    async def roll_back(
        self,
        tenant: str,
        knowledge_base: str,
        expected_sequence: int | None = None,
        *,
        act: Act | None = None,
    ) -> Activation:
        def change(c: Connection, now: float) -> Activation:
            return activation.roll_back(c, now, tenant, knowledge_base, expected_sequence)

        return await self._act(act, acts.kept_activation, change)

    async def roll_back_config(
        self,
        tenant: str,
        knowledge_base: str,
        expected_sequence: int | None = None,
        *,
        act: Act | None = None,
    ) -> Activation:
        def change(c: Connection, now: float) -> Activation:
            return activation.roll_back_config(c, now, tenant, knowledge_base, expected_sequence)

        return await self._act(act, acts.kept_activation, change)

    async def roll_back_model(
        self,
        tenant: str,
        knowledge_base: str,
        expected_sequence: int | None = None,
        *,
        configured: Collection[str],
        act: Act | None = None,
    ) -> Activation:
        def change(c: Connection, now: float) -> Activation:
            return activation.roll_back_model(c, now, tenant, knowledge_base, expected_sequence, configured)

        return await self._act(act, acts.kept_activation, change)

    async def diff_releases(self, tenant: str, release_id: str, against: str | None = None) -> ReleaseDiff:
        return await self._browse(lambda c: diffs.diff(c, tenant, release_id, against))

    async def knowledge_bases(self, tenant: str) -> list[KnowledgeBaseRecord]:
        return await self._browse(lambda c: releases.knowledge_bases_of(c, tenant))

    async def releases(
        self, tenant: str, knowledge_base: str, *, limit: int | None = None, before: str | None = None
    ) -> list[ReleaseRecord]:
        return await self._browse(lambda c: releases.listed(c, tenant, knowledge_base, limit, before))

    async def release(self, tenant: str, release_id: str) -> ReleaseRecord | None:
        return await self._look(lambda c: releases.one(c, tenant, release_id))

    async def mark_reclaimed(self, tenant: str, release_id: str) -> None:
        revision = await self._write(lambda c, now: activation.mark_reclaimed(c, tenant, release_id))
        await counting.drop(self._database, revision)
