"""Term statistics of released passages, counted per ACL class and summed over the permitted ones only."""

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import BindParameter, Connection, bindparam, delete, func, insert, literal, select, union_all

from gateway.adapters.sql.rows import batches
from gateway.adapters.sql.tables import release_classes, release_terms, releases
from gateway.ingest.catalog import ClassTerms
from gateway.retrieval.lexicon import TermStatistics
from gateway.retrieval.query import ScopedQuery

#: stands for "all passages" in the one statement that counts both; no term is empty
_PASSAGES = ""

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
_STATISTICS = union_all(
    select(literal(_PASSAGES).label("term"), func.sum(release_classes.c.passages).label("counted")).where(
        release_classes.c.kb_revision == _owned, release_classes.c.acl_class.in_(_classes)
    ),
    select(release_terms.c.term, func.sum(release_terms.c.df))
    .where(
        release_terms.c.kb_revision == _owned,
        release_terms.c.term.in_(bindparam("terms", expanding=True)),
        release_terms.c.acl_class.in_(_classes),
    )
    .group_by(release_terms.c.term),
)


def statistics(connection: Connection, query: ScopedQuery, terms: Iterable[str]) -> TermStatistics:
    asked = {
        "tenant": query.scope.tenant,
        "kb_id": query.scope.kb_id,
        "kb_revision": query.release.kb_revision,
        "classes": query.permitted_classes,
        "terms": list(dict.fromkeys(terms)),
    }
    counted = {term: int(number or 0) for term, number in connection.execute(_STATISTICS, asked)}
    return TermStatistics(passages=counted.pop(_PASSAGES, 0), frequencies=counted)


def store(connection: Connection, kb_revision: str, classes: Sequence[ClassTerms]) -> None:
    """Replaces whatever was counted for the revision before."""
    drop(connection, kb_revision)
    for counted in classes:
        number = {"kb_revision": kb_revision, "acl_class": counted.acl_class}
        connection.execute(insert(release_classes).values(**number, passages=counted.passages))
        rows = [{**number, "term": term, "df": df} for term, df in counted.frequencies.items()]
        for batch in batches(rows):
            connection.execute(insert(release_terms), list(batch))


def drop(connection: Connection, kb_revision: str) -> None:
    for table in (release_terms, release_classes):
        connection.execute(delete(table).where(table.c.kb_revision == kb_revision))
