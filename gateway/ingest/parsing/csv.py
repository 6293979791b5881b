"""CSV and TSV: the delimiter and the header row are found, the rest is one table."""

import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from gateway.errors import DocumentRejected
from gateway.ingest.document import BlockKind, ParsedDocument
from gateway.ingest.parsing.outline import Heading, Piece, outline, readable_name
from gateway.ingest.parsing.table import looks_like_head

PARSER_VERSION = "csv/1"

#: beyond these a table is a database: a question needs a query there, not passages
MAX_ROWS = 100_000
MAX_CELLS = 2_000_000
_MAX_COLUMNS = 2_000
_MAX_CELL_CHARS = 131_072
_SAMPLE_CHARS = 64 * 1024
_SAMPLE_ROWS = 200
_PREAMBLE_ROWS = 20
#: a quoted cell with more lines than this comes from a quote that was never closed
_CELL_LINES = 200
_DELIMITERS = ",;\t|"
#: the first line by which Excel states the delimiter
_STATED = re.compile(r"sep=([,;\t|])[^\S\n]*\n", re.IGNORECASE)
_TOO_MUCH = f"The table has more than {MAX_ROWS:,} rows or {MAX_CELLS:,} cells. Import what people ask about."

Row = tuple[str, ...]


def parse_csv(text: str, source: str) -> ParsedDocument:
    """The title is the file's name; lines above the header row stay as text.

    A table without a header row gets the names Column 1, Column 2, … Raises DocumentRejected
    too_complex beyond MAX_ROWS or MAX_CELLS.
    """
    text = text.lstrip("\n")
    stated = _STATED.match(text)
    if stated:
        text = text[stated.end() :]
    rows = _read(text, stated.group(1) if stated else _delimiter(text, source))
    preamble, columns, body = _parted(rows)
    items: list[Heading | Piece] = [Piece(BlockKind.TEXT, line) for line in preamble]
    items.append(Piece(BlockKind.TABLE, "", columns=columns, rows=body))
    return outline(items, source=source, parser_version=PARSER_VERSION, title=readable_name(source))


def _delimiter(text: str, source: str) -> str:
    """The one that cuts most of the first rows into the same number of cells, two at least."""
    sample = text[:_SAMPLE_CHARS]
    if len(text) > _SAMPLE_CHARS:
        sample = sample.rpartition("\n")[0]
    if source.lower().endswith((".tsv", ".tab")) and "\t" in sample:
        return "\t"
    return max(_DELIMITERS, key=lambda delimiter: _regularity(sample, delimiter))


def _regularity(sample: str, delimiter: str) -> tuple[float, int]:
    """Share of the rows that have the usual number of cells, and that number; worst when it is one."""
    rows = _plain_rows(sample, delimiter) if delimiter in sample else []
    widths = Counter(len(row) for row in rows[:_SAMPLE_ROWS] if any(row))
    many = {width: count for width, count in widths.items() if width > 1}
    if not many:
        return 0.0, 0
    width = max(many, key=lambda each: (many[each], each))
    return round(many[width] / widths.total(), 1), width


def _plain_rows(text: str, delimiter: str) -> list[list[str]]:
    try:
        return list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    except csv.Error:
        return []


def _read(text: str, delimiter: str) -> list[Row]:
    try:
        rows = _rows(text, delimiter, csv.QUOTE_MINIMAL)
    except csv.Error:
        rows = None
    if rows is None or any(cell.count("\n") > _CELL_LINES for row in rows for cell in row):
        try:  # a quote that never closes: read it as a character
            return _rows(text, delimiter, csv.QUOTE_NONE)
        except csv.Error:
            raise DocumentRejected(
                "corrupt", f"A cell of the table is longer than {_MAX_CELL_CHARS:,} characters."
            ) from None
    return rows


def _rows(text: str, delimiter: str, quoting: Literal[0, 3]) -> list[Row]:
    """Rows that say something, cells without white space around them. Raises csv.Error."""
    rows: list[Row] = []
    cells = 0
    for line in csv.reader(
        io.StringIO(text, newline=""), delimiter=delimiter, quoting=quoting, skipinitialspace=True
    ):
        row = tuple(cell.strip() for cell in line)
        while row and not row[-1]:
            row = row[:-1]
        if not row:
            continue
        rows.append(row)
        cells += len(row)
        if len(rows) > MAX_ROWS or cells > MAX_CELLS or len(row) > _MAX_COLUMNS:
            raise DocumentRejected("too_complex", _TOO_MUCH)
    return rows


def _parted(rows: Sequence[Row]) -> tuple[list[str], Row, tuple[Row, ...]]:
    """What stands above the table, the column names, the rows."""
    if not rows:
        return [], (), ()
    widths = Counter(map(len, rows[:_SAMPLE_ROWS]))
    usual = max(widths, key=lambda width: (widths[width], width))
    first = next((at for at, row in enumerate(rows[:_PREAMBLE_ROWS]) if len(row) * 2 > usual), 0)
    preamble = [" ".join(cell for cell in row if cell) for row in rows[:first]]
    head, body = rows[first], rows[first + 1 :]
    if body and not looks_like_head(head, body) and not _names_years(head):
        head, body = (), rows[first:]
        widest = max(map(len, body))
        head = tuple(f"Column {number}" for number in range(1, widest + 1))
    return preamble, head, tuple(body)


def _names_years(head: Row) -> bool:
    """A first column with a name, then a column a year."""
    return (
        len(head) > 1
        and head[0][:1].isalpha()
        and all(re.fullmatch(r"(?:19|20)\d\d", cell) for cell in head[1:])
    )
