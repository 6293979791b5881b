"""Rollbacks in the in-memory catalog: of the pointer, of the retrieval config, of the model adapter."""

from collections.abc import Collection
from dataclasses import replace

from gateway.adapters.memory.catalog_configs import config_before
from gateway.adapters.memory.catalog_models import model_before
from gateway.adapters.memory.catalog_releases import ReleaseRows, activation_of
from gateway.adapters.memory.catalog_rows import ActivationRow, KnowledgeBaseRow
from gateway.errors import KnowledgeBaseNotFound, ReleaseConflict
from gateway.ingest.plan import NO_EARLIER_MODEL, Activation, not_configured
from gateway.release.model import ReleaseState
from gateway.retrieval.risk import REJECTED


class RollbackRows(ReleaseRows):
    """The rollbacks of ``ReleaseStore``."""

    async def roll_back(
        self, tenant: str, knowledge_base: str, expected_sequence: int | None = None
    ) -> Activation:
        kb = self._expected_kb(tenant, knowledge_base, expected_sequence)
        retired = [r for r in self._releases_of(kb.kb_id) if r.state is ReleaseState.RETIRED and r.retired]
        if not retired:
            raise ReleaseConflict("there is no earlier release to go back to")
        target = max(retired, key=lambda release: release.retired)
        for document in self._documents_of(kb.kb_id):
            for version in document.versions:
                if version.ready_number > target.ready and not version.withdrawn:
                    version.withdrawn, version.withdrawn_at = True, self._clock()
        for planned in target.documents:
            held = self._version(planned.ref)
            if held.approval == REJECTED and not held.withdrawn:  # it isn't shown again
                held.withdrawn, held.withdrawn_at = True, self._clock()
        self._bump_epoch(tenant)
        left = self._active(kb.kb_id)
        activation = self._switch(kb, target)
        for release in self._releases_of(kb.kb_id):
            if release is left or release.ready > target.ready:
                release.retired = 0
        return activation

    async def roll_back_config(
        self, tenant: str, knowledge_base: str, expected_sequence: int | None = None
    ) -> Activation:
        kb = self._expected_kb(tenant, knowledge_base, expected_sequence)
        release = self._active(kb.kb_id)
        earlier = None if release is None else config_before(kb, release)
        if release is None or earlier is None:
            raise ReleaseConflict("there is no earlier retrieval config to go back to")
        kb.sequence += 1
        plan = release.plan
        kb.activations.append(ActivationRow(plan.space, earlier, plan.model, config_left=plan.config))
        release.plan = replace(release.plan, config=earlier)
        release.sequence = kb.sequence
        return activation_of(release)

    async def roll_back_model(
        self,
        tenant: str,
        knowledge_base: str,
        expected_sequence: int | None = None,
        *,
        configured: Collection[str],
    ) -> Activation:
        kb = self._expected_kb(tenant, knowledge_base, expected_sequence)
        release = self._active(kb.kb_id)
        earlier = None if release is None else model_before(kb, release)
        if release is None or earlier is None:
            raise ReleaseConflict(NO_EARLIER_MODEL)
        if earlier not in configured:
            raise ReleaseConflict(not_configured(earlier))
        kb.sequence += 1
        plan = release.plan
        kb.activations.append(ActivationRow(plan.space, plan.config, earlier, model_left=plan.model))
        release.plan = replace(plan, model=earlier)
        release.sequence = kb.sequence
        return activation_of(release)

    def _expected_kb(
        self, tenant: str, knowledge_base: str, expected_sequence: int | None
    ) -> KnowledgeBaseRow:
        kb = self._kb_named(tenant, knowledge_base)
        if kb is None:
            raise KnowledgeBaseNotFound()
        if expected_sequence not in {None, kb.sequence}:
            raise ReleaseConflict("another release was activated in the meantime")
        return kb
