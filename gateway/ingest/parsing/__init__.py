"""Parsing: one file a format; the format is chosen by a file's content, name and media type."""

from gateway.errors import DocumentRejected
from gateway.ingest.document import BlockKind, ParsedDocument
from gateway.ingest.parsing.dates import with_stated_validity
from gateway.ingest.parsing.encoding import decode
from gateway.ingest.parsing.formats import HEAD_BYTES, TEXTUAL, Format, choose, format_of, format_of_head

__all__ = ["HEAD_BYTES", "Format", "format_of", "format_of_head", "parse"]


def parse(source: str, media_type: str, content: bytes) -> ParsedDocument:
    """The document of one file. ``source`` is its name or path, ``media_type`` may be empty.

    Raises DocumentRejected with any reason but too_large and too_sensitive.
    """
    kind = choose(source, media_type, content)
    try:
        document = _read(kind, source, media_type, content)
    except RecursionError:
        raise DocumentRejected("too_complex", "The document is nested too deeply to be read.") from None
    if not any(_says_something(block.kind, block.text, block.rows) for block in document.blocks):
        raise DocumentRejected("blank", "No text was found in the file.")
    return document


def _read(kind: Format, source: str, media_type: str, content: bytes) -> ParsedDocument:
    if kind not in TEXTUAL:
        return with_stated_validity(_read_binary(kind, source, content))
    return _read_text(kind, source, decode(content, media_type, markup=kind is Format.HTML))


# Each parser brings libraries that only its format needs: they are imported with its first file.


def _read_binary(kind: Format, source: str, content: bytes) -> ParsedDocument:
    match kind:
        case Format.PDF:
            from gateway.ingest.parsing.pdf import parse_pdf

            return parse_pdf(content, source)
        case Format.DOCX:
            from gateway.ingest.parsing.docx import parse_docx

            return parse_docx(content, source)
        case _:
            from gateway.ingest.parsing.xlsx import parse_xlsx

            return parse_xlsx(content, source)


def _read_text(kind: Format, source: str, text: str) -> ParsedDocument:
    match kind:
        case Format.CSV:
            from gateway.ingest.parsing.csv import parse_csv

            return parse_csv(text, source)
        case Format.CODE:
            from gateway.ingest.parsing.code import parse_code

            return parse_code(text, source)
        case Format.HTML:
            from gateway.ingest.parsing.html import parse_html

            return with_stated_validity(parse_html(text, source))
        case Format.MARKDOWN:
            from gateway.ingest.parsing.markdown import parse_markdown, split_front_matter

            return with_stated_validity(parse_markdown(text, source), split_front_matter(text)[0])
        case _:
            from gateway.ingest.parsing.text import parse_text

            return with_stated_validity(parse_text(text, source))


def _says_something(kind: BlockKind, text: str, rows: tuple[tuple[str, ...], ...]) -> bool:
    """A table says something only in its rows: column names alone are no knowledge."""
    if kind is BlockKind.TABLE:
        return any(char.isalnum() for row in rows for cell in row for char in cell)
    return any(char.isalnum() for char in text)
