"""HTML tables: column names and rows, with spans resolved; tables that only lay out a page are none."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from selectolax.lexbor import LexborNode

from gateway.ingest.parsing.table import REPEATED_CHARS, column_names

CELL_TAGS = frozenset(("td", "th"))

_MAX_COLUMN_SPAN = 64
_MAX_ROW_SPAN = 200


@dataclass(frozen=True, slots=True)
class HtmlTable:
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class _Cell:
    text: str
    is_head: bool
    columns: int
    rows: int


def read_table(node: LexborNode, text_of_cell: Callable[[LexborNode], str]) -> HtmlTable | None:
    """None for a layout table: one with blocks of code, headings or tables inside, or with one column."""
    if node.css_first("table table, pre, h1, h2, h3, h4, h5, h6") is not None:
        return None
    caption = ""
    heads: list[tuple[str, ...]] = []
    rows: list[tuple[str, ...]] = []
    carried: dict[int, tuple[str, int]] = {}
    for number, row in enumerate(_rows(node)):
        cells = [_cell(child, text_of_cell) for child in row.iter() if child.tag in CELL_TAGS]
        in_head = row.parent is not None and row.parent.tag == "thead"
        is_head = bool(cells) and (
            in_head or all(c.is_head for c in cells) or (number == 0 and _stands_out(row))
        )
        line = _spread(cells, carried, is_head and not rows)
        if not any(line):
            continue
        (heads if is_head and not rows else rows).append(line)
    if max((len(line) for line in [*heads, *rows]), default=0) < 2:
        return None
    for child in node.iter():
        if child.tag == "caption":
            caption = text_of_cell(child)
    return HtmlTable(caption, column_names(heads), tuple(rows))


def _rows(table: LexborNode) -> Iterator[LexborNode]:
    for child in table.iter():
        if child.tag == "tr":
            yield child
        elif child.tag in ("thead", "tbody", "tfoot"):
            yield from (row for row in child.iter() if row.tag == "tr")


def _cell(node: LexborNode, text_of_cell: Callable[[LexborNode], str]) -> _Cell:
    attributes = node.attributes
    return _Cell(
        text_of_cell(node),
        node.tag == "th",
        _span(attributes.get("colspan"), _MAX_COLUMN_SPAN),
        _span(attributes.get("rowspan"), _MAX_ROW_SPAN),
    )


def _span(value: str | None, limit: int) -> int:
    return min(max(int(value), 1), limit) if value and re.fullmatch(r"\d{1,6}", value.strip()) else 1


def _spread(cells: list[_Cell], carried: dict[int, tuple[str, int]], is_head: bool) -> tuple[str, ...]:
    """One row as texts. A cell that spans rows is repeated below; one that spans columns only in a head."""
    line: list[str] = []

    def take_carried() -> None:
        while (held := carried.get(len(line))) is not None:
            text, left = held
            if left > 1:
                carried[len(line)] = (text, left - 1)
            else:
                del carried[len(line)]
            line.append(text)

    for cell in cells:
        take_carried()
        for n in range(cell.columns):
            text = cell.text if n == 0 or is_head else ""
            if cell.rows > 1:
                carried[len(line)] = (text if len(text) <= REPEATED_CHARS else "", cell.rows - 1)
            line.append(text)
    take_carried()
    return tuple(line)


def _stands_out(row: LexborNode) -> bool:
    """Each cell is one bold text: how word processors mark column names."""
    for cell in row.iter():
        inner = [
            c for c in cell.iter(include_text=True) if c.tag != "-text" or (c.text_content or "").strip()
        ]
        if cell.tag not in CELL_TAGS or len(inner) != 1 or inner[0].tag not in ("b", "strong"):
            return False
    return True
