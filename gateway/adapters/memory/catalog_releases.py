"""Building and activating releases in the in-memory catalog."""

from collections.abc import Iterator, Mapping, Sequence

from gateway.access.authorizer import DocumentRef
from gateway.adapters.memory import lexicon
from gateway.adapters.memory.catalog_configs import standing_config
from gateway.adapters.memory.catalog_known_releases import KnownReleases
from gateway.adapters.memory.catalog_models import standing_model
from gateway.adapters.memory.catalog_rows import (
    ActivationRow,
    DocumentRow,
    KnowledgeBaseRow,
    ReleaseRow,
    TaskRow,
    VersionRow,
    fresh_id,
)
from gateway.errors import (
    Conflict,
    IllegalTransition,
    NotFound,
    PrincipalRevoked,
    ReleaseConflict,
)
from gateway.ingest.manifest import entries_of, manifest_hash
from gateway.ingest.plan import Activation, ClassTerms, PlannedDocument, ReleasePlan
from gateway.ingest.task import ASKER_REVOKED, TaskClaim
from gateway.ingest.version import BuiltVersion
from gateway.release.model import (
    EmbeddingSpace,
    ReleaseState,
    RetrievalConfig,
    check_release_transition,
)
from gateway.stream.revocation import RevocationKind

#: where a worker may take a release; ACTIVE, RETIRED and RECLAIMED have methods of their own
_BUILD_STATES = frozenset({ReleaseState.VALIDATING, ReleaseState.READY, ReleaseState.FAILED})


