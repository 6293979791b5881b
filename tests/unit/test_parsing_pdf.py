"""PDF files as reportlab writes them: structure, pages, tables, and what is refused."""

import contextlib
import zlib
from collections.abc import Callable

import pytest
from reportlab.lib.pdfencrypt import StandardEncryption
from reportlab.pdfbase.pdfmetrics import stringWidth
from reportlab.pdfgen.canvas import Canvas

from gateway.errors import DocumentRejected
from gateway.ingest.document import Block, BlockKind, ParsedDocument
from gateway.ingest.parsing.pdf import parse_pdf
from tests.unit import pdf_samples as pdf

FILLER = "The service keeps every record of a transfer until an auditor has seen it. " * 6


def read(content: bytes) -> ParsedDocument:
    return parse_pdf(content, "manual.pdf")


def refusal(content: bytes) -> str:
    with pytest.raises(DocumentRejected) as caught:
        read(content)
    assert caught.value.detail.endswith(".")
    return caught.value.reason


def tables(document: ParsedDocument) -> list[Block]:
    return [block for block in document.blocks if block.kind is BlockKind.TABLE]


def all_text(document: ParsedDocument) -> str:
    return "\n".join(block.text for block in document.blocks)


def test_headings_become_breadcrumbs_and_blocks_know_their_page() -> None:
    """The levels come from the letters' sizes; the one largest heading is the title."""
    content = pdf.flowing(
        pdf.heading("Payments"),
        pdf.prose(FILLER),
        pdf.heading("Refunds", 2),
        pdf.prose("Refunds take two days. " + FILLER),
        pdf.page_break(),
        pdf.heading("Limits", 2),
        pdf.heading("Daily", 3),
        pdf.prose("At most 500 a day. " + FILLER),
    )
    document = read(content)
    assert document.title == "Payments"
    assert [(block.section, block.page) for block in document.blocks] == [
        ((), 1),
        (("Refunds",), 1),
        (("Limits", "Daily"), 2),
    ]
    assert document.blocks[1].text.startswith("Refunds take two days. The service keeps")


LONG = "What a member of the library has to know about its rules before the first book is borrowed"


@pytest.mark.parametrize("level", [0, 1])
def test_headings_of_one_size_that_stand_apart_are_two(level: int) -> None:
    """A title and a heading below it, without an empty line between; each of them may be wrapped."""
    content = pdf.flowing(
        pdf.heading(LONG, level),
        pdf.heading("Alarm"),
        pdf.prose(FILLER),
        pdf.heading(LONG, 2),
        pdf.prose(FILLER),
    )
    document = read(content)
    assert document.title == LONG
    assert [block.section for block in document.blocks] == [("Alarm",), ("Alarm", LONG)]


def test_a_heading_that_begins_with_its_number_stands_for_itself() -> None:
    """However near it is below the last line of the one before."""

    def draw(canvas: Canvas) -> None:
        canvas.setFont("Helvetica-Bold", 16)
        for at, text in enumerate(["Limits of transfers and the", "fees of a bank", "2.1 Daily limits"]):
            canvas.drawString(72, 780 - 19 * at, text)
        pdf.lines(canvas, ["At most 500 a day, and that is", "all there is to say of them."] * 3, y=700)

    document = read(pdf.drawn(draw))
    assert document.title == "Limits of transfers and the fees of a bank"
    assert [block.section for block in document.blocks] == [("2.1 Daily limits",)]


def test_running_headers_footers_and_page_numbers_are_left_out() -> None:
    """They stand on most pages at the same height, digits aside."""

    def decorate(canvas: Canvas, page: int) -> None:
        canvas.setFont("Helvetica", 8)
        canvas.drawString(72, 815, f"ACME internal - sheet {page}")
        canvas.drawString(280, 30, f"Page {page} of 3")

    texts = ["First things. ", "Second things. ", "Third things. "]
    parts = [part for text in texts for part in (pdf.prose(text + FILLER), pdf.page_break())]
    text = all_text(read(pdf.flowing(*parts[:-1], decorate=decorate)))
    assert "ACME" not in text
    assert "Page" not in text
    assert all(begin in text for begin in texts)


