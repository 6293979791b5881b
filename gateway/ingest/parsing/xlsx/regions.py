"""Regions: finds the tables, titles and notes on a sheet by the empty rows and columns between them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from gateway.ingest.document import BlockKind
from gateway.ingest.parsing.outline import Heading, Piece
from gateway.ingest.parsing.table import REPEATED_CHARS, Row, column_names, is_value, looks_like_head
from gateway.ingest.parsing.xlsx.sheet import Sheet

_HEADING_CHARS = 80
_MAX_HEADS = 4
#: how far a joined cell is repeated downwards
_MAX_REPEATED = 2_000


@dataclass(frozen=True, slots=True)
class _Region:
    """Rows and columns that hold something, next to each other."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]


def items_of(sheet: Sheet, level: int) -> Iterator[Heading | Piece]:
    """From the top. A short line over a table becomes a heading of ``level``."""
    names: Row = ()
    place: tuple[int, ...] = ()
    _repeat_downwards(sheet)
    for region in _regions(sheet):
        lead, body = _lead(sheet, region)
        yield from _lead_items(lead, level, over_table=bool(body))
        if not body:
            continue
        heads = _head_count(sheet, region, body)
        if heads:
            names, place = _names(sheet, region, body[:heads]), region.columns
        elif not set(region.columns) <= set(place):
            names, place = (), region.columns
        columns = place if names else region.columns
        rows = tuple(_row(sheet, row, columns) for row in body[heads:])
        yield Piece(BlockKind.TABLE, "", names, rows)


def _repeat_downwards(sheet: Sheet) -> None:
    """A cell over several rows says the same of each."""
    for (row, column), (rows, _) in sheet.spans.items():
        cell = sheet.cells.get(row, {}).get(column)
        if cell is not None and len(cell.text) <= REPEATED_CHARS:
            for below in range(row + 1, row + min(rows, _MAX_REPEATED)):
                if below in sheet.cells:
                    sheet.cells[below].setdefault(column, cell)


def _regions(sheet: Sheet) -> Iterator[_Region]:
    for rows in _neighbours(sorted(sheet.cells)):
        filled = sorted({column for row in rows for column in sheet.cells[row]})
        groups = _neighbours(filled)
        if len(groups) < 2 or not all(_stands_alone(sheet, rows, group) for group in groups):
            yield _Region(tuple(rows), tuple(filled))
            continue
        for group in groups:
            own = [row for row in rows if not sheet.cells[row].keys().isdisjoint(group)]
            for part in _neighbours(own):
                yield _Region(tuple(part), tuple(group))


def _neighbours(places: Sequence[int]) -> list[list[int]]:
    groups: list[list[int]] = []
    for place in places:
        if groups and place == groups[-1][-1] + 1:
            groups[-1].append(place)
        else:
            groups.append([place])
    return groups


def _stands_alone(sheet: Sheet, rows: Sequence[int], columns: Sequence[int]) -> bool:
    """Two columns and two rows at least: smaller ones beside a gap belong to what is next to them."""
    return len(columns) > 1 and sum(not sheet.cells[row].keys().isdisjoint(columns) for row in rows) > 1


def _lead(sheet: Sheet, region: _Region) -> tuple[list[str], list[int]]:
    """The lines over the table, and the table's rows; no rows where there is one column or one row."""
    lead: list[str] = []
    rows = list(region.rows)
    while rows and (len(region.columns) == 1 or len(_filled(sheet, rows[0], region)) < 2):
        lead.extend(_filled(sheet, rows.pop(0), region))
    if len(rows) == 1 and not lead:
        return [" ".join(_filled(sheet, rows[0], region))], []
    return lead, rows


def _filled(sheet: Sheet, row: int, region: _Region) -> list[str]:
    return [sheet.cells[row][column].text for column in region.columns if column in sheet.cells[row]]


def _lead_items(lead: Sequence[str], level: int, *, over_table: bool) -> Iterator[Heading | Piece]:
    lines = list(lead)
    if over_table and lines and len(lines[0]) <= _HEADING_CHARS and not is_value(lines[0]):
        yield Heading(level, lines.pop(0))
    if lines:
        yield Piece(BlockKind.TEXT, "\n".join(lines))


def _head_count(sheet: Sheet, region: _Region, rows: Sequence[int]) -> int:
    """How many of the first rows name the columns: more than one where a name spans several columns."""
    if len(rows) < 2:
        return 0
    first = sheet.cells[rows[0]]
    bold = [first[column].bold for column in region.columns if column in first]
    labelled = [
        sheet.cells[row][region.columns[0]].bold for row in rows if region.columns[0] in sheet.cells[row]
    ]
    if len(region.columns) == 2 and not all(bold) and len(labelled) > 1 and all(labelled):
        return 0  # labels on the left, values on the right
    heads = 1
    for row, below in pairwise(rows[:_MAX_HEADS]):
        if not any(sheet.spans.get((row, column), (1, 1))[1] > 1 for column in region.columns):
            break
        if any(is_value(text) for text in _filled(sheet, below, region)):
            break
        heads += 1
    heads = min(heads, len(rows) - 1)
    if all(bold) or heads > 1:
        return heads
    names = _row(sheet, rows[0], region.columns)
    return heads if looks_like_head(names, [_row(sheet, row, region.columns) for row in rows[1:3]]) else 0


def _names(sheet: Sheet, region: _Region, rows: Sequence[int]) -> Row:
    lines: list[Row] = []
    for row in rows:
        line = list(_row(sheet, row, region.columns))
        for at, column in enumerate(region.columns):
            wide = sheet.spans.get((row, column), (1, 1))[1]
            for other in range(at + 1, len(line)):
                if region.columns[other] < column + wide and not line[other]:
                    line[other] = line[at]
        lines.append(tuple(line))
    return column_names(lines)


def _row(sheet: Sheet, row: int, columns: Sequence[int]) -> Row:
    cells = sheet.cells[row]
    return tuple(cells[column].text if column in cells else "" for column in columns)
