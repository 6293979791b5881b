"""Term statistics of released passages, counted per ACL class and summed over the permitted ones only."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import (
    BindParameter,
    Connection,
    bindparam,
    delete,
    exists,
    func,
    insert,
    literal,
    select,
    union_all,
    update,
)

from gateway.adapters.sql.rows import batches, insert_missing
from gateway.adapters.sql.tables import release_classes, release_terms, releases
from gateway.ingest.plan import ClassTerms
from gateway.retrieval.lexicon import TermStatistics
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
    )
    .scalar_subquery()
)
_passages_counted = (
    release_classes.c.kb_revision == _owned,
    release_classes.c.passages > 0,
)
_terms_counted = (
    release_terms.c.kb_revision == _owned,
    release_terms.c.term.in_(bindparam("terms", expanding=True)),
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

_MORE = (
    update(release_terms)
    .where(
        release_terms.c.kb_revision == bindparam("of_revision"),
        release_terms.c.acl_class == bindparam("of_class"),
        release_terms.c.term == bindparam("of_term"),
    )
    .values(df=release_terms.c.df + bindparam("more"))
)
_EMPTY_TERMS = delete(release_terms).where(
    release_terms.c.kb_revision == bindparam("kb_revision"),
    release_terms.c.acl_class == bindparam("acl_class"),
    release_terms.c.df <= 0,
)
_EMPTY_CLASS = delete(release_classes).where(
    release_classes.c.kb_revision == bindparam("kb_revision"),
    release_classes.c.acl_class == bindparam("acl_class"),
    release_classes.c.passages <= 0,
    ~exists(
        select(release_terms.c.term).where(
            release_terms.c.kb_revision == release_classes.c.kb_revision,
            release_terms.c.acl_class == release_classes.c.acl_class,
        )
    ),
)


def statistics(connection: Connection, query: ScopedQuery, terms: Iterable[str]) -> TermStatistics:
    permitted = query.permitted_classes
    asked = {
        "tenant": query.scope.tenant,
        "kb_id": query.scope.kb_id,
        "kb_revision": query.release.kb_revision,
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


def store(connection: Connection, kb_revision: str, classes: Sequence[ClassTerms]) -> None:
    """Replaces whatever was counted for the revision before."""
    drop(connection, kb_revision)
    passages = [{**_of(kb_revision, counted), "passages": counted.passages} for counted in classes]
    terms = [
        {**_of(kb_revision, counted), "term": term, "df": df}
        for counted in classes
        for term, df in counted.frequencies.items()
    ]
    for table, rows in ((release_classes, passages), (release_terms, terms)):
        for batch in batches(rows):
            connection.execute(insert(table), list(batch))


def add(connection: Connection, kb_revision: str, counted: ClassTerms) -> None:
    """Counts some passages more in their class."""
    mine = _of(kb_revision, counted)
    insert_missing(connection, release_classes, [{**mine, "passages": 0}])
    _change(connection, kb_revision, counted.acl_class, counted.passages)
    for batch in batches(sorted(counted.frequencies.items())):
        insert_missing(connection, release_terms, [{**mine, "term": term, "df": 0} for term, _ in batch])
        connection.execute(_MORE, [_step(kb_revision, counted.acl_class, *one) for one in batch])


def subtract(connection: Connection, kb_revision: str, acl_class: int, counted: ClassTerms) -> None:
    """Counts some passages no longer in this class, whichever they are counted in now."""
    for batch in batches(sorted(counted.frequencies.items())):
        connection.execute(_MORE, [_step(kb_revision, acl_class, term, -df) for term, df in batch])
    _change(connection, kb_revision, acl_class, -counted.passages)
    gone = {"kb_revision": kb_revision, "acl_class": acl_class}
    connection.execute(_EMPTY_TERMS, gone)
    connection.execute(_EMPTY_CLASS, gone)


def _change(connection: Connection, kb_revision: str, acl_class: int, passages: int) -> None:
    connection.execute(
        update(release_classes)
        .where(release_classes.c.kb_revision == kb_revision, release_classes.c.acl_class == acl_class)
        .values(passages=release_classes.c.passages + passages)
    )


def _step(kb_revision: str, acl_class: int, term: str, df: int) -> dict[str, Any]:
    return {"of_revision": kb_revision, "of_class": acl_class, "of_term": term, "more": df}


def _of(kb_revision: str, counted: ClassTerms) -> dict[str, Any]:
    return {"kb_revision": kb_revision, "acl_class": counted.acl_class}


def drop(connection: Connection, kb_revision: str) -> None:
    for table in (release_terms, release_classes):
        connection.execute(delete(table).where(table.c.kb_revision == kb_revision))
