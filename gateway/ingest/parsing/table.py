"""Table: what rows of cells share whatever their format: column names, empty parts, spans."""

import re
from collections.abc import Sequence

#: a longer text isn't repeated into the rows that its cell spans
REPEATED_CHARS = 200

Row = tuple[str, ...]
_VALUE = re.compile(r"[-+(]?[^\w\s]{0,3}\s?\d[\d.,:/ \-]*\s?[^\W\d_]{0,3}[%€$£¥)]?\Z|\d{4}年.*")


def column_names(heads: Sequence[Row]) -> Row:
    """Several head rows make one name a column, outermost first, without repeats."""
    width = max((len(line) for line in heads), default=0)
    names = []
    for at in range(width):
        parts = dict.fromkeys(line[at] for line in heads if at < len(line) and line[at])
        names.append(" ".join(parts))
    return tuple(names)


def without_empty(rows: Sequence[Row]) -> list[Row]:
    """Rows of one width without the rows and columns that hold nothing."""
    width = max((len(row) for row in rows), default=0)
    full = [row + ("",) * (width - len(row)) for row in rows if any(row)]
    kept = [at for at in range(width) if any(row[at] for row in full)]
    return [tuple(row[at] for at in kept) for row in full]


def looks_like_head(row: Row, below: Sequence[Row]) -> bool:
    """Whether a table's first row names its columns: mostly filled, all different, and no values."""
    filled = [cell for cell in row if cell]
    if not below or len(filled) * 2 < len(row) + 1 or len(set(filled)) < len(filled):
        return False
    if any(len(cell) > REPEATED_CHARS for cell in filled):
        return False
    values = sum(is_value(cell) for cell in filled)
    if not values:
        return True
    # Years and numbers may name columns too, but not where the rows below look just the same.
    same = sum(is_value(cell) for cell in below[0] if cell)
    return is_value(row[0]) is False and values < len(filled) and values > same


def is_value(text: str) -> bool:
    """A number, an amount, a date or a time rather than words."""
    return bool(_VALUE.match(text))
