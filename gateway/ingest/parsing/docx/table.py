"""DOCX tables: column names and rows, with joined cells resolved; a table of one column only lays out."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from gateway.ingest.document import BlockKind
from gateway.ingest.parsing.docx.styles import is_on
from gateway.ingest.parsing.outline import Piece
from gateway.ingest.parsing.table import REPEATED_CHARS, Row, column_names, looks_like_head, without_empty

_MAX_SPAN = 64


@dataclass(frozen=True, slots=True)
class _Cell:
    """``carried``: it goes on from the row above."""

    text: str
    span: int
    carried: bool


def read_table(table: Element, text_of_cell: Callable[[Element], str]) -> Piece | None:
    """None for an empty table."""
    heads: list[Row] = []
    rows: list[Row] = []
    above: list[str] = []
    for row in _rows(table):
        cells = [_cell(cell, text_of_cell) for cell in _cells(row)]
        is_head = not rows and _is_head(row)
        line = _spread(cells, above, is_head)
        above = _held(cells, above)
        (heads if is_head else rows).append(line)
    lines = without_empty([*heads, *rows])
    if not lines:
        return None
    if len(lines[0]) < 2:
        return Piece(BlockKind.TEXT, "\n".join(line[0] for line in lines))
    heads = lines[: min(sum(any(line) for line in heads), len(lines) - 1)]
    if not heads and looks_like_head(lines[0], lines[1:]):
        heads = lines[:1]
    return Piece(BlockKind.TABLE, "", column_names(heads), tuple(lines[len(heads) :]))


def is_layout(table: Element) -> bool:
    """No row has more than one cell."""
    return all(sum(1 for _ in _cells(row)) < 2 for row in _rows(table))


def cells_of(table: Element) -> Iterator[Element]:
    for row in _rows(table):
        yield from _cells(row)


def _rows(table: Element) -> Iterator[Element]:
    for child in table:
        if child.tag == "tr" and child.find("trPr/del") is None:
            yield child
        elif child.tag in ("sdt", "sdtContent", "customXml", "ins"):
            yield from _rows(child)


def _cells(row: Element) -> Iterator[Element]:
    for child in row:
        if child.tag == "tc":
            yield child
        elif child.tag in ("sdt", "sdtContent", "customXml"):
            yield from _cells(child)


def _is_head(row: Element) -> bool:
    properties = row.find("trPr")
    return properties is not None and bool(is_on(properties, "tblHeader"))


def _cell(cell: Element, text_of_cell: Callable[[Element], str]) -> _Cell:
    merge, span = cell.find("tcPr/vMerge"), cell.find("tcPr/gridSpan")
    width = span.get("val", "1") if span is not None else "1"
    carried = merge is not None and merge.get("val", "continue") == "continue"
    return _Cell(
        "" if carried else text_of_cell(cell),
        min(max(int(width), 1), _MAX_SPAN) if re.fullmatch(r"\d{1,4}", width) else 1,
        carried,
    )


def _spread(cells: list[_Cell], above: list[str], is_head: bool) -> Row:
    """A cell over several rows is repeated in each; one over several columns only in a head."""
    line: list[str] = []
    for cell in cells:
        text = above[len(line)] if cell.carried and len(line) < len(above) else cell.text
        if cell.carried and len(text) > REPEATED_CHARS:
            text = ""
        line.append(text)
        line.extend([text if is_head else ""] * (cell.span - 1))
    return tuple(line)


def _held(cells: list[_Cell], above: list[str]) -> list[str]:
    """What each column's cell says, for those below that go on with it."""
    held: list[str] = []
    for cell in cells:
        text = above[len(held)] if cell.carried and len(held) < len(above) else cell.text
        held.extend([text] * cell.span)
    return held
