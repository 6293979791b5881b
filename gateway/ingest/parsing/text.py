"""Plain text: paragraphs between blank lines, and only headings that are clearly underlined."""

import re

from gateway.ingest.document import BlockKind, ParsedDocument
from gateway.ingest.parsing.outline import Heading, Piece, outline, readable_name

PARSER_VERSION = "text/1"

_UNDERLINE = re.compile(r"(={3,}|-{3,})\s*\Z")
_HEADING_CHARS = 120


def parse_text(text: str, source: str) -> ParsedDocument:
    """Line breaks and indentation inside a paragraph stay. The title comes from the file's name."""
    items: list[Heading | Piece] = []
    for paragraph in re.split(r"\n(?:[^\S\n]*\n)+", text.strip("\n")):
        lines = [line.rstrip() for line in paragraph.split("\n")]
        if _is_heading(lines):
            items.append(Heading(1 if lines[1].startswith("=") else 2, lines[0].strip()))
            del lines[:2]
        body = "\n".join(lines).strip("\n")
        if body.strip():
            items.append(Piece(BlockKind.TEXT, body))
    return outline(items, source=source, parser_version=PARSER_VERSION, title=readable_name(source))


def _is_heading(lines: list[str]) -> bool:
    """One short line of words over a line of ``=`` or ``-`` that is about as long."""
    if len(lines) < 2 or not _UNDERLINE.match(lines[1]):
        return False
    words = lines[0].strip()
    if not any(char.isalnum() for char in words) or len(words) > _HEADING_CHARS or "|" in words:
        return False
    return len(lines[1]) * 2 >= len(words)
