"""Term statistics of released passages: kept by ACL class and validity, summed over what may be seen now."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    Table,
    bindparam,
    delete,
    func,
    insert,
    literal,
    select,
    union_all,
    update,
)

from gateway.adapters.sql.lexicon_tables import release_classes, release_terms
from gateway.adapters.sql.rows import batches, insert_missing
from gateway.adapters.sql.tables import releases
from gateway.ingest.plan import ClassTerms
from gateway.release.model import ReleaseState
from gateway.retrieval.lexicon import TermStatistics, Validity
from gateway.retrieval.query import ScopedQuery

#: stands for "all passages" in the one statement that counts both; no term is empty
_PASSAGES = ""
#: a caller permitted more classes than this is counted here: so long a list costs more than the rows
_LISTED_CLASSES = 100

_classes: BindParameter[Any] = bindparam("classes", expanding=True)
_owned = (
    select(releases.c.kb_revision)
    .where(
        releases.c.kb_revision == bindparam("kb_revision"),
        releases.c.kb_id == bindparam("kb_id"),
        releases.c.tenant == bindparam("tenant"),
        releases.c.state != ReleaseState.RECLAIMED.value,  # being dropped, piece by piece
    )
    .scalar_subquery()
)
_passages_counted = (
    release_classes.c.kb_revision == _owned,
    release_classes.c.valid_from <= bindparam("at"),
    release_classes.c.valid_until > bindparam("at"),
    release_classes.c.passages > 0,
)
_terms_counted = (
    release_terms.c.kb_revision == _owned,
    release_terms.c.term.in_(bindparam("terms", expanding=True)),
    release_terms.c.valid_from <= bindparam("at"),
    release_terms.c.valid_until > bindparam("at"),
    release_terms.c.df > 0,
)
_SUMS = union_all(
    select(literal(_PASSAGES), func.sum(release_classes.c.passages)).where(
        *_passages_counted, release_classes.c.acl_class.in_(_classes)
    ),
    select(release_terms.c.term, func.sum(release_terms.c.df))
    .where(*_terms_counted, release_terms.c.acl_class.in_(_classes))
    .group_by(release_terms.c.term),
)
_COUNTS = union_all(
    select(literal(_PASSAGES), release_classes.c.acl_class, release_classes.c.passages).where(
        *_passages_counted
    ),
    select(release_terms.c.term, release_terms.c.acl_class, release_terms.c.df).where(*_terms_counted),
)

_GROUP: tuple[BindParameter[Any], ...] = tuple(
    bindparam(name) for name in ("of_revision", "of_class", "of_from", "of_until")
)


def _in_group(table: Table) -> tuple[ColumnElement[bool], ...]:
    columns = (table.c.kb_revision, table.c.acl_class, table.c.valid_from, table.c.valid_until)
    return tuple(column == wanted for column, wanted in zip(columns, _GROUP, strict=True))


_MORE = (
    update(release_terms)
    .where(*_in_group(release_terms), release_terms.c.term == bindparam("of_term"))
    .values(df=release_terms.c.df + bindparam("more"))
)
_MORE_PASSAGES = (
    update(release_classes)
    .where(*_in_group(release_classes))
    .values(passages=release_classes.c.passages + bindparam("more"))
)
_KNOWN = select(release_classes.c.passages).where(*_in_group(release_classes))
_EMPTY_TERM = delete(release_terms).where(
    *_in_group(release_terms), release_terms.c.term == bindparam("of_term"), release_terms.c.df <= 0
)


def statistics(connection: Connection, query: ScopedQuery, terms: Iterable[str]) -> TermStatistics:
    permitted = query.permitted_classes
    asked = {
        "tenant": query.scope.tenant,
        "kb_id": query.scope.kb_id,
        "kb_revision": query.release.kb_revision,
        "at": query.at,
        "terms": list(dict.fromkeys(terms)),
    }
    counted: Counter[str] = Counter()
    if len(permitted) <= _LISTED_CLASSES:
        for term, number in connection.execute(_SUMS, {**asked, "classes": permitted}):
            counted[term] += int(number or 0)
    else:
        for term, acl_class, number in connection.execute(_COUNTS, asked):
            if acl_class in query.scope.permitted_classes:
                counted[term] += number
    passages = counted.pop(_PASSAGES, 0)
    return TermStatistics(passages=passages, frequencies=dict(counted))


Piece = tuple[list[dict[str, Any]], list[dict[str, Any]]]


def pieces(kb_revision: str, classes: Iterable[ClassTerms], size: int) -> Iterator[Piece]:
    """The rows of these statistics, about ``size`` a piece: those of classes, and of terms whose classes came
    in this piece or before.
    """
    passages: list[dict[str, Any]] = []
    terms: list[dict[str, Any]] = []
    for counted in classes:
        mine = _row(kb_revision, counted)
        passages.append({**mine, "passages": counted.passages})
        for term, df in counted.frequencies.items():
            terms.append({**mine, "term": term, "df": df})
            if len(passages) + len(terms) >= size:
                yield passages, terms
                passages, terms = [], []
    if passages or terms:
        yield passages, terms


def insert_piece(connection: Connection, piece: Piece) -> None:
    for table, rows in zip((release_classes, release_terms), piece, strict=True):
        for batch in batches(rows):
            connection.execute(insert(table), list(batch))


def move(connection: Connection, kb_revision: str, acl_class: int, terms: ClassTerms) -> None:
    """Counts a document's passages in the class of ``terms``, and no longer in this one."""
    add(connection, kb_revision, replace(terms, validity=subtract(connection, kb_revision, acl_class, terms)))


