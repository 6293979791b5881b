"""Which format a file is, how its bytes become text, and what is refused with which reason."""

import pytest

from gateway.errors import DOCUMENT_REASONS, DocumentRejected
from gateway.ingest.document import BlockKind
from gateway.ingest.parsing import parse
from gateway.ingest.parsing.encoding import decode
from gateway.ingest.parsing.outline import readable_name

CHINESE = "数据库连接池耗尽时,服务会返回错误。请检查连接泄漏;必要时增大连接数。"


def rejection(source: str, content: bytes, media_type: str = "") -> str:
    with pytest.raises(DocumentRejected) as caught:
        parse(source, media_type, content)
    assert caught.value.reason in DOCUMENT_REASONS
    assert caught.value.detail.endswith(".")
    return caught.value.reason


@pytest.mark.parametrize(
    ("source", "media_type", "version"),
    [
        ("a.md", "", "markdown/1"),
        ("A.MARKDOWN", "application/octet-stream", "markdown/1"),
        ("a.htm", "text/plain", "html/1"),
        ("notes.txt", "", "text/1"),
        ("LICENSE", "", "text/1"),
        ("LICENSE", "text/markdown; charset=utf-8", "markdown/1"),
        ("page", "text/html", "html/1"),
        ("release-1.2", "", "text/1"),
    ],
)
def test_the_name_counts_before_the_media_type(source: str, media_type: str, version: str) -> None:
    """An extension decides; without one the media type does; without either it is plain text."""
    assert parse(source, media_type, b"Some words.").parser_version == version


def test_a_page_named_like_text_is_read_as_a_page() -> None:
    """Content that begins like an HTML page is one, whatever its name."""
    document = parse("a.txt", "", b"<!DOCTYPE html><title>T</title><p>Hello <b>there</b></p>")
    assert (document.title, document.blocks[0].text) == ("T", "Hello there")


@pytest.mark.parametrize("source", ["a.pdf", "b.docx", "c.csv", "d.exe", "e.json"])
def test_other_types_are_refused(source: str) -> None:
    """A type without a parser is refused rather than read as plain text."""
    assert rejection(source, b"text", "text/plain" if source == "a.pdf" else "") == "unsupported_type"


@pytest.mark.parametrize(
    "content",
    [
        b"\x89PNG\r\n\x1a\n text",
        b"%PDF-1.7 text",
        b"PK\x03\x04rest",
        b"words\0words",
        b"\x01\x02\x03\x04\x05" * 9,
    ],
)
def test_binary_content_named_like_text_is_refused(content: bytes) -> None:
    """Magic numbers, zero bytes and control characters are no text."""
    assert rejection("a.md", content) == "not_text"


@pytest.mark.parametrize(
    ("source", "content"),
    [
        ("a.txt", b""),
        ("a.txt", " \n\t\u3000\ufeff\u200b\n".encode()),
        ("a.md", b"---\ntitle: Nothing\n---\n\n<!-- a comment -->\n\n***\n"),
        ("a.md", b"# Only a title\n"),
        ("a.md", b"| name | price |\n| --- | --- |\n"),
        ("a.html", b"<html><head><title>T</title></head><body><nav>Home</nav><script>x()</script></body>"),
    ],
)
def test_a_file_without_text_is_blank(source: str, content: bytes) -> None:
    """White space, mere markup and a table with only column names are nothing to answer from."""
    assert rejection(source, content) == "blank"


@pytest.mark.parametrize("codec", ["utf-8-sig", "utf-16", "utf-32", "gb18030", "gbk"])
def test_chinese_text_is_read_in_its_usual_encodings(codec: str) -> None:
    """Byte order marks decide; GBK and GB18030 are recognised without one."""
    assert parse("说明.txt", "", CHINESE.encode(codec)).blocks[0].text == CHINESE


def test_gbk_is_recognised_in_a_mostly_english_page() -> None:
    """A few Chinese characters among ASCII are enough."""
    assert (
        decode(b"# Setup\n\n" + "重启服务".encode("gbk") + b" then retry") == "# Setup\n\n重启服务 then retry"
    )


def test_a_declared_latin_charset_is_used_for_pages() -> None:
    """ISO-8859-1 means windows-1252 on the web, as browsers read it."""
    page = "<meta charset=iso-8859-1><p>Caf\xe9 costs 5 \u20ac</p>".encode("cp1252")
    assert parse("a.html", "", page).blocks[0].text == "Café costs 5 €"


def test_a_declaration_never_beats_valid_utf8() -> None:
    """Pages often declare Latin-1 and are UTF-8."""
    page = "<meta charset='latin1'><p>Café</p>".encode()
    assert parse("a.html", "", page).blocks[0].text == "Café"


@pytest.mark.parametrize(
    ("source", "content"),
    [
        ("a.txt", "Grüße aus Köln, schöne Straße".encode("latin-1")),
        ("a.txt", "résumé".encode("latin-1")),
        ("a.txt", b"\xff\xfe\x00\xd8"),
        ("a.html", b"<meta charset=zip><p>caf\xe9</p>"),
        ("a.html", b"<meta charset=shift_jis><p>\xff\xff\xff</p>"),
    ],
)
def test_bytes_in_an_unknown_encoding_are_refused(source: str, content: bytes) -> None:
    """Better no document than one full of wrong characters."""
    assert rejection(source, content) == "undecodable"


def test_line_ends_and_control_characters_are_cleaned() -> None:
    """CRLF and CR become LF; a stray control character or byte order mark vanishes."""
    assert decode(b"a\r\nb\rc\x0cd\x07e\xef\xbb\xbff") == "a\nb\nc\ndef"
    assert decode(b"a" + b"\n \t" * 5_000 + b"\nb") == "a\n\n\nb"


@pytest.mark.parametrize(
    ("source", "title"),
    [
        ("guides/payment_service-errors.md", "Payment service errors"),
        ("docs/billing/index.html", "Billing"),
        ("README.md", "README"),
        ("release-1.2", "Release 1.2"),
        ("c:\\docs\\密码重置.txt", "密码重置"),
    ],
)
def test_a_name_becomes_a_readable_title(source: str, title: str) -> None:
    """Folder and extension go, words come apart, an index takes its folder's name."""
    assert readable_name(source) == title


def test_plain_text_keeps_its_lines_and_only_underlined_headings_count() -> None:
    """A lone short line is no heading; one over === or --- is."""
    text = "Intro line\nsecond line\n\nNot a heading\n\nLimits\n------\nMax 5.\n \n\n    code  \n"
    document = parse("a.txt", "", text.replace("\n", "\r\n").encode())
    assert document.title == "A"
    assert [(block.section, block.text) for block in document.blocks] == [
        ((), "Intro line\nsecond line"),
        ((), "Not a heading"),
        (("Limits",), "Max 5."),
        (("Limits",), "    code"),
    ]


def test_plain_text_questions_stay_with_their_answers() -> None:
    """Q/A pairs are found in English and Chinese, several in one paragraph too."""
    text = "Q: How long?\nA: Two days.\nQ2: How much?\nA2: Five euros.\n\n"
    text += "问:如何重置密码?\n\n答:点击重置。\n\nBye."
    blocks = parse("faq.txt", "", text.encode()).blocks
    assert [(block.kind, block.text) for block in blocks] == [
        (BlockKind.QA, "Q: How long?\nA: Two days."),
        (BlockKind.QA, "Q2: How much?\nA2: Five euros."),
        (BlockKind.QA, "问:如何重置密码?\n答:点击重置。"),
        (BlockKind.TEXT, "Bye."),
    ]
