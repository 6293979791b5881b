"""ACL classes: their numbers, and which of them a knowledge base's live documents use."""

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, and_, bindparam, exists, insert, null, select, union_all, update

from gateway.access.classes import MAX_PERMITTED_CLASSES, Acl, AclClass, refuse_too_many
from gateway.adapters.sql.notify import notify
from gateway.adapters.sql.rows import acl_from, acl_texts
from gateway.adapters.sql.tables import acl_classes, documents, knowledge_bases, release_documents
from gateway.retrieval.chunk import stable_hash

_EVERYBODY = "public"

_kb = (knowledge_bases.c.kb_id == bindparam("kb_id"), knowledge_bases.c.tenant == bindparam("tenant"))
_has_live_document = exists(
    select(documents.c.document_id).where(
        documents.c.kb_id == acl_classes.c.kb_id,
        documents.c.acl_class == acl_classes.c.number,
        documents.c.deleted_at.is_(None),
    )
)
_current = (
    select(acl_classes.c.number, acl_classes.c.allow, acl_classes.c.deny, null(), null())
    .join(knowledge_bases, knowledge_bases.c.kb_id == acl_classes.c.kb_id)
    .where(*_kb, _has_live_document)
)
_moved = (
    select(
        knowledge_bases.c.kb_id,
        release_documents.c.acl_class.label("stored"),
        documents.c.acl_class.label("current"),
    )
    .distinct()
    .select_from(
        knowledge_bases.join(
            release_documents, release_documents.c.release_id == knowledge_bases.c.active_release_id
        ).join(documents, documents.c.document_id == release_documents.c.document_id)
    )
    .where(
        *_kb,
        documents.c.deleted_at.is_(None),
        documents.c.acl_class != release_documents.c.acl_class,
    )
    .subquery("moved")
)
_stored_class = acl_classes.alias("stored_class")
_current_class = acl_classes.alias("current_class")
_stored = (
    select(
        _stored_class.c.number,
        _stored_class.c.allow,
        _stored_class.c.deny,
        _current_class.c.allow,
        _current_class.c.deny,
    )
    .select_from(_moved)
    .join(
        _stored_class,
        and_(_stored_class.c.kb_id == _moved.c.kb_id, _stored_class.c.number == _moved.c.stored),
    )
    .join(
        _current_class,
        and_(_current_class.c.kb_id == _moved.c.kb_id, _current_class.c.number == _moved.c.current),
    )
)
_ANY_MOVED = select(_moved.c.kb_id).limit(1)
_IN_USE = union_all(_current, _stored)
_KNOWN = (
    select(acl_classes.c.number, knowledge_bases.c.next_class)
    .join(knowledge_bases, knowledge_bases.c.kb_id == acl_classes.c.kb_id)
    .where(acl_classes.c.kb_id == bindparam("kb_id"), acl_classes.c.digest == bindparam("digest"))
)
_IS_USED = (
    select(documents.c.document_id)
    .where(
        documents.c.kb_id == bindparam("kb_id"),
        documents.c.acl_class == bindparam("number"),
        documents.c.deleted_at.is_(None),
    )
    .limit(1)
)


def in_use(connection: Connection, tenant: str, kb_id: str) -> tuple[AclClass, ...]:
    """By number: those that live documents have now, and those that the active release's chunks
    still carry for live documents, narrowed to whom the document's present ACL lets in as well.
    """
    current: list[AclClass] = []
    stored: list[AclClass] = []
    for number, allow, deny, now_allow, now_deny in connection.execute(
        _IN_USE, {"tenant": tenant, "kb_id": kb_id}
    ):
        acl = acl_from(allow, deny)
        if now_allow is None:
            current.append(AclClass(number, acl))
        else:
            stored.append(AclClass(number, _narrowed(acl, acl_from(now_allow, now_deny))))
    known = {known.number for known in current}
    current.extend(dict.fromkeys(left for left in stored if left.number not in known))
    return tuple(sorted(current, key=lambda used: used.number))


def _narrowed(stored: Acl, current: Acl) -> Acl:
    """Whom both let in. One ACL can't ask for two names at once, so whoever each lets in by another
    name is left out, until the next release stores the current class.
    """
    if _EVERYBODY in stored.allow:
        allow = current.allow
    elif _EVERYBODY in current.allow:
        allow = stored.allow
    else:
        allow = stored.allow & current.allow
    return Acl(allow, stored.deny | current.deny)


def all_in_use(
    connection: Connection, places: Sequence[tuple[str, str]]
) -> Mapping[tuple[str, str], tuple[AclClass, ...]]:
    """Of knowledge bases by tenant and id: after a change every running question asks at once."""
    return {place: in_use(connection, *place) for place in places}


def is_narrowed(connection: Connection, tenant: str, kb_id: str) -> bool:
    """Whether a live document's active chunks carry another class than it has now."""
    found = connection.execute(_ANY_MOVED, {"tenant": tenant, "kb_id": kb_id})
    return found.one_or_none() is not None


def is_used(connection: Connection, kb_id: str, number: int) -> bool:
    """Whether a live document has this class now."""
    found = connection.execute(_IS_USED, {"kb_id": kb_id, "number": number})
    return found.one_or_none() is not None


def number_of(connection: Connection, kb_id: str, acl: Acl) -> int:
    """The ACL's class number in a knowledge base that the caller holds locked; made when it is new.

    Raises TooManyAclClasses.
    """
    allow, deny = acl_texts(acl)
    digest = stable_hash(allow, deny)
    known = connection.execute(_KNOWN, {"kb_id": kb_id, "digest": digest}).one_or_none()
    if known is not None:
        _check_room(connection, kb_id, known.number, known.next_class - 1, acl)
        return int(known.number)
    number = _next_number(connection, kb_id)
    _check_room(connection, kb_id, number, number, acl)
    connection.execute(
        insert(acl_classes).values(kb_id=kb_id, number=number, digest=digest, allow=allow, deny=deny)
    )
    return number


def _check_room(connection: Connection, kb_id: str, number: int, made: int, acl: Acl) -> None:
    """Whenever a class comes into use: a new one, or a known one that no document has had for a while.

    ``made``: how many classes the knowledge base has ever had.
    """
    if made <= MAX_PERMITTED_CLASSES or is_used(connection, kb_id, number):
        return
    owner = select(knowledge_bases.c.tenant).where(knowledge_bases.c.kb_id == kb_id)
    used = in_use(connection, connection.execute(owner).scalar_one(), kb_id)
    refuse_too_many([other for other in used if other.number != number], acl)


def _next_number(connection: Connection, kb_id: str) -> int:
    taken = connection.execute(
        update(knowledge_bases)
        .where(knowledge_bases.c.kb_id == kb_id)
        .values(next_class=knowledge_bases.c.next_class + 1)
        .returning(knowledge_bases.c.next_class)
    )
    return int(taken.scalar_one()) - 1


def bump_revision(connection: Connection, kb_id: str) -> None:
    """Readers keep classes by this revision: it rises whenever ``in_use`` may answer differently.

    As with a tenant's epoch, processes hear of the commit.
    """
    notify(connection)
    connection.execute(
        update(knowledge_bases)
        .where(knowledge_bases.c.kb_id == kb_id)
        .values(acl_revision=knowledge_bases.c.acl_revision + 1)
    )
