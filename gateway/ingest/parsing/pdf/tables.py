"""PDF tables: a table that goes on over page breaks keeps its column names."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gateway.ingest.parsing.pdf.line import Line, PageTable
from gateway.ingest.parsing.table import Row
from gateway.ingest.parsing.wording import joined, reads_on

_NEAR = 6.0


@dataclass(frozen=True, slots=True)
class Continued:
    """What one page holds of a table, with the names of its columns."""

    columns: Row
    rows: tuple[Row, ...]
    page: int


def continued(items: Sequence[Line | PageTable]) -> Iterator[Line | Continued]:
    """The same items. A table that follows one on the page before, with columns in the same places, takes
    its names; a head that is repeated there goes, and a row that the page break cut becomes whole.
    """
    last: PageTable | None = None
    names: Row = ()
    held: list[Row] = []
    for item in items:
        follows = isinstance(item, PageTable) and last is not None and _follows(last, item)
        if last is not None and held and not follows:
            yield Continued(names, tuple(held), last.page)
        if isinstance(item, Line):
            yield item
            last, held = None, []
            continue
        rows = list(item.rows)
        if follows and last is not None:
            if item.columns and item.columns != names:
                rows.insert(0, item.columns)
            if held and rows and _is_cut(held[-1], rows[0]):
                held[-1] = tuple(joined([a, b]) for a, b in zip(held[-1], rows.pop(0), strict=True))
            if held:
                yield Continued(names, tuple(held), last.page)
        else:
            names = item.columns
        last, held = item, rows
    if last is not None and (held or names):
        yield Continued(names, tuple(held), last.page)


def _follows(last: PageTable, table: PageTable) -> bool:
    return (
        table.page == last.page + 1
        and table.width == last.width
        and abs(table.x0 - last.x0) < _NEAR
        and abs(table.x1 - last.x1) < _NEAR
    )


def _is_cut(above: Row, below: Row) -> bool:
    """Every text below goes on with one above: the page break went through the row."""
    if len(above) != len(below) or below[0]:
        return False
    return all(reads_on(one, other) for one, other in zip(above, below, strict=True) if other)
