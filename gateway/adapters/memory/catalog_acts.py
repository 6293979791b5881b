"""Acts in the in-memory catalog: a change, its audit entry and the answer kept under its key."""

import json
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from typing import TypeVar, cast

from gateway.access.act import Act
from gateway.adapters.acts import Answer, outcome
from gateway.adapters.memory.catalog_access import AccessRows
from gateway.adapters.memory.catalog_imports import ImportRows
from gateway.adapters.memory.catalog_rollbacks import RollbackRows
from gateway.adapters.memory.catalog_rows import KeptAnswer
from gateway.errors import IdempotencyMismatch
from gateway.ingest.plan import Activation
from gateway.ingest.task import TaskClaim
from gateway.ingest.uploads import Accepted, ImportRequest
from gateway.observe.audit import AuditRecord
from gateway.stream.revocation import RevocationKind, RevocationRecord

A = TypeVar("A", Accepted, Activation, RevocationRecord)


class ActRows(ImportRows, RollbackRows, AccessRows):
    """The changes that people with a scope make, each once for a key."""

    async def accept_import(self, request: ImportRequest) -> Accepted:
        return await self._once(request.act, lambda: super(ActRows, self).accept_import(request))

    async def accept_release(
        self, tenant: str, knowledge_base: str, deadline_s: float, *, act: Act | None = None
    ) -> Accepted:
        return await self._once(
            act, lambda: super(ActRows, self).accept_release(tenant, knowledge_base, deadline_s, act=act)
        )

    async def activate(
        self,
        tenant: str,
        release_id: str,
        expected_sequence: int | None,
        claim: TaskClaim | None = None,
        *,
        act: Act | None = None,
    ) -> Activation:
        return await self._once(
            act, lambda: super(ActRows, self).activate(tenant, release_id, expected_sequence, claim)
        )

    async def roll_back(
        self,
        tenant: str,
        knowledge_base: str,
        expected_sequence: int | None = None,
        *,
        act: Act | None = None,
    ) -> Activation:
        return await self._once(
            act, lambda: super(ActRows, self).roll_back(tenant, knowledge_base, expected_sequence)
        )

    async def roll_back_config(
        self,
        tenant: str,
        knowledge_base: str,
        expected_sequence: int | None = None,
        *,
        act: Act | None = None,
    ) -> Activation:
        return await self._once(
            act, lambda: super(ActRows, self).roll_back_config(tenant, knowledge_base, expected_sequence)
        )

    async def roll_back_model(
        self,
        tenant: str,
        knowledge_base: str,
        expected_sequence: int | None = None,
        *,
        configured: Collection[str],
        act: Act | None = None,
    ) -> Activation:
        return await self._once(
            act,
            lambda: super(ActRows, self).roll_back_model(
                tenant, knowledge_base, expected_sequence, configured=configured
            ),
        )

    async def revoke(
        self,
        tenant: str,
        kind: RevocationKind,
        subject: str,
        reason: str,
        revoked_by: str,
        *,
        act: Act | None = None,
    ) -> RevocationRecord:
        return await self._once(
            act, lambda: super(ActRows, self).revoke(tenant, kind, subject, reason, revoked_by)
        )

    async def _once(self, act: Act | None, change: Callable[[], Awaitable[A]]) -> A:
        """No change awaits anything that isn't done at once, so this is a transaction too."""
        if act is None:
            return await change()
        known = self._known(act)
        if known is not None:
            return cast("A", known)
        answer = await change()
        now = self._clock()
        if act.key is not None:
            self._answers[act.tenant, act.subject, act.key] = KeptAnswer(act.request_hash, answer, now)
        record = AuditRecord(now, act.tenant, act.subject, act.action, "", {**act.details, **outcome(answer)})
        # What a database can't keep must not be kept here either.
        self._audit.append(replace(record, details=json.loads(json.dumps(dict(record.details)))))
        return answer

    def _known(self, act: Act) -> Answer | None:
        kept = None if act.key is None else self._answers.get((act.tenant, act.subject, act.key))
        if kept is None:
            return None
        if kept.request_hash != act.request_hash:
            raise IdempotencyMismatch()
        return kept.answer