def add(connection: Connection, kb_revision: str, counted: ClassTerms) -> None:
    """Counts some passages more in their class."""
    mine = _row(kb_revision, counted)
    group = _group(kb_revision, counted.acl_class, counted.validity)
    insert_missing(connection, release_classes, [{**mine, "passages": 0}])
    connection.execute(_MORE_PASSAGES, {**group, "more": counted.passages})
    for batch in batches(sorted(counted.frequencies.items())):
        insert_missing(connection, release_terms, [{**mine, "term": term, "df": 0} for term, _ in batch])
        connection.execute(_MORE, [{**group, "of_term": term, "more": df} for term, df in batch])


def subtract(connection: Connection, kb_revision: str, acl_class: int, counted: ClassTerms) -> Validity:
    """Counts some passages no longer in this class, whichever they are counted in now. As of what validity
    they were counted. A class that counts none any more stays, at zero: to find out whether it has terms
    left would mean to read the whole revision's.
    """
    validity = _counted_as(connection, kb_revision, acl_class, counted.validity)
    group = _group(kb_revision, acl_class, validity)
    for batch in batches(sorted(counted.frequencies.items())):
        connection.execute(_MORE, [{**group, "of_term": term, "more": -df} for term, df in batch])
        connection.execute(_EMPTY_TERM, [{**group, "of_term": term} for term, _ in batch])
    connection.execute(_MORE_PASSAGES, {**group, "more": -counted.passages})
    return validity


def _counted_as(connection: Connection, kb_revision: str, acl_class: int, validity: Validity) -> Validity:
    for known in validity.counted_as():
        group = _group(kb_revision, acl_class, known)
        if connection.execute(_KNOWN, group).first() is not None:
            return known
    return validity


def _row(kb_revision: str, counted: ClassTerms) -> dict[str, Any]:
    return {
        "kb_revision": kb_revision,
        "acl_class": counted.acl_class,
        "valid_from": counted.validity.valid_from,
        "valid_until": counted.validity.valid_until,
    }


def _group(kb_revision: str, acl_class: int, validity: Validity) -> dict[str, Any]:
    return {
        "of_revision": kb_revision,
        "of_class": acl_class,
        "of_from": validity.valid_from,
        "of_until": validity.valid_until,
    }


def drop_piece(connection: Connection, kb_revision: str, size: int) -> bool:
    """Forgets about ``size`` rows of what is counted for a revision. False when there was nothing."""
    last = connection.execute(
        select(release_terms.c.term)
        .where(release_terms.c.kb_revision == kb_revision)
        .order_by(release_terms.c.term)
        .offset(size)
        .limit(1)
    ).scalar_one_or_none()
    gone = delete(release_terms).where(release_terms.c.kb_revision == kb_revision)
    if last is not None:
        return connection.execute(gone.where(release_terms.c.term <= last)).rowcount > 0
    terms = connection.execute(gone).rowcount
    groups = connection.execute(delete(release_classes).where(release_classes.c.kb_revision == kb_revision))
    return terms + groups.rowcount > 0
