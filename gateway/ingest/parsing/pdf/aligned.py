"""PDF aligned: tables that are drawn without lines, found by words standing under each other."""

import re
from collections.abc import Iterator, Sequence

from gateway.ingest.parsing.pdf.line import MARKER, Line, PageTable, Segment, line_of, text_of
from gateway.ingest.parsing.pdf.words import Word
from gateway.ingest.parsing.table import looks_like_head
from gateway.ingest.parsing.wording import joined

_LEADERS = re.compile(r"(?:\.\s?|·|…){4,}")
_MIN_ROWS = 3
_FILLED = 0.7
_NEAR = 3.0
#: a row further away than this, in parts of its height, is no part of the table
_ROW_GAP = 2.2
_WRAP_GAP = 0.5

_Row = Sequence[Segment]


def aligned_tables(rows: Sequence[_Row], page: int) -> Iterator[Line | PageTable]:
    """Rows from the top: a table for those whose segments form columns, a line for each other."""
    at = 0
    while at < len(rows):
        end = _reach(rows, at) if _is_multiple(rows[at]) else at
        table = _table(rows[at:end], page) if end > at else None
        if table is not None:
            yield table
            at = end
        else:
            yield line_of(rows[at], page)
            at += 1


def _is_multiple(row: _Row) -> bool:
    """Two or more segments that aren't a list's marker and its text."""
    if len(row) < 2 or (len(row) == 2 and MARKER.fullmatch(_text(row[0]) + " ")):
        return False
    if all(word.style.mono for segment in row for word in segment.words):
        return False
    return not any(_LEADERS.search(_text(segment)) for segment in row)


def _reach(rows: Sequence[_Row], at: int) -> int:
    """Index behind the last row that may belong to a table which begins at ``at``."""
    end = at + 1
    while end < len(rows):
        height = rows[end][0].bottom - rows[end][0].top
        gap = rows[end][0].top - rows[end - 1][0].bottom
        if gap > _ROW_GAP * height or not (_is_multiple(rows[end]) or _wraps(rows, at, end, gap / height)):
            break
        end += 1
    while end > at + 1 and len(rows[end - 1]) < 2 and not _wraps(rows, at, end - 1, 0.0):
        end -= 1
    return end


def _wraps(rows: Sequence[_Row], first: int, at: int, gap: float) -> bool:
    """One segment under a later column of the row above: the rest of a cell."""
    row = rows[at]
    if len(row) != 1 or gap > _WRAP_GAP:
        return False
    return any(abs(row[0].x0 - segment.x0) < _NEAR for segment in rows[first][1:])


def _table(rows: Sequence[_Row], page: int) -> PageTable | None:
    rows = _recut(rows)
    multiple = [row for row in rows if _is_multiple(row)]
    spans = _spans(multiple)
    if len(multiple) < _MIN_ROWS or len(spans) < 2 or max(map(len, multiple)) > len(spans):
        return None
    if sum(map(len, multiple)) < _FILLED * len(multiple) * len(spans):
        return None
    body: list[list[list[str]]] = []
    last: _Row = ()
    for row in rows:
        if not _goes_on(last, row, spans):
            body.append([[] for _ in spans])
        last = row
        for segment in row:
            body[-1][_column(segment, spans)].append(_text(segment))
    cells = [tuple(joined(cell) for cell in row) for row in body]
    has_head = looks_like_head(cells[0], cells[1:])
    return PageTable(
        columns=cells[0] if has_head else (),
        rows=tuple(cells[1:] if has_head else cells),
        x0=spans[0][0],
        x1=spans[-1][1],
        top=min(segment.top for segment in rows[0]),
        bottom=max(segment.bottom for segment in rows[-1]),
        page=page,
    )


def _recut(rows: Sequence[_Row]) -> list[_Row]:
    """Where the widest rows begin a cell, others are cut too, though their gap there is narrow."""
    most = max(map(len, rows))
    widest = [row for row in rows if len(row) == most]
    starts = [min(column) for column in zip(*([part.x0 for part in row] for row in widest), strict=True)]
    recut: list[_Row] = []
    for row in rows:
        cells: list[list[Word]] = []
        for segment in row:
            for at, word in enumerate(segment.words):
                if not at or any(abs(word.x0 - start) < _NEAR for start in starts):
                    cells.append([])
                cells[-1].append(word)
        recut.append([Segment.of(cell) for cell in cells])
    return recut


def _goes_on(last: _Row, row: _Row, spans: Sequence[tuple[float, float]]) -> bool:
    """Close under the row above and without a first cell: more lines of its cells."""
    if not last or _column(row[0], spans) == 0:
        return False
    return row[0].top - max(part.bottom for part in last) < _WRAP_GAP * (row[0].bottom - row[0].top)


def _spans(rows: Sequence[_Row]) -> list[tuple[float, float]]:
    """The columns: widths that segments cover together, from the left."""
    spans: list[tuple[float, float]] = []
    for x0, x1 in sorted((segment.x0, segment.x1) for row in rows for segment in row):
        if spans and x0 <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], x1))
        else:
            spans.append((x0, x1))
    return spans


def _column(segment: Segment, spans: Sequence[tuple[float, float]]) -> int:
    return max(n for n, (x0, _) in enumerate(spans) if x0 <= segment.x0 + _NEAR or n == 0)


def _text(segment: Segment) -> str:
    return text_of(segment.words)
