"""Acts: a change, its audit entry and the answer kept under its key, in one transaction."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from sqlalchemy import Connection, select

from gateway.access.act import Act
from gateway.adapters.acts import outcome
from gateway.adapters.sql import audit
from gateway.adapters.sql.rows import add, to_json
from gateway.adapters.sql.tables import idempotency
from gateway.errors import IdempotencyMismatch
from gateway.ingest.plan import Activation
from gateway.ingest.uploads import Accepted, AcceptedDocument
from gateway.observe.audit import AuditRecord
from gateway.stream.revocation import RevocationKind, RevocationRecord

Answer = TypeVar("Answer", Accepted, Activation, RevocationRecord)


def once(
    connection: Connection,
    now: float,
    act: Act | None,
    kept: Callable[[Mapping[str, Any]], Answer],
    change: Callable[[], Answer],
) -> Answer:
    """The change's answer, or the one ``kept`` under the act's key. Raises IdempotencyMismatch."""
    if act is None:
        return change()
    known = _known(connection, act)
    if known is not None:
        return kept(known)
    answer = change()
    if act.key is not None:
        _keep(connection, now, act, answer)
    details = {**act.details, **outcome(answer)}
    audit.append(connection, AuditRecord(now, act.tenant, act.subject, act.action, "", details))
    return answer


def _known(connection: Connection, act: Act) -> Mapping[str, Any] | None:
    if act.key is None:
        return None
    row = connection.execute(
        select(idempotency.c.request_hash, idempotency.c.answer).where(
            idempotency.c.tenant == act.tenant,
            idempotency.c.subject == act.subject,
            idempotency.c.key == act.key,
        )
    ).one_or_none()
    if row is None:
        return None
    if row.request_hash != act.request_hash:
        raise IdempotencyMismatch()
    known: Mapping[str, Any] = json.loads(row.answer)
    return known


def _keep(
    connection: Connection, now: float, act: Act, answer: Accepted | Activation | RevocationRecord
) -> None:
    add(
        connection,
        idempotency,
        tenant=act.tenant,
        subject=act.subject,
        key=act.key,
        request_hash=act.request_hash,
        answer=to_json(dataclasses.asdict(answer)),
        created_at=now,
    )


def kept_acceptance(known: Mapping[str, Any]) -> Accepted:
    documents = tuple(_kept_document(each) for each in known["documents"])
    return Accepted(known["task_id"], documents, known.get("release_id"))


def _kept_document(known: Any) -> AcceptedDocument:
    """Answers kept by earlier versions list a document's parts without their names."""
    return AcceptedDocument(*known) if isinstance(known, list) else AcceptedDocument(**known)


def kept_activation(known: Mapping[str, Any]) -> Activation:
    return Activation(**known)


def kept_revocation(known: Mapping[str, Any]) -> RevocationRecord:
    return RevocationRecord(**{**known, "kind": RevocationKind(known["kind"])})
