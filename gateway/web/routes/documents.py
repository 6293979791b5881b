"""/v1/documents: upload, look, delete."""

import hashlib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import PurePosixPath

import orjson
from anyio import to_thread
from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import Response

from gateway.access.classes import Acl
from gateway.access.principal import Principal
from gateway.answer.fields import check_fields
from gateway.answer.question import checked_text
from gateway.errors import BodyTooLarge, InvalidField, NotFound, ObjectStoreUnavailable, StorageFull
from gateway.ingest.objects import NO_ROOM
from gateway.ingest.policy import ImportPolicy
from gateway.ingest.uploads import DocumentRecord, ImportRequest, NewDocument, StandingVersion
from gateway.retrieval.risk import APPROVED
from gateway.web.paging import Listing, limit_of
from gateway.web.receiving import FormEnd, bounded
from gateway.web.routes.acting import idempotency_key
from gateway.web.routes.common import JsonResponse, caller, query_fields
from gateway.web.routes.forms import DocumentFields, document_fields
from gateway.web.routes.releases import record
from gateway.web.services import Services

_FILE_FIELD = "file"
_MAX_FILES = 200
_BATCH_BYTES = 4 * 1024 * 1024
_MAX_FIELDS = 1000
_SOURCE_MAX_CHARS = 500


async def upload(request: Request) -> Response:
    """202 with the task; the originals are stored before the task exists, and after every check of the
    request itself. Activating needs the scope release: it publishes whatever else is ready too. So does
    saying that the documents are approved.
    """
    services, principal = await caller(request, "ingest")
    query_fields(request)
    key = idempotency_key(request)
    async with _whole_form(request, services.settings.upload_max_bytes) as form:
        fields = document_fields(form)
        if fields.activate or fields.approval == APPROVED:
            principal.require("release")
        acl = Acl.parse(fields.allow, fields.deny)
        files = _files(form, fields, services.settings.document_max_bytes)
        await _check_types(ImportPolicy(services.settings.import_types), files)
        documents = [
            document
            for batch in _batches(files)
            for document in await _stored(services, principal, batch, fields, acl)
        ]
        accepted = await services.catalog.accept_import(
            ImportRequest(
                tenant=principal.tenant,
                knowledge_base=fields.knowledge_base,
                subject=principal.subject,
                documents=tuple(documents),
                activate=fields.activate,
                allow_partial=fields.allow_partial,
                deadline_s=services.settings.task_deadline_s,
                idempotency_key=key,
                request_hash=_request_hash(documents, fields),
            )
        )
        await _put_lost(services, files, documents)
    services.wake_worker()
    services.feed.announce()  # a document's new version may have a narrower ACL
    return JsonResponse(
        {
            "task_id": accepted.task_id,
            "documents": [
                {
                    "document_id": d.document_id,
                    "document_version": d.document_version,
                    "source": d.source,
                }
                for d in accepted.documents
            ],
        },
        202,
    )


@asynccontextmanager
async def _whole_form(request: Request, max_bytes: int) -> AsyncIterator[FormData]:
    end = FormEnd(request.headers, bounded(request.receive, max_bytes))
    parsed = Request(request.scope, end.receive)
    try:
        await parsed.form(max_files=_MAX_FILES, max_fields=_MAX_FIELDS)
    except OSError as error:  # larger files pass through the temporary folder
        if error.errno in NO_ROOM:
            raise StorageFull("the temporary folder has no room for the upload") from error
        raise ObjectStoreUnavailable("the temporary folder takes no upload") from error
    async with parsed.form() as form:
        end.check()
        check_fields(list(form), (_FILE_FIELD, *DocumentFields.NAMES))
        yield form


def _files(form: FormData, fields: DocumentFields, max_bytes: int) -> list[tuple[str, UploadFile]]:
    """Each file with its source."""
    files = form.getlist(_FILE_FIELD)
    uploads = [file for file in files if isinstance(file, UploadFile)]
    if not uploads or len(uploads) != len(files):
        raise InvalidField("send at least one file as the field 'file', with a file name")
    if fields.source is not None and len(uploads) > 1:
        raise InvalidField("source names one document; send one file with it")
    named = [
        (checked_source(file.filename if fields.source is None else fields.source), file) for file in uploads
    ]
    for source, file in named:
        if (file.size or 0) > max_bytes:
            raise BodyTooLarge(f"{source}: a document has at most {max_bytes} bytes")
    return named


async def _check_types(policy: ImportPolicy, files: list[tuple[str, UploadFile]]) -> None:
    """Before anything is stored. Raises DocumentTypeRefused."""
    if policy.is_open:
        return
    for source, file in files:
        await to_thread.run_sync(policy.check, source, _media_type(file), await file.read())
        await file.seek(0)


def _media_type(file: UploadFile) -> str:
    return (file.content_type or "").partition(";")[0].strip().lower()


def _batches(files: list[tuple[str, UploadFile]]) -> Iterator[list[tuple[str, UploadFile]]]:
    """Files that memory holds at once."""
    batch: list[tuple[str, UploadFile]] = []
    size = 0
    for source, file in files:
        batch.append((source, file))
        size += file.size or 0
        if size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