class ReleaseRows(KnownReleases):
    """``ReleaseStore`` but for its rollbacks."""

    async def begin_release(
        self, claim: TaskClaim, space: EmbeddingSpace, config: RetrievalConfig, model: str = ""
    ) -> ReleasePlan:
        task = self._held(claim)
        if self._spaces.setdefault(space.space_id, space) != space:
            raise Conflict("this embedding space id already names another space")
        self._abandon(task.task_id, "started again")
        kb = self._knowledge_bases[task.kb_id]
        plan = self._plan(self._release_id(task), kb, space, config, model)
        if plan.unchanged_release is None:
            self._releases[plan.release_id] = ReleaseRow(plan, task.task_id, kb.ready, self._clock())
        task.release_id = plan.unchanged_release or plan.release_id
        return plan

    def _release_id(self, task: TaskRow) -> str:
        """The promised one for the task's first release, then fresh ones."""
        promised = task.promised_release_id
        return fresh_id() if promised is None or promised in self._releases else promised

    def _plan(
        self,
        release_id: str,
        kb: KnowledgeBaseRow,
        space: EmbeddingSpace,
        config: RetrievalConfig,
        model: str,
    ) -> ReleasePlan:
        documents = tuple(self._snapshot(kb))
        active = self._active(kb.kb_id)
        config = standing_config(kb, active, space, config)
        model = standing_model(kb, active, model)
        hashed = manifest_hash(entries_of(documents))
        built = active and (active.plan.manifest_hash, active.plan.space, active.plan.config)
        same_model = active is not None and active.plan.model in {"", model}
        unchanged = built == (hashed, space, config) and same_model
        return ReleasePlan(
            release_id=release_id,
            tenant=kb.tenant,
            kb_id=kb.kb_id,
            knowledge_base=kb.name,
            kb_revision=fresh_id(),
            base_sequence=kb.sequence,
            revocation_epoch=self._epochs.get(kb.tenant, 0),
            space=space,
            config=config,
            manifest_hash=hashed,
            documents=() if unchanged else documents,
            unchanged_release=active.plan.release_id if active is not None and unchanged else None,
            model=model,
        )

    def _snapshot(self, kb: KnowledgeBaseRow) -> Iterator[PlannedDocument]:
        revoked = self._revoked(kb.tenant, RevocationKind.DOCUMENT)
        for document in self._documents_of(kb.kb_id):
            if document.deleted or document.document_id in revoked:
                continue
            for version in reversed(document.versions):
                if version.built is not None and not version.withdrawn and version.may_be_released:
                    yield planned(document, version, version.built)
                    break

    def _claimed_release(self, task: TaskRow, release_id: str) -> ReleaseRow:
        release = self._releases.get(release_id)
        if release is None or release.task_id != task.task_id:
            raise NotFound()
        return release

    async def advance_release(
        self,
        claim: TaskClaim,
        release_id: str,
        state: ReleaseState,
        *,
        barrier: Mapping[str, object] | None = None,
        error: str | None = None,
    ) -> None:
        release = self._claimed_release(self._held(claim), release_id)
        if release.state is state:
            return
        check_release_transition(release.state, state)
        if state not in _BUILD_STATES:
            raise IllegalTransition(f"building a release does not make it {state}")
        release.state = state
        release.barrier = barrier if barrier is not None else release.barrier
        release.error = error

    async def store_terms(self, claim: TaskClaim, kb_revision: str, classes: Sequence[ClassTerms]) -> None:
        task = self._held(claim)
        mine = {r.plan.kb_revision for r in self._releases_of(task.kb_id) if r.task_id == task.task_id}
        if kb_revision not in mine:
            raise NotFound()
        self._terms[task.tenant, task.kb_id, kb_revision] = lexicon.store(classes)

    async def activate(
        self, tenant: str, release_id: str, expected_sequence: int | None, claim: TaskClaim | None = None
    ) -> Activation:
        if claim is not None:
            task = self._held(claim)
            if self._is_gone(task.tenant, task.subject):
                raise PrincipalRevoked(ASKER_REVOKED.detail or "")
        release = self._release(tenant, release_id)
        if release is None:
            raise NotFound()
        kb = self._knowledge_bases[release.plan.kb_id]
        if release.state is ReleaseState.ACTIVE:
            return activation_of(release)
        check_release_transition(release.state, ReleaseState.ACTIVE)
        if release.state is ReleaseState.RETIRED:
            raise ReleaseConflict("a retired release comes back by a rollback")
        expected = release.plan.base_sequence if expected_sequence is None else expected_sequence
        if kb.sequence != expected:
            raise ReleaseConflict("another release was activated in the meantime")
        if not all(map(self._still_as_planned, release.documents)):
            raise ReleaseConflict("a document of this release was deleted, revoked or got another ACL")
        return self._switch(kb, release)

    def _still_as_planned(self, planned: PlannedDocument) -> bool:
        document = self._documents[planned.ref.document_id]
        revoked = self._revoked(document.tenant, RevocationKind.DOCUMENT)
        return (
            not document.deleted
            and document.document_id not in revoked
            and not self._version(planned.ref).withdrawn
            and self._version(planned.ref).may_be_released
            and document.acl_class == planned.acl_class
        )

    def _switch(self, kb: KnowledgeBaseRow, release: ReleaseRow) -> Activation:
        before = self._active(kb.kb_id)
        used = self._classes_in_use(kb)
        kb.sequence += 1
        if before is not None:
            check_release_transition(before.state, ReleaseState.RETIRED)
            before.state, before.retired = ReleaseState.RETIRED, kb.sequence
            before.retired_at = self._clock()
        check_release_transition(release.state, ReleaseState.ACTIVE)
        release.state, release.sequence = ReleaseState.ACTIVE, kb.sequence
        release.activated_at = self._clock()
        kb.activations.append(ActivationRow(release.plan.space, release.plan.config, release.plan.model))
        kb.acl_revision += self._classes_in_use(kb) != used
        return activation_of(release)

    async def mark_reclaimed(self, tenant: str, release_id: str) -> None:
        release = self._release(tenant, release_id)
        if release is None:
            raise NotFound()
        check_release_transition(release.state, ReleaseState.RECLAIMED)
        release.state = ReleaseState.RECLAIMED
        self._terms.pop((tenant, release.plan.kb_id, release.plan.kb_revision), None)


def planned(document: DocumentRow, version: VersionRow, built: BuiltVersion) -> PlannedDocument:
    new = version.document
    return PlannedDocument(
        ref=DocumentRef(document.document_id, version.ref.document_version),
        source=document.source,
        media_type=new.media_type,
        original_key=new.original_key,
        title=built.title,
        uri=new.uri,
        category=new.category,
        valid_from=version.validity[0],
        valid_until=version.validity[1],
        sensitivity=new.sensitivity,
        author=new.author,
        approval=version.approval,
        risk=version.risk,
        acl_class=document.acl_class,
        parser_version=built.parser_version,
        splitter_version=built.splitter_version,
        chunks_key=built.chunks_key,
        manifest=built.manifest,
    )


def activation_of(release: ReleaseRow) -> Activation:
    return Activation(release.plan.knowledge_base, release.plan.kb_revision, release.sequence or 0)
