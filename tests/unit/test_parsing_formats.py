"""How a file's bytes become text, what is refused with which reason, and plain text itself."""

import pytest

from gateway.errors import DocumentRejected
from gateway.ingest.document import BlockKind
from gateway.ingest.parsing import parse
from gateway.ingest.parsing.encoding import decode
from gateway.ingest.parsing.outline import readable_name
from gateway.ingest.reasons import DOCUMENT_REASONS

CHINESE = "数据库连接池耗尽时,服务会返回错误。请检查连接泄漏;必要时增大连接数。"


def rejection(source: str, content: bytes, media_type: str = "") -> str:
    with pytest.raises(DocumentRejected) as caught:
        parse(source, media_type, content)
    assert caught.value.reason in DOCUMENT_REASONS
    assert caught.value.detail.endswith(".")
    return caught.value.reason


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
    ("codec", "text"),
    [
        ("gb18030", "重启服务"),
        ("big5", "資料庫連線池耗盡時，服務會傳回錯誤。請檢查連線是否洩漏，必要時增加連線數。"),
        ("big5", "重設密碼"),
        ("cp932", "データベースの接続プールが枯渇すると、サービスはエラーを返します。"),
        ("euc_jp", "データベースの接続プールが枯渇すると、サービスはエラーを返します。"),
        ("cp949", "데이터베이스 연결 풀이 고갈되면 서비스는 오류를 반환합니다."),
        ("cp1252", "Grüße aus Köln, schöne Straße"),
        ("cp1252", "L’été à la plage, ça coûte 5 €"),
        ("cp1252", "El niño está aquí. ¿Qué pasó?"),
        ("utf-16-le", "Hello, world and more"),
        ("utf-16-be", "Hello, world and more"),
        ("utf-16-le", "服务会返回错误。\n请检查连接 a"),
        ("utf-16-be", "服务会返回错误。\n请检查连接 a"),
    ],
)
@pytest.mark.parametrize("before", ["", "# Setup and some words around it\n\n"])
def test_an_undeclared_encoding_is_found_where_it_is_clear(codec: str, text: str, before: str) -> None:
    """By the characters that a language can't do without; alone and inside an English page."""
    assert decode((before + text).encode(codec)) == before + text


@pytest.mark.parametrize(
    ("source", "content"),
    [
        ("a.txt", "Příliš žluťoučký kůň úpěl ďábelské ódy".encode("cp1250")),
        ("a.txt", "Zażółć gęślą jaźń".encode("cp1250")),
        ("a.txt", "Dobrý den, příliš nízká cena, děkujeme za nákup".encode("cp1250")),
        ("a.txt", "Note: hasło umowa resetowanie".encode("cp1250")),
        ("a.txt", "Note: 품질 설정".encode("cp949")),
        ("a.txt", "Note: の設定連絡".encode("euc_jp")),
        ("a.txt", "Съешь же ещё этих мягких французских булок".encode("cp1251")),
        ("a.txt", "Съешь же ещё этих мягких французских булок".encode("koi8-r")),
        ("a.csv", "Имя,Отдел\nИван,Финансы\n".encode("cp1251")),
        ("a.txt", b"\xff\xfe\x00\xd8"),
        ("a.html", "<meta charset=zip><p>Příliš žluťoučký</p>".encode("cp1250")),
        ("a.html", b"<meta charset=shift_jis><p>\xff\xff\xff</p>"),
    ],
)
def test_bytes_in_an_unknown_encoding_are_refused(source: str, content: bytes) -> None:
    """Better no document than one full of wrong characters."""
    assert rejection(source, content) == "undecodable"


def test_two_byte_orders_in_one_file_are_refused() -> None:
    """Half of it would be nonsense."""
    text = "Hello, world and more. " * 20
    assert rejection("a.txt", text.encode("utf-16-le") + text.encode("utf-16-be")) == "not_text"


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