async def _stored(
    services: Services,
    principal: Principal,
    files: list[tuple[str, UploadFile]],
    fields: DocumentFields,
    acl: Acl,
) -> list[NewDocument]:
    """Puts the originals into the object store, named by their content."""
    tenant = hashlib.sha256(principal.tenant.encode()).hexdigest()[:32]
    contents: dict[str, bytes] = {}
    documents = []
    for source, file in files:
        content = await file.read()
        sha256 = hashlib.sha256(content).hexdigest()
        key = f"originals/{tenant}/{sha256}"
        contents[key] = content
        documents.append(_document_of(source, file, key, sha256, len(content), fields, acl))
    # Also when they are there: a damaged one is healed by a new upload.
    await services.objects.put_all(contents)
    return documents


async def _put_lost(
    services: Services, files: list[tuple[str, UploadFile]], documents: list[NewDocument]
) -> None:
    """Once more what a clean-up of the same bytes took away before they were accepted; now nobody may."""
    for (_, file), document in zip(files, documents, strict=True):
        if not await services.objects.exists(document.original_key):
            await file.seek(0)
            await services.objects.put(document.original_key, await file.read())


def _document_of(
    source: str, file: UploadFile, key: str, sha256: str, size: int, fields: DocumentFields, acl: Acl
) -> NewDocument:
    return NewDocument(
        source=source,
        uri=source,
        media_type=_media_type(file),
        original_key=key,
        content_sha256=sha256,
        size_bytes=size,
        acl=acl,
        category=fields.category,
        valid_from=fields.valid_from,
        valid_until=fields.valid_until,
        sensitivity=fields.sensitivity,
        author=fields.author,
        approval=fields.approval,
        risk=fields.risk,
    )


def checked_source(name: str | None) -> str:
    """A relative path as the document's name. Raises InvalidField."""
    source = checked_text(name, "the file name", _SOURCE_MAX_CHARS).replace("\\", "/")
    path = PurePosixPath(source)
    if path.is_absolute() or ".." in path.parts or not source.isprintable() or not path.name:
        raise InvalidField("a file name is a relative path without '..'")
    return str(path)


def _request_hash(documents: list[NewDocument], fields: DocumentFields) -> str:
    names = [(d.source, d.content_sha256) for d in documents]
    return hashlib.sha256(orjson.dumps([names, fields])).hexdigest()


async def list_documents(request: Request) -> Response:
    """By source; ``next_cursor`` goes on as ``cursor`` and is null at the end. For importers, and for those
    who approve what is released.
    """
    services, principal = await caller(request, "ingest", "release")
    fields = query_fields(request, "knowledge_base", "limit", "cursor")
    name = checked_text(fields.get("knowledge_base"), "knowledge_base", _SOURCE_MAX_CHARS)
    listing, limit = Listing("documents", principal.tenant, name), limit_of(fields.get("limit"))
    found = await services.catalog.documents(
        principal.tenant, name, limit=limit + 1, after=listing.place(fields.get("cursor"))
    )
    page = found[:limit]
    return JsonResponse(
        {
            "documents": [_document(document) for document in page],
            "limits": {"document_bytes": services.settings.document_max_bytes},
            "next_cursor": listing.cursor(page[-1].source) if len(found) > limit else None,
        }
    )


async def get_document(request: Request) -> Response:
    services, principal = await caller(request, "ingest", "release")
    query_fields(request)
    document = await services.catalog.document(principal.tenant, request.path_params["document_id"])
    if document is None:
        raise NotFound("there is no such document")
    return JsonResponse(_document(document))


async def delete_document(request: Request) -> Response:
    """204: blocked for every reader at once; ``Location`` is the task that takes away what is left of it."""
    services, principal = await caller(request, "ingest")
    query_fields(request)
    document_id = request.path_params["document_id"]
    task_id = await services.catalog.delete_document(principal.tenant, document_id)
    if task_id is None:
        raise NotFound("there is no such document")
    services.feed.announce()
    services.wake_worker()
    await record(services, principal, "document.delete", document=document_id, task=task_id)
    return Response(status_code=204, headers={"Location": f"/v1/tasks/{task_id}"})


def _document(document: DocumentRecord) -> Mapping[str, object]:
    return {
        "document_id": document.document_id,
        "knowledge_base": document.knowledge_base,
        "source": document.source,
        "document_version": document.document_version,
        "state": document.state.value,
        "title": document.title,
        "category": document.category,
        "allow": document.allow,
        "deny": document.deny,
        "error": document.error,
        "created_at": document.created_at,
        "standing": _standing(document.standing),
        "withdrawn": document.withdrawn,
        "revoked_at": document.revoked_at,
        "approval": document.approval,
        "approved_by": document.approved_by,
        "approved_at": document.approved_at,
        "risk": document.risk,
        "awaiting_approval": document.awaiting_approval,
    }


def _standing(version: StandingVersion | None) -> Mapping[str, object] | None:
    if version is None:
        return None
    return {
        "document_version": version.document_version,
        "state": version.state.value,
        "content_sha256": version.content_sha256,
        "size_bytes": version.size_bytes,
        "fingerprint": version.fingerprint,
    }