def test_a_running_header_that_names_the_chapter_is_left_out_by_its_page_number() -> None:
    """Its text changes; the number beside it goes along with the pages."""
    chapters = ["Basics", "Basics", "Transfers", "Transfers", "Limits"]

    def page_of(number: int, chapter: str) -> Callable[[Canvas], None]:
        def draw(canvas: Canvas) -> None:
            pdf.lines(canvas, [f"Chapter {chapter} {number + 12}"], y=810)
            pdf.lines(canvas, [f"Words about {chapter.lower()}, part {number}.", "In 2019 there were 7"])

        return draw

    blocks = read(pdf.drawn(*(page_of(n, chapter) for n, chapter in enumerate(chapters)))).blocks
    assert not any("Chapter" in block.text for block in blocks)
    assert sum("Words about" in block.text for block in blocks) == 5


def test_contents_are_left_out() -> None:
    """What they list comes again where it stands."""
    contents = [
        "1 Basics . . . . . . . . 1",
        "2 Limits ............... 14",
        "Ends with dots and a number... 3 times.",
    ]
    blocks = read(pdf.drawn(lambda canvas: pdf.lines(canvas, contents))).blocks
    assert [block.text for block in blocks] == ["Ends with dots and a number... 3 times."]


def test_a_sentence_that_a_page_break_cuts_is_whole() -> None:
    """It belongs to the page on which it begins."""
    content = pdf.drawn(
        lambda canvas: pdf.lines(canvas, ["Unused days expire at the end of the"]),
        lambda canvas: pdf.lines(canvas, ["following year.", "", "Next paragraph."]),
    )
    assert [(block.text, block.page) for block in read(content).blocks] == [
        ("Unused days expire at the end of the following year.", 1),
        ("Next paragraph.", 2),
    ]


def test_words_that_a_line_end_cuts_are_whole() -> None:
    """A hyphen stays where the document writes the word with one elsewhere."""
    content = pdf.drawn(
        lambda canvas: pdf.lines(
            canvas,
            [
                "The transfer needs an authori-",
                "sation by the owner of a well-",
                "known account and not of any",
                "account; well-known ones are listed.",
            ],
        )
    )
    assert read(content).blocks[0].text == (
        "The transfer needs an authorisation by the owner of a well-known account and not of any"
        " account; well-known ones are listed."
    )


def test_a_table_over_a_page_break_keeps_its_column_names() -> None:
    """Each page's rows are a table of their own with their page, whether the head is repeated or not."""
    rows = [["Code", "Meaning"], *([f"E{n}", f"Reason number {n}"] for n in range(60))]
    for repeated in (0, 1):
        found = tables(read(pdf.flowing(pdf.prose(FILLER), pdf.table(rows, repeat_rows=repeated))))
        assert [table.page for table in found] == [1, 2]
        assert {table.columns for table in found} == {("Code", "Meaning")}
        assert [list(row) for table in found for row in table.rows] == rows[1:]


def test_joined_cells_are_resolved() -> None:
    """A cell over several rows is repeated in each; a name over several columns is part of each name."""
    rows = [
        ["Region", "Fees", ""],
        ["", "Card", "Cash"],
        ["North", "1 %", "free"],
        ["", "2 %", "1 EUR"],
        ["South", "3 %", "2 EUR"],
    ]
    spans = [("SPAN", (0, 0), (0, 1)), ("SPAN", (1, 0), (2, 0)), ("SPAN", (0, 2), (0, 3))]
    [table] = tables(read(pdf.flowing(pdf.table(rows, *spans))))
    assert table.columns == ("Region", "Fees Card", "Fees Cash")
    assert table.rows == (("North", "1 %", "free"), ("North", "2 %", "1 EUR"), ("South", "3 %", "2 EUR"))


def test_a_table_without_lines_is_found_by_its_columns() -> None:
    """Words that stand under each other with gaps between are cells."""
    rows = [
        ["Plan", "Price", "Support"],
        ["Basic", "10 EUR", "mail"],
        ["Pro", "20 EUR", "chat"],
        ["Max", "90 EUR", "all"],
    ]
    rows.append(["A plan with a long name", "5 EUR", "none"])
    width = stringWidth(rows[-1][0], "Helvetica", 10) + 8  # so that one gap is hardly wider than a space
    [table] = tables(
        read(pdf.flowing(pdf.prose(FILLER), pdf.table(rows, ruled=False, colWidths=[width, 120, 120])))
    )
    assert table.columns == ("Plan", "Price", "Support")
    assert table.rows[1] == ("Pro", "20 EUR", "chat")
    assert table.rows[3] == ("A plan with a long name", "5 EUR", "none")


