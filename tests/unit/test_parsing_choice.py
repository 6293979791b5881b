"""What a file is: told by its bytes, then its name, then its media type."""

import io
import zipfile

import pytest

from gateway.errors import DocumentRejected
from gateway.ingest.parsing import Format, format_of, format_of_head, parse
from gateway.ingest.parsing.formats import choose
from gateway.ingest.reasons import DOCUMENT_REASONS

PAGE = b"\n<!-- saved -->\n<!DOCTYPE html><title>T</title><p>Hello <b>there</b></p>"
PDF = b"%PDF-1.7\n1 0 obj\n"
CFB = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)


def archive(*names: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
        for name in names:
            made.writestr(name, "x" * 200)
    return file.getvalue()


WORD = archive("[Content_Types].xml", "_rels/.rels", "word/document.xml")
EXCEL = archive("[Content_Types].xml", "_rels/.rels", "xl/workbook.xml")
SLIDES = archive("[Content_Types].xml", "ppt/presentation.xml")


def refusal(source: str, content: bytes, media_type: str = "") -> tuple[str, str]:
    with pytest.raises(DocumentRejected) as caught:
        choose(source, media_type, content)
    assert caught.value.reason in DOCUMENT_REASONS
    assert caught.value.detail.endswith(".")
    return caught.value.reason, caught.value.detail


@pytest.mark.parametrize(
    ("source", "media_type", "kind"),
    [
        ("a.md", "", Format.MARKDOWN),
        ("A.MARKDOWN", "application/octet-stream", Format.MARKDOWN),
        ("a.htm", "text/plain", Format.HTML),
        ("notes.txt", "text/csv", Format.TEXT),
        ("LICENSE", "", Format.TEXT),
        ("LICENSE", "text/markdown; charset=utf-8", Format.MARKDOWN),
        ("page", "text/html", Format.HTML),
        ("release-1.2", "", Format.TEXT),
        ("prices.csv", "", Format.CSV),
        ("prices.TSV", "text/plain", Format.CSV),
        ("export", "text/csv", Format.CSV),
        ("src/app.py", "", Format.CODE),
        ("src\\App.java", "", Format.CODE),
        ("compose.yaml", "application/octet-stream", Format.CODE),
    ],
)
def test_the_name_counts_before_the_media_type(source: str, media_type: str, kind: Format) -> None:
    """An extension decides; without one the media type does; without either it is plain text."""
    assert format_of(source, media_type) is kind
    assert choose(source, media_type, b"Some words.") is kind


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (PDF, Format.PDF),
        (b"\xef\xbb\xbf\r\n" + PDF, Format.PDF),
        (PAGE, Format.HTML),
        (WORD, Format.DOCX),
        (EXCEL, Format.XLSX),
    ],
)
@pytest.mark.parametrize(
    "source", ["a.txt", "a.md", "a.pdf", "a.docx", "a.xlsx", "a.csv", "a.xls", "unnamed"]
)
def test_the_content_counts_before_the_name(source: str, content: bytes, kind: Format) -> None:
    """Whatever a browser or a mail program called it."""
    assert choose(source, "text/plain", content) is kind


def test_a_page_named_like_text_is_read_as_a_page() -> None:
    """And a report that some program saved as .pdf or .xls, in truth a page, too."""
    for source in ("a.txt", "a.pdf", "a.xls"):
        document = parse(source, "", PAGE)
        assert (document.title, document.blocks[0].text) == ("T", "Hello there")


def test_a_template_in_a_code_file_stays_code() -> None:
    """PHP begins like a page and is none."""
    assert choose("index.php", "", b"<!DOCTYPE html>\n<?php echo 1 ?>") is Format.CODE


def test_a_line_before_the_mark_makes_no_difference_to_a_pdf() -> None:
    """Some producers write one; a text that mentions the mark is still a text."""
    assert choose("a.pdf", "", b"HTTP header\r\n\r\n" + PDF) is Format.PDF
    assert choose("a.md", "", b"A file begins with %PDF-1.7 when it is one.") is Format.MARKDOWN


@pytest.mark.parametrize("source", ["b.exe", "c.png", "d.ipynb", "e.xml", "f.zip"])
def test_a_type_that_nobody_reads_is_refused(source: str) -> None:
    """Rather than read as plain text; the message says what is accepted."""
    reason, detail = refusal(source, b"text", "text/plain")
    assert reason == "unsupported_type"
    assert "Accepted are Markdown, HTML, PDF, DOCX" in detail


@pytest.mark.parametrize(
    ("source", "content", "advice"),
    [
        ("a.doc", CFB, "Save it as .docx"),
        ("a.docx", CFB, "Save it as .docx"),
        ("a.xls", b"text", "Save it as .xlsx"),
        ("a.pptx", SLIDES, "Export it as PDF"),
        ("a.rtf", b"{\\rtf1 words}", "Save it as .docx"),
        ("a.odt", archive("mimetype"), "Save it as .docx"),
    ],
)
def test_an_old_or_other_office_file_is_refused_with_advice(source: str, content: bytes, advice: str) -> None:
    """A person can do something about it."""
    reason, detail = refusal(source, content)
    assert reason == "unsupported_type"
    assert advice in detail


def test_an_office_file_behind_a_password_is_called_encrypted() -> None:
    """It is wrapped in the old container, with a part of this name."""
    content = CFB + "EncryptedPackage".encode("utf-16-le") + bytes(100)
    assert refusal("plan.docx", content)[0] == "encrypted"


@pytest.mark.parametrize(
    ("source", "content"),
    [
        ("a.docx", archive("notes.txt")),
        ("a.xlsx", archive("notes.txt")),
        ("a.pdf", archive("notes.txt")),
        ("a.pdf", b"just words"),
        ("a.docx", b"just words"),
        ("a.pdf", b""),
        ("a.pdf", b"\x89PNG\r\n\x1a\n"),
    ],
)
def test_a_file_that_is_not_what_its_name_promises_is_corrupt(source: str, content: bytes) -> None:
    """And the message names the type that was expected."""
    reason, detail = refusal(source, content)
    assert reason == "corrupt"
    assert source[2:].upper() in detail


@pytest.mark.parametrize(
    "content",
    [
        b"\x89PNG\r\n\x1a\n text",
        b"PK\x03\x04rest",
        archive("notes.txt"),
        b"words\0words",
        b"\0" * 400,
        b"\x01\x02\x03\x04\x05" * 9,
        bytes(range(256)) * 4,
    ],
)
@pytest.mark.parametrize("source", ["a.md", "a.csv", "a.py"])
def test_binary_content_named_like_text_is_refused(source: str, content: bytes) -> None:
    """Magic numbers, zero bytes and control characters are no text."""
    with pytest.raises(DocumentRejected) as caught:
        parse(source, "", content)
    assert caught.value.reason == "not_text"


def test_the_first_bytes_tell_what_they_can() -> None:
    """For whoever has no more of the file yet."""
    assert format_of_head(PDF) is Format.PDF
    assert format_of_head(PAGE) is Format.HTML
    assert format_of_head(b"# Title") is None
    assert format_of_head(WORD[:100]) is None
