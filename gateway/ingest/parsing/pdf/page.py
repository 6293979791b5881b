"""PDF page: one page's lines and tables in the order in which a person reads them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pypdfium2

from gateway.ingest.parsing.pdf.aligned import aligned_tables
from gateway.ingest.parsing.pdf.columns import in_columns
from gateway.ingest.parsing.pdf.grid import Cell, Grid, find_grids
from gateway.ingest.parsing.pdf.line import Line, PageTable, Segment, rows_of, segments_of, text_of
from gateway.ingest.parsing.pdf.rules import read_rules
from gateway.ingest.parsing.pdf.words import Word, read_words
from gateway.ingest.parsing.table import REPEATED_CHARS, Row, column_names, looks_like_head
from gateway.ingest.parsing.wording import joined

#: a grid with fewer of its cells filled is a form, a chart or a frame
_FILLED = 0.3
_PICTURED = 0.4


@dataclass(frozen=True, slots=True)
class PageContent:
    """``unreadable``: characters that the fonts give no meaning. ``pictured``: pictures cover the page."""

    items: tuple[Line | PageTable, ...]
    chars: int
    unreadable: int
    pictured: bool


def read_page(page: pypdfium2.PdfPage, number: int) -> PageContent:
    """Raises DocumentRejected too_complex for a page of more than 200,000 characters."""
    words, quarter, chars, unreadable = read_words(page)
    rules, dots, pictured = read_rules(page, quarter)
    words += _bullets(dots, words)
    tables, rest = _ruled_tables(find_grids(rules), words, number)
    parts: list[Segment | PageTable] = [*segments_of(rows_of(rest)), *tables]
    items: list[Line | PageTable] = []
    for column in in_columns(parts):
        items.extend(_column_items(column, number))
    width, height = page.get_size()
    return PageContent(tuple(items), chars, unreadable, pictured > _PICTURED * width * height)


def _bullets(dots: Sequence[tuple[float, float]], words: Sequence[Word]) -> list[Word]:
    """A word for each drawn dot that stands before a line's first word."""
    bullets: list[Word] = []
    for x, y in dots:
        row = [word for word in words if word.top < y < word.bottom and word.x1 > x - 2 * word.style.size]
        first = min(row, key=lambda word: word.x0, default=None)
        if first is not None and 0 < first.x0 - x < 2 * first.style.size:
            bullets.append(first._replace(text="•", x0=x - 1, x1=x + 1))
    return bullets


def _column_items(parts: Sequence[Segment | PageTable], number: int) -> Iterator[Line | PageTable]:
    """From the top; text beside each other on one level is one line, or a row of a table without lines."""
    tables = sorted((part for part in parts if isinstance(part, PageTable)), key=lambda table: table.top)
    segments = [part for part in parts if isinstance(part, Segment)]
    for table in [*tables, None]:
        above = [part for part in segments if table is None or part.top < table.top]
        segments = segments[len(above) :] if table is None else [p for p in segments if p.top >= table.top]
        yield from aligned_tables(rows_of(above), number)
        if table is not None:
            yield table


def _ruled_tables(
    grids: Sequence[Grid], words: Sequence[Word], number: int
) -> tuple[list[PageTable], list[Word]]:
    """The tables, and the characters outside of them."""
    tables: list[PageTable] = []
    rest = list(words)
    for grid in grids:
        cells: dict[Cell, list[Word]] = {}
        outside: list[Word] = []
        for word in rest:
            cell = grid.cell_at((word.x0 + word.x1) / 2, (word.top + word.bottom) / 2)
            (outside if cell is None else cells.setdefault(cell, [])).append(word)
        table = _ruled_table(grid, cells, number)
        if table is not None:
            tables.append(table)
            rest = outside
    return tables, rest


def _ruled_table(grid: Grid, cells: dict[Cell, list[Word]], number: int) -> PageTable | None:
    places = {cell for line in grid.owner for cell in line}
    if len(cells) < 3 or len(cells) < _FILLED * len(places):
        return None
    texts = {cell: _cell_text(words) for cell, words in cells.items()}
    heads = _head_rows(grid)
    rows = [_row(grid, texts, at, in_head=at < heads) for at in range(len(grid.owner))]
    body = [row for row in rows[heads:] if any(row)]
    names = column_names(rows[:heads])
    has_head = looks_like_head(names, body) or heads > 1
    return PageTable(
        columns=names if has_head else (),
        rows=tuple(body if has_head else [row for row in rows if any(row)]),
        x0=grid.xs[0],
        x1=grid.xs[-1],
        top=grid.ys[0],
        bottom=grid.ys[-1],
        page=number,
    )


def _head_rows(grid: Grid) -> int:
    """A first row with joined cells names groups of columns: the head reaches as far down as its cells do."""
    first = grid.owner[0]
    if len(set(first)) == len(first) or len(set(first)) == 1:
        return 1
    for at, line in enumerate(grid.owner[1:], start=1):
        if not any(row == 0 for row, _ in line):
            return at if at > 1 else 2
    return 1


def _row(grid: Grid, texts: dict[Cell, str], at: int, *, in_head: bool) -> Row:
    """A cell over several rows is repeated in each; one over several columns only in the head."""
    line: list[str] = []
    for column, cell in enumerate(grid.owner[at]):
        text = texts.get(cell, "")
        repeated = (cell[1] != column and not in_head) or (cell[0] != at and len(text) > REPEATED_CHARS)
        line.append("" if repeated else text)
    return tuple(line)


def _cell_text(words: Sequence[Word]) -> str:
    return joined([text_of(row) for row in rows_of(words)])
