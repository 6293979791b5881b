"""Rendering: lists, code and tables inside other blocks as the Markdown text that passages hold."""

import re
from collections.abc import Sequence

from gateway.ingest.document import BlockKind
from gateway.ingest.parsing.outline import Heading, Piece

_LANGUAGE = re.compile(r"[^\s`]{0,40}")


def fenced(code: str, info: str = "") -> str:
    """Code between fence lines; the fence is longer than any run of backticks inside."""
    longest = max((len(run) for run in re.findall(r"`{3,}", code)), default=2)
    fence = "`" * (longest + 1)
    match = _LANGUAGE.match(info)
    return f"{fence}{match.group() if match else ''}\n{code.strip(chr(10))}\n{fence}"


def list_text(entries: Sequence[tuple[str, Sequence[Heading | Piece]]]) -> str:
    """One list: each entry is its marker (``-``, ``3.``) and what stands in it, nested lists included."""
    return "\n".join(text for marker, items in entries if (text := _entry(marker, items)))


def _entry(marker: str, items: Sequence[Heading | Piece]) -> str:
    body = "\n".join(plain_text(item) for item in items)
    if not body.strip():
        return ""
    indent = " " * (len(marker) + 1)
    lines = body.split("\n")
    return "\n".join([f"{marker} {lines[0]}", *(indent + line if line else "" for line in lines[1:])])


def plain_text(item: Heading | Piece) -> str:
    if isinstance(item, Piece) and item.kind is BlockKind.TABLE:
        return "\n".join(table_lines(item.columns, item.rows))
    return item.text


def table_lines(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Markdown table lines; without column names only the rows."""
    head = [table_row(columns), "|" + " --- |" * len(columns)] if columns else []
    return [*head, *(table_row(row) for row in rows)]


def table_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(re.sub(r"\s+", " ", cell).strip().replace("|", "\\|") for cell in cells) + " |"