def test_columns_of_text_are_read_one_after_the_other() -> None:
    """The left column comes first, and what stands across both before them."""
    left = [pdf.prose(f"Left part {n}. " + FILLER) for n in range(4)]
    right = [pdf.prose(f"Right part {n}. " + FILLER) for n in range(4)]
    document = read(pdf.two_columns(*left, *right))
    text = all_text(document)
    order = [text.index(f"{side} part {n}.") for side in ("Left", "Right") for n in range(4)]
    assert order == sorted(order)
    assert document.title == "A report that has a headline across both of its columns"
    assert FILLER.strip() in text


def test_lists_keep_their_items_and_code_its_lines() -> None:
    """Bullets of any form are a dash; typewriter letters are code, with the indentation of the page."""

    def draw(canvas: Canvas) -> None:
        pdf.lines(canvas, ["Steps for everybody who wants to take part in it:"])
        pdf.lines(
            canvas, ["\u2022 Ask first, because nobody", "  may go alone", "\u2022 Then go"], y=740, x=90
        )
        pdf.lines(canvas, ["1. One", "2. Two"], y=680)
        pdf.lines(canvas, ["def leave(days):", "    return days > 3", "leave(2)"], y=620, font="Courier")

    blocks = read(pdf.drawn(draw)).blocks
    assert [(block.kind, block.text) for block in blocks[1:]] == [
        (BlockKind.LIST, "- Ask first, because nobody may go alone\n- Then go"),
        (BlockKind.LIST, "1. One\n2. Two"),
        (BlockKind.CODE, "```\ndef leave(days):\n    return days > 3\nleave(2)\n```"),
    ]


def test_bullets_that_are_drawn_are_bullets() -> None:
    """Browsers draw them as shapes."""

    def draw(canvas: Canvas) -> None:
        pdf.lines(canvas, ["Ask first", "Then go"], x=90)
        for y in (760, 746):
            canvas.circle(82, y + 4, 2, stroke=0, fill=1)

    assert [(block.kind, block.text) for block in read(pdf.drawn(draw)).blocks] == [
        (BlockKind.LIST, "- Ask first\n- Then go")
    ]


def test_questions_stay_with_their_answers() -> None:
    """A heading that asks, and a pair of Q and A lines."""
    content = pdf.flowing(
        pdf.heading("FAQ"),
        pdf.heading("How do I reset my password?", 2),
        pdf.prose("Choose Forgot password on the login page."),
        pdf.heading("Others", 2),
        pdf.prose("Q: How long does it take?"),
        pdf.prose("A: Two days."),
    )
    pairs = [block.text for block in read(content).blocks if block.kind is BlockKind.QA]
    assert pairs == [
        "How do I reset my password?\nChoose Forgot password on the login page.",
        "Q: How long does it take?\nA: Two days.",
    ]


def test_chinese_text_has_no_stray_spaces() -> None:
    """Neither at line ends nor where characters are set apart."""

    def draw(canvas: Canvas) -> None:
        font = pdf.chinese_font()
        pdf.lines(
            canvas, ["员工可以在系统中提交申请，由经理在三个工作日内", "审批，审批后会收到通知。"], font=font
        )
        canvas.drawString(72, 680, "通 知 事 项 如 下")

    texts = [block.text for block in read(pdf.drawn(draw)).blocks]
    assert texts == ["员工可以在系统中提交申请，由经理在三个工作日内审批，审批后会收到通知。", "通知事项如下"]


def test_a_page_on_its_side_is_read_and_a_watermark_is_not() -> None:
    """Most of a page's text says which way up it is."""

    def sideways(canvas: Canvas) -> None:
        canvas.saveState()
        canvas.rotate(90)
        pdf.lines(canvas, ["This page lies on its side", "and has two lines."], y=-100)
        canvas.restoreState()
        canvas.saveState()
        canvas.translate(300, 400)
        canvas.rotate(45)
        canvas.drawString(0, 0, "DRAFT")
        canvas.restoreState()

    assert all_text(read(pdf.drawn(sideways))) == "This page lies on its side and has two lines."


