"""Accepting imports into the in-memory catalog: versions, classes, and the task that will build them."""

from gateway.access.authorizer import DocumentRef
from gateway.access.classes import MAX_PERMITTED_CLASSES, Acl, refuse_too_many
from gateway.adapters.memory.catalog_rows import (
    DocumentRow,
    KnowledgeBaseRow,
    VersionRow,
    newest_standing,
)
from gateway.adapters.memory.catalog_tasks import TaskRows
from gateway.errors import Conflict
from gateway.ingest.task import TaskKind
from gateway.ingest.uploads import Accepted, AcceptedDocument, ImportRequest, NewDocument
from gateway.retrieval.chunk import stable_hash
from gateway.retrieval.risk import APPROVED
from gateway.stream.revocation import RevocationKind


class ImportRows(TaskRows):
    """``TaskStore`` with its imports."""

    async def accept_import(self, request: ImportRequest) -> Accepted:
        if request.knowledge_base in self._revoked(request.tenant, RevocationKind.KNOWLEDGE_BASE):
            raise Conflict("this knowledge base is revoked")
        kb = self._kb_named(request.tenant, request.knowledge_base) or self._new_kb(request)
        versions = [self._accept_document(kb, document, request.subject) for document in request.documents]
        task = self._new_task(
            TaskKind.IMPORT,
            kb,
            request.deadline_s,
            subject=request.subject,
            refs=tuple(dict.fromkeys(version.ref for version in versions)),
            activate=request.activate,
            allow_partial=request.allow_partial,
        )
        return Accepted(
            task_id=task.task_id,
            documents=tuple(
                AcceptedDocument(v.ref.document_id, v.ref.document_version, v.document.source)
                for v in versions
            ),
        )

    def _new_kb(self, request: ImportRequest) -> KnowledgeBaseRow:
        kb = KnowledgeBaseRow(
            stable_hash("kb", request.tenant, request.knowledge_base), request.tenant, request.knowledge_base
        )
        self._knowledge_bases[kb.kb_id] = kb
        return kb

    def _class_of(self, kb: KnowledgeBaseRow, acl: Acl) -> int:
        number = kb.classes.get(acl)
        if len(kb.classes) >= MAX_PERMITTED_CLASSES and (number is None or not self._is_used(kb, number)):
            refuse_too_many([used for used in self._classes_in_use(kb) if used.number != number], acl)
        return kb.classes.setdefault(acl, len(kb.classes) + 1)

    def _accept_document(self, kb: KnowledgeBaseRow, new: NewDocument, subject: str) -> VersionRow:
        document_id = document_id_of(kb, new.source)
        acl_class = self._class_of(kb, new.acl)
        document = self._documents.get(document_id)
        if document is None:
            kb.acl_revision += not self._is_used(kb, acl_class)
            document = DocumentRow(
                document_id, kb.tenant, kb.kb_id, new.source, new.acl, acl_class, self._clock()
            )
            self._documents[document_id] = document
        standing = newest_standing(document)
        if document.deleted or document.acl_class != acl_class:
            kb.acl_revision += 1
        document.acl, document.acl_class = new.acl, acl_class
        if not document.deleted and standing is not None and standing.document.fingerprint == new.fingerprint:
            return standing
        document.deleted_at = None
        version = VersionRow(DocumentRef(document_id, len(document.versions) + 1), new, acl_class)
        if new.approval == APPROVED:  # whoever says so at import has approved it
            version.approval, version.approved_by, version.approved_at = APPROVED, subject, self._clock()
        document.versions.append(version)
        return version

    def _is_used(self, kb: KnowledgeBaseRow, acl_class: int) -> bool:
        """Whether a live document has this class now."""
        return any(
            (document.kb_id, document.acl_class, document.deleted) == (kb.kb_id, acl_class, False)
            for document in self._documents.values()
        )


def document_id_of(kb: KnowledgeBaseRow, source: str) -> str:
    return stable_hash("document", kb.tenant, kb.kb_id, source)
