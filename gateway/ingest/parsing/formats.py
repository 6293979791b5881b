"""Formats: what a file is, told by its bytes first, then by its name, then by its media type."""

import re
from enum import StrEnum
from pathlib import PurePosixPath

from gateway.errors import DocumentRejected
from gateway.ingest.parsing.languages import LANGUAGE_OF_EXTENSION


class Format(StrEnum):
    MARKDOWN = "markdown"
    HTML = "html"
    TEXT = "text"
    CSV = "csv"
    CODE = "code"
    PDF = "pdf"
    DOCX = "docx"
    XLSX = "xlsx"


#: formats whose bytes are text in some encoding
TEXTUAL = frozenset({Format.MARKDOWN, Format.HTML, Format.TEXT, Format.CSV, Format.CODE})
#: how many of a file's first bytes ``format_of_head`` wants
HEAD_BYTES = 4096

_EXTENSIONS = {
    ".md": Format.MARKDOWN,
    ".markdown": Format.MARKDOWN,
    ".mdown": Format.MARKDOWN,
    ".mkd": Format.MARKDOWN,
    ".html": Format.HTML,
    ".htm": Format.HTML,
    ".xhtml": Format.HTML,
    ".txt": Format.TEXT,
    ".text": Format.TEXT,
    ".rst": Format.TEXT,
    ".log": Format.TEXT,
    ".csv": Format.CSV,
    ".tsv": Format.CSV,
    ".tab": Format.CSV,
    ".pdf": Format.PDF,
    ".docx": Format.DOCX,
    ".docm": Format.DOCX,
    ".xlsx": Format.XLSX,
    ".xlsm": Format.XLSX,
    **dict.fromkeys(LANGUAGE_OF_EXTENSION, Format.CODE),
}
_MEDIA_TYPES = {
    "text/markdown": Format.MARKDOWN,
    "text/x-markdown": Format.MARKDOWN,
    "text/html": Format.HTML,
    "application/xhtml+xml": Format.HTML,
    "text/plain": Format.TEXT,
    "text/csv": Format.CSV,
    "text/tab-separated-values": Format.CSV,
    "application/pdf": Format.PDF,
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": Format.DOCX,
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": Format.XLSX,
}
# Formats with a structure of their own: reading one as plain text would lose it without a word.
_FOREIGN = frozenset(
    ".doc .odt .rtf .xls .xlsb .ods .ppt .pptx .odp .epub .eml .msg .xml .svg .ipynb .parquet .sqlite .db"
    " .zip .gz .tgz .bz2 .xz .7z .rar .tar .jar .png .jpg .jpeg .gif .bmp .webp .ico .tif .tiff .mp3 .mp4"
    " .wav .mov .avi .exe .dll .so .bin .iso .woff .woff2 .ttf".split()
)
_ADVICE = {
    ".doc": " Save it as .docx and import that.",
    ".odt": " Save it as .docx and import that.",
    ".rtf": " Save it as .docx and import that.",
    ".xls": " Save it as .xlsx and import that.",
    ".xlsb": " Save it as .xlsx and import that.",
    ".ods": " Save it as .xlsx and import that.",
    ".ppt": " Export it as PDF and import that.",
    ".pptx": " Export it as PDF and import that.",
    ".odp": " Export it as PDF and import that.",
}
_ACCEPTED = "Accepted are Markdown, HTML, PDF, DOCX, XLSX, CSV, plain text and source code."
_PDF_MARK = b"%PDF-"
_ZIP_MARKS = (b"PK\x03\x04", b"PK\x05\x06")
_CFB_MARK = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENCRYPTED_PACKAGE = "EncryptedPackage".encode("utf-16-le")
_BINARY_MARKS = {
    b"\x89PNG": "a PNG image",
    b"GIF8": "a GIF image",
    b"\xff\xd8\xff": "a JPEG image",
    b"\x1f\x8b": "a gzip archive",
    b"BZh": "a bzip2 archive",
    b"\xfd7zXZ": "an xz archive",
    b"7z\xbc\xaf": "a 7z archive",
    b"Rar!\x1a\x07": "a RAR archive",
    b"\x7fELF": "a program",
    b"SQLite format 3": "a SQLite database",
}
# Possessive: a page that goes on otherwise is given up at once, however many comments stand above that place.
_PAGE = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*+(?:<\?xml[^>]*+>\s*+)?(?><!--.*?-->\s*+)*+<(?:!doctype\s+html|html)\b",
    re.IGNORECASE | re.DOTALL,
)