def test_the_title_is_the_files_own_only_if_somebody_gave_it_one() -> None:
    """What programs write there by themselves is no title."""
    assert read(pdf.flowing(pdf.prose(FILLER), title="Travel rules")).title == "Travel rules"
    for title in ("untitled", "Microsoft Word - x", "rules_final.docx"):
        assert read(pdf.flowing(pdf.prose(FILLER), title=title)).title == "Manual"


def test_a_file_under_a_password_is_refused_and_one_that_forbids_printing_is_not() -> None:
    """The second opens with an empty password in every reader."""
    assert refusal(pdf.flowing(pdf.prose(FILLER), password="secret")) == "encrypted"
    locked = StandardEncryption("", ownerPassword="owner", canPrint=0, canCopy=0)
    assert (
        all_text(read(pdf.drawn(lambda canvas: pdf.lines(canvas, ["Read me."]), encrypt=locked)))
        == "Read me."
    )


def test_scans_need_text_recognition() -> None:
    """Also when a cover sheet has text; a picture beside text is fine."""
    assert refusal(pdf.drawn(pdf.picture, pdf.picture)) == "needs_ocr"
    cover = pdf.drawn(lambda canvas: pdf.lines(canvas, ["Cover"]), pdf.picture, pdf.picture)
    assert refusal(cover) == "needs_ocr"

    def both(canvas: Canvas) -> None:
        pdf.picture(canvas)
        pdf.lines(canvas, ["Text over a picture, as recognition leaves it."])

    assert all_text(read(pdf.drawn(both))) == "Text over a picture, as recognition leaves it."


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (lambda: b"%PDF-1.7\nno more", "corrupt"),
        (lambda: b"", "corrupt"),
        (lambda: pdf.drawn(lambda canvas: None), "blank"),
        (lambda: pdf.drawn(*[lambda canvas: None] * 3_001), "too_complex"),
    ],
    ids=["corrupt", "empty", "blank", "pages"],
)
def test_what_cannot_be_read_is_refused_with_its_reason(made: Callable[[], bytes], reason: str) -> None:
    """Damage, nothing at all, empty pages, too many pages."""
    assert refusal(made()) == reason


def test_a_file_cut_short_is_refused_or_read_as_far_as_it_goes() -> None:
    """Never anything else, wherever it is cut."""
    content = pdf.flowing(pdf.heading("Payments"), *[pdf.prose(FILLER)] * 3)
    for at in range(0, len(content), len(content) // 40):
        with contextlib.suppress(DocumentRejected):
            text = all_text(read(content[:at]))
            assert set(text) <= {*FILLER, "\n"}


def test_a_page_with_too_many_characters_is_refused() -> None:
    """Its size says nothing: a page's text is compressed."""
    stream = zlib.compress(b"BT /F1 9 Tf " + b"(aaaa aaaa aaaa aaaa aaaa) Tj " * 20_000 + b" ET")
    assert refusal(minimal(stream)) == "too_complex"


def test_a_page_with_very_many_lines_is_read_without_its_tables() -> None:
    """A drawing isn't searched for cells."""
    drawing = b"".join(b"%d 0 m %d 800 l S " % (n % 600, n % 600) for n in range(20_000))
    text = b"BT /F1 12 Tf 72 700 Td (Words in a drawing) Tj ET "
    assert all_text(read(minimal(zlib.compress(text + drawing)))) == "Words in a drawing"


def minimal(stream: bytes) -> bytes:
    """One page with this compressed content."""
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>",
        b"<</Length %d/Filter/FlateDecode>>stream\n%s\nendstream" % (len(stream), stream),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    out = b"%PDF-1.7\n"
    places = []
    for number, body in enumerate(objects, start=1):
        places.append(len(out))
        out += b"%d 0 obj%s endobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    size = len(objects) + 1
    out += b"xref\n0 %d\n0000000000 65535 f \n%s" % (size, table)
    return out + b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (size, out.rindex(b"xref\n0"))
