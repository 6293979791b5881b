"""Tabulating: cuts a table between rows; each part says which column a value belongs to."""

from collections.abc import Iterator, Sequence

from gateway.errors import DocumentRejected
from gateway.ingest.parsing.rendering import table_lines, table_row
from gateway.ingest.splitting import estimate_tokens, pack, split_text

#: longest column name that is repeated in each record, and first cell repeated in a record's later parts
_NAME_CHARS = 60
#: how many times its own size a table may grow by repeated column names
_MAX_GROWTH = 16
_FREE_CHARS = 1_000_000


def split_table(columns: Sequence[str], rows: Sequence[Sequence[str]], goal: int, limit: int) -> list[str]:
    """Parts of about ``goal`` tokens, each a Markdown table under the same column names.

    A row that doesn't fit ``limit`` with the names, and each row of a table whose names alone fill a
    third of it, becomes a record of ``name: value`` lines instead, cut between them.
    Raises DocumentRejected too_complex when repeating the names would blow the table up.
    """
    head = table_lines(columns, [])
    head_size = estimate_tokens("\n".join(head))
    if head_size * 3 > limit:
        _check_growth(columns, rows)
        return _records(columns, rows, goal, limit)
    parts: list[str] = []
    held: list[str] = []
    held_size = head_size
    complete = False
    for row in rows:
        line = table_row(row)
        size = estimate_tokens(line)
        if held and held_size + size > goal:
            parts.append("\n".join([*head, *held]))
            held, held_size = [], head_size
        if head_size + size > limit:
            parts.extend(_record(columns, row, goal, limit, with_empty=not complete))
        else:
            held.append(line)
            held_size += size
        complete = True
    if held or not rows:
        parts.append("\n".join([*head, *held]))
    return [part for part in parts if part]


def _check_growth(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    names = [min(len(name), _NAME_CHARS) + 3 for name in columns]
    given = grown = sum(map(len, columns))
    for row in rows:
        for at, cell in enumerate(row):
            given += len(cell)
            grown += len(cell) + (names[at] if cell and at < len(names) else 0)
    if grown > given * _MAX_GROWTH + _FREE_CHARS:
        raise DocumentRejected("too_complex", "A table in the document has too many columns to be split.")


def _records(columns: Sequence[str], rows: Sequence[Sequence[str]], goal: int, limit: int) -> list[str]:
    parts: list[str] = []
    for number, row in enumerate(rows or [()]):
        parts.extend(_record(columns, row, goal, limit, with_empty=number == 0))
    return parts


def _record(
    columns: Sequence[str], row: Sequence[str], goal: int, limit: int, *, with_empty: bool
) -> Iterator[str]:
    """One row as ``name: value`` lines. ``with_empty``: names without a value and whole long names too."""
    lines: list[str] = []
    for at in range(max(len(columns), len(row))):
        name = columns[at] if at < len(columns) else ""
        value = row[at] if at < len(row) else ""
        if not value and not (with_empty and name):
            continue
        if len(name) > _NAME_CHARS and not with_empty:
            name = name[: _NAME_CHARS - 1] + "…"
        lines.extend(_lines(name, value, goal, limit))
    first = row[0] if row else ""
    key = (
        f"{columns[0]}: {first}\n"
        if columns and first and len(columns[0]) + len(first) <= _NAME_CHARS
        else ""
    )
    room = limit - estimate_tokens(key)
    for number, part in enumerate(pack([line + "\n" for line in lines], min(goal, room), room)):
        yield (key if number else "") + part.strip("\n")


def _lines(name: str, value: str, goal: int, limit: int) -> list[str]:
    label = f"{name}: " if name else ""
    room = limit - 64  # a repeated key and the name stand before the value
    if estimate_tokens(label) > 30:
        return [*split_text(label.strip(), goal, room), *(split_text(value, goal, room) if value else [])]
    if estimate_tokens(label + value) <= room:
        return [(label + value).strip()]
    return [label + part for part in split_text(value, goal, room)]