def format_of(source: str, media_type: str) -> Format:
    """What a file's name says, else its media type; plain text when neither says anything.

    Raises DocumentRejected unsupported_type.
    """
    extension = _extension(source)
    if extension in _EXTENSIONS:
        return _EXTENSIONS[extension]
    plain_type = media_type.split(";")[0].strip().lower()
    if extension not in _FOREIGN:
        if plain_type in _MEDIA_TYPES:
            return _MEDIA_TYPES[plain_type]
        named_like_text = not re.fullmatch(r"\.[a-z]\w*", extension)
        if named_like_text and plain_type in ("", "application/octet-stream"):
            return Format.TEXT
    what = extension or plain_type or "this type"
    raise DocumentRejected(
        "unsupported_type",
        f"Files of type {what[:40]} are not accepted.{_ADVICE.get(extension, f' {_ACCEPTED}')}",
    )


def format_of_head(head: bytes) -> Format | None:
    """PDF or HTML when a file's first bytes say so, whatever its name; None when they don't tell."""
    if head.lstrip(b"\xef\xbb\xbf\r\n\t ").startswith(_PDF_MARK):
        return Format.PDF
    return Format.HTML if _PAGE.match(head[:HEAD_BYTES]) else None


def choose(source: str, media_type: str, content: bytes) -> Format:
    """The format to read ``content`` as.

    Raises DocumentRejected unsupported_type, not_text (binary named like text), encrypted, or corrupt
    (named as a PDF or an Office file, and none).
    """
    told = format_of_head(content[:HEAD_BYTES])
    if told is not None and _EXTENSIONS.get(_extension(source)) is not Format.CODE:
        return told
    if content.startswith(_CFB_MARK):
        raise _old_office_file(content)
    if content.startswith(_ZIP_MARKS):
        return _inside_zip(source, media_type, content)
    named = format_of(source, media_type)
    if named is Format.PDF and _PDF_MARK in content[:1024]:  # some producers write a line before it
        return named
    _refuse_known_binary(named, content)
    if named not in TEXTUAL:
        raise DocumentRejected(
            "corrupt", f"The file is named like {_article(named)} file, but its content is none."
        )
    return named


def _inside_zip(source: str, media_type: str, content: bytes) -> Format:
    """Which Office file a ZIP archive is; member names stand in it uncompressed."""
    if b"[Content_Types].xml" in content:
        if b"word/document" in content:
            return Format.DOCX
        if b"xl/workbook" in content:
            return Format.XLSX
        if b"ppt/presentation" in content:
            raise DocumentRejected(
                "unsupported_type", "Presentations are not accepted. Export it as PDF and import that."
            )
    if content[30:].startswith(b"mimetypeapplication/vnd.oasis.opendocument"):
        raise DocumentRejected(
            "unsupported_type",
            "OpenDocument files are not accepted. Save it as .docx or .xlsx and import that.",
        )
    named = format_of(source, media_type)
    if named in TEXTUAL:
        raise DocumentRejected("not_text", "The file is named like text but is a ZIP archive.")
    raise DocumentRejected(
        "corrupt", f"The file is named like {_article(named)} file, but is a ZIP archive without one inside."
    )


def _old_office_file(content: bytes) -> DocumentRejected:
    if _ENCRYPTED_PACKAGE in content:
        return DocumentRejected(
            "encrypted", "The file is protected by a password. Save it without one and import it again."
        )
    return DocumentRejected(
        "unsupported_type",
        "The file has Microsoft's old binary format. Save it as .docx or .xlsx and import that.",
    )


def _refuse_known_binary(named: Format, content: bytes) -> None:
    for mark, what in _BINARY_MARKS.items():
        if content.startswith(mark):
            if named in TEXTUAL:
                raise DocumentRejected("not_text", f"The file is named like text but is {what}.")
            raise DocumentRejected("corrupt", f"The file is named like {_article(named)} file but is {what}.")


def _article(named: Format) -> str:
    return f"an {named.upper()}" if named is Format.XLSX else f"a {named.upper()}"


def _extension(source: str) -> str:
    return PurePosixPath(source.replace("\\", "/")).suffix.lower()
