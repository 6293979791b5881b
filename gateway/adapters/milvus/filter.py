"""The forced filter as a Milvus expression: one function builds all of it from typed parts.

Nobody can pass filter text: names become string literals, numbers are checked to be numbers.
Expression templates exist on neither Milvus Lite nor older servers, and ``json.dumps`` writes ``\\u``
escapes that Milvus doesn't know, hence the escaping here. The grammar knows exactly these escapes:
backslash, double quote, newline, carriage return, tab.
"""

import re
from collections.abc import Sequence

from gateway.errors import InvalidField, UnscopedAccess
from gateway.retrieval.chunk import Chunk, row_id
from gateway.retrieval.query import ScopedQuery

_UNMATCHABLE = re.compile("[\0\ud800-\udfff]")
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def checked_text(value: object, name: str) -> str:
    """Text that a filter can match literally; raises InvalidField for NUL, lone surrogates and others."""
    if not isinstance(value, str):
        raise InvalidField(f"{name} must be text")
    if _UNMATCHABLE.search(value):
        raise InvalidField(f"{name} holds a character that is not allowed")
    return value


def literal(value: object, name: str = "a value") -> str:
    """A string literal that matches ``value`` and nothing else; raises InvalidField as above."""
    return f'"{checked_text(value, name).translate(_ESCAPES)}"'


def number(value: object, name: str) -> str:
    """An integer literal; raises UnscopedAccess for anything else, bool included."""
    if type(value) is not int:
        raise UnscopedAccess(f"{name} must be a whole number")
    return str(value)


def revision_filter(kb_revision: str) -> str:
    """Everything of one revision."""
    return f"kb_revision == {literal(kb_revision, 'kb_revision')}"


def scope_filter(query: ScopedQuery) -> str:
    """Tenant, knowledge base, revision, space, permitted classes, validity and category, all at once.

    Raises UnscopedAccess when a part is missing (an empty class set matches nobody, so nobody may
    ask), InvalidField when a name can't be matched literally.
    """
    scope, release = query.scope, query.release
    classes = query.permitted_classes
    if not classes:
        raise UnscopedAccess("no permitted class: there is nothing this caller may search")
    names = {
        "tenant_id": scope.tenant,
        "kb_id": scope.kb_id,
        "kb_revision": release.kb_revision,
        "embedding_space_id": release.space.space_id,
    }
    if not all(names.values()):
        raise UnscopedAccess("a query lacks a part of its scope")
    clauses = [f"{field} == {literal(value, field)}" for field, value in names.items()]
    clauses.append(f"acl_class in [{', '.join(number(c, 'acl_class') for c in classes)}]")
    at = number(query.at, "at")
    clauses.append(f"valid_from <= {at}")
    clauses.append(f"valid_until > {at}")
    if query.category is not None:
        clauses.append(f"category == {literal(query.category, 'category')}")
    return " and ".join(clauses)


def chunk_filter(query: ScopedQuery, chunk_ids: Sequence[str]) -> str:
    """The forced filter, narrowed to some chunks. Their ids go in as row ids, which are hashes."""
    revision = query.release.kb_revision
    rows = (literal(row_id(revision, checked_text(c, "chunk_id"))) for c in chunk_ids)
    return f"{scope_filter(query)} and row_id in [{', '.join(rows)}]"


def checked_hit(query: ScopedQuery, chunk: Chunk) -> Chunk:
    """The chunk, when the query's own typed parts permit it; a second fence behind the store's.

    Raises UnscopedAccess otherwise: a store that returns a row outside its filter is a defect.
    """
    scope, release = query.scope, query.release
    inside = (
        (chunk.tenant_id, chunk.kb_id) == (scope.tenant, scope.kb_id)
        and (chunk.kb_revision, chunk.embedding_space_id) == (release.kb_revision, release.space.space_id)
        and chunk.acl_class in scope.permitted_classes
        and chunk.valid_from <= query.at < chunk.valid_until
        and query.category in (None, chunk.category)
    )
    if not inside:
        raise UnscopedAccess("the vector store returned a row outside the query's scope")
    return chunk
