"""PDF: text with its pages, headings, lists, code and tables, read through PDFium; no text recognition."""

import re
from collections.abc import Iterator, Sequence

import pypdfium2
import pypdfium2.raw as pdfium

from gateway.errors import DocumentRejected
from gateway.ingest.document import ParsedDocument
from gateway.ingest.parsing.outline import Heading, Piece, outline, readable_name
from gateway.ingest.parsing.pdf.flow import items_of
from gateway.ingest.parsing.pdf.furniture import without_furniture
from gateway.ingest.parsing.pdf.page import PageContent, read_page
from gateway.ingest.parsing.wording import squeezed

PARSER_VERSION = "pdf/2"

_MAX_PAGES = 3_000
_MAX_CHARS = 10_000_000
_NO_TITLE = re.compile(
    r"(?:microsoft (?:word|powerpoint|excel) - |untitled|\(?anonymous|unnamed|.*\.\w{2,5}\Z|\Z)",
    re.IGNORECASE,
)


def parse_pdf(content: bytes, source: str) -> ParsedDocument:
    """The title is the only heading of the largest size, else the file's own, else the file's name.

    Raises DocumentRejected corrupt, encrypted, blank, needs_ocr or too_complex.
    """
    document = _open(content)
    try:
        pages = list(_pages(document))
        own_title = squeezed(document.get_metadata_value("Title"))
    except pypdfium2.PdfiumError:
        raise DocumentRejected("corrupt", "The PDF file is damaged: a page can't be read.") from None
    finally:
        document.close()
    _check_readable(pages)
    items = items_of(without_furniture([page.items for page in pages]))
    own_title = "" if _NO_TITLE.match(own_title) else own_title
    if _begins_with_title(items):
        title = items.pop(0).text
    elif sum(isinstance(item, Heading) and item.level == 1 for item in items) == 1:
        title = ""
    else:
        title = own_title or readable_name(source)
    return outline(items, source=source, parser_version=PARSER_VERSION, title=title)


def _begins_with_title(items: Sequence[Heading | Piece]) -> bool:
    """Two headings of the highest level in a row, first of all: the upper one is the document's title."""
    return len(items) > 1 and all(isinstance(item, Heading) and item.level == 1 for item in items[:2])


def _open(content: bytes) -> pypdfium2.PdfDocument:
    """An empty password opens files that only forbid copying or printing, as it does in every reader."""
    try:
        document = pypdfium2.PdfDocument(content)
    except pypdfium2.PdfiumError as error:
        if error.err_code in (pdfium.FPDF_ERR_PASSWORD, pdfium.FPDF_ERR_SECURITY):
            raise DocumentRejected(
                "encrypted", "The PDF file is protected by a password. Save it without one."
            ) from None
        raise DocumentRejected("corrupt", "The file is damaged, or is no PDF file.") from None
    count = len(document)
    if not 0 < count <= _MAX_PAGES:
        document.close()
        if count:
            raise DocumentRejected(
                "too_complex", f"The PDF file has {count:,} pages; at most {_MAX_PAGES:,} are allowed."
            )
        raise DocumentRejected("corrupt", "The PDF file has no pages.")
    return document


def _pages(document: pypdfium2.PdfDocument) -> Iterator[PageContent]:
    chars = 0
    for number in range(1, len(document) + 1):
        page = document[number - 1]
        content = read_page(page, number)
        page.close()
        chars += content.chars
        if chars > _MAX_CHARS:
            raise DocumentRejected(
                "too_complex", f"The PDF file has more than {_MAX_CHARS:,} characters of text."
            )
        yield content


def _check_readable(pages: Sequence[PageContent]) -> None:
    chars = sum(page.chars for page in pages)
    unreadable = sum(page.unreadable for page in pages)
    scanned = sum(page.pictured and page.chars + page.unreadable < 20 for page in pages)
    if scanned * 2 > len(pages):
        raise DocumentRejected(
            "needs_ocr",
            f"{scanned} of {len(pages)} pages are pictures without text. Run text recognition (OCR) on it.",
        )
    if unreadable > chars:
        raise DocumentRejected(
            "needs_ocr",
            "The file's fonts don't say which letters they show. Run text recognition (OCR) on it.",
        )
    if not chars:
        raise DocumentRejected("blank", "No text was found in the file.")
