"""Parsing: one file a format; the format is chosen by a file's name, media type and content."""

import re
from pathlib import PurePosixPath

from gateway.errors import DocumentRejected
from gateway.ingest.document import BlockKind, ParsedDocument
from gateway.ingest.parsing.encoding import decode
from gateway.ingest.parsing.html import parse_html
from gateway.ingest.parsing.markdown import parse_markdown
from gateway.ingest.parsing.text import parse_text

_PARSERS = {"markdown": parse_markdown, "html": parse_html, "text": parse_text}
_EXTENSIONS = {
    ".md": "markdown",
    ".markdown": "markdown",
    ".mdown": "markdown",
    ".mkd": "markdown",
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".txt": "text",
    ".text": "text",
    ".rst": "text",
    ".log": "text",
}
_MEDIA_TYPES = {
    "text/markdown": "markdown",
    "text/x-markdown": "markdown",
    "text/html": "html",
    "application/xhtml+xml": "html",
    "text/plain": "text",
}
# Formats with a structure of their own: reading one as plain text would lose it without a word.
_FOREIGN = frozenset(
    ".pdf .doc .docx .odt .rtf .xls .xlsx .ods .csv .tsv .ppt .pptx .odp .epub .json .xml .zip .gz .tar .png"
    " .jpg .jpeg .gif .svg .webp".split()
)
_PAGE = re.compile(
    r"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html)\b", re.IGNORECASE | re.DOTALL
)


def parse(source: str, media_type: str, content: bytes) -> ParsedDocument:
    """The document of one file. ``source`` is its name or path, ``media_type`` may be empty.

    Raises DocumentRejected blank, undecodable, not_text, unsupported_type or too_complex.
    """
    kind = format_of(source, media_type)
    text = decode(content, media_type, markup=kind == "html")
    if kind == "html" or _PAGE.match(text[:4096]):
        kind = "html"
    try:
        document = _PARSERS[kind](text, source)
    except RecursionError:
        raise DocumentRejected("too_complex", "The document is nested too deeply to be read.") from None
    if not any(_says_something(block.kind, block.text, block.rows) for block in document.blocks):
        raise DocumentRejected("blank", "No text was found in the file.")
    return document


def format_of(source: str, media_type: str) -> str:
    """``markdown``, ``html`` or ``text``; the name counts first. Raises DocumentRejected unsupported_type."""
    extension = PurePosixPath(source.replace("\\", "/")).suffix.lower()
    if extension in _EXTENSIONS:
        return _EXTENSIONS[extension]
    plain_type = media_type.split(";")[0].strip().lower()
    if extension not in _FOREIGN:
        if plain_type in _MEDIA_TYPES:
            return _MEDIA_TYPES[plain_type]
        named_like_text = not re.fullmatch(r"\.[a-z]\w*", extension)
        if named_like_text and plain_type in ("", "application/octet-stream"):
            return "text"
    what = extension or plain_type or "this type"
    raise DocumentRejected(
        "unsupported_type",
        f"Files of type {what[:40]} are not accepted. Accepted are Markdown, HTML and plain text.",
    )


def _says_something(kind: BlockKind, text: str, rows: tuple[tuple[str, ...], ...]) -> bool:
    """A table says something only in its rows: column names alone are no knowledge."""
    if kind is BlockKind.TABLE:
        return any(char.isalnum() for row in rows for cell in row for char in cell)
    return any(char.isalnum() for char in text)
