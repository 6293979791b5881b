"""DOCX files as python-docx and Word write them: structure, tables, what is left out, and what is refused."""

import io
import re
import zipfile
from typing import Any

import docx
import pytest
from docx.oxml import OxmlElement, parse_xml
from docx.oxml.ns import nsdecls

from gateway.errors import DocumentRejected
from gateway.ingest.document import Block, BlockKind, ParsedDocument
from gateway.ingest.parsing.docx import parse_docx
from tests.unit.office_samples import changed, encrypted, lying_about_size, replaced, saved

MAIN = "word/document.xml"


def read(document: Any) -> ParsedDocument:
    content = document if isinstance(document, bytes) else saved(document)
    return parse_docx(content, "rules.docx")


def refusal(content: bytes) -> str:
    with pytest.raises(DocumentRejected) as caught:
        read(content)
    assert caught.value.detail.endswith(".")
    return caught.value.reason


def simple() -> bytes:
    document = docx.Document()
    document.add_paragraph("Hello there.")
    return saved(document)


def table_of(document: Any, rows: list[list[str]]) -> Any:
    table = document.add_table(rows=len(rows), cols=len(rows[0]))
    for at, row in enumerate(rows):
        for column, text in enumerate(row):
            table.cell(at, column).text = text
    return table


def tables(document: ParsedDocument) -> list[Block]:
    return [block for block in document.blocks if block.kind is BlockKind.TABLE]


def with_xml(document: Any, xml: str) -> None:
    """Adds a paragraph given as XML."""
    document.element.body.insert(-1, parse_xml(xml.replace("<w:p>", f"<w:p {nsdecls('w')}>", 1)))


def test_headings_lists_and_paragraphs_keep_their_structure() -> None:
    """The paragraph styled as title is the title; lists carry their bullets and numbers."""
    document = docx.Document()
    document.add_heading("Travel rules", 0)
    document.add_heading("Booking", 1)
    paragraph = document.add_paragraph("Book ")
    paragraph.add_run("early").bold = True
    paragraph.add_run(" and cheap.")
    document.add_heading("Steps", 2)
    for text, style in (
        ("Ask", "List Bullet"),
        ("Your manager", "List Bullet 2"),
        ("Book", "List Bullet"),
        ("One", "List Number"),
        ("Two", "List Number"),
    ):
        document.add_paragraph(text, style=style)
    parsed = read(document)
    assert parsed.title == "Travel rules"
    assert [(block.kind, block.section, block.text) for block in parsed.blocks] == [
        (BlockKind.TEXT, ("Booking",), "Book early and cheap."),
        (BlockKind.LIST, ("Booking", "Steps"), "- Ask\n- Your manager\n- Book\n1. One\n2. Two"),
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('w:name w:val="heading 2"', 'w:name w:val="heading 2"'),
        ('w:name w:val="heading 2"', 'w:name w:val="Überschrift 2"'),
        ('w:name w:val="heading 2"', 'w:name w:val="标题 2"'),
        ('w:name w:val="heading 2"', 'w:name w:val="Kapitel"'),
    ],
    ids=["built in", "German", "Chinese", "by outline level"],
)
def test_headings_are_known_in_any_language(old: str, new: str) -> None:
    """By the built-in name, a translated one, or the outline level of the style."""
    document = docx.Document()
    document.add_heading("Main", 1)
    document.add_heading("Part", 2)
    document.add_paragraph("Text.")
    content = changed(saved(document), {"word/styles.xml": replaced(old, new)})
    if new != 'w:name w:val="Kapitel"':  # the name alone must do
        content = changed(
            content, {"word/styles.xml": lambda part: re.sub(rb"<w:outlineLvl[^>]*>", b"", part)}
        )
    assert [block.section for block in read(content).blocks] == [("Part",)]


def test_an_outline_level_on_a_paragraph_makes_it_a_heading() -> None:
    """As where an author has set it by hand, without a style."""
    document = docx.Document()
    with_xml(document, '<w:p><w:pPr><w:outlineLvl w:val="0"/></w:pPr><w:r><w:t>Scope</w:t></w:r></w:p>')
    document.add_paragraph("All staff.")
    parsed = read(document)
    assert (parsed.title, parsed.blocks[0].text) == ("Scope", "All staff.")


def test_short_bold_lines_are_headings_where_there_are_no_others() -> None:
    """In a document without styles they are what its author meant as such."""
    document = docx.Document()
    for bold, text in ((True, "Scope"), (False, "All staff."), (True, "Not this one."), (False, "More.")):
        document.add_paragraph().add_run(text).bold = bold
    assert [(block.section, block.text) for block in read(document).blocks] == [
        (("Scope",), "All staff."),
        (("Scope",), "Not this one."),
        (("Scope",), "More."),
    ]


def test_numbers_that_word_makes_are_part_of_the_text() -> None:
    """Numbered headings are found by their numbers, and lists count as they do in Word."""
    document = docx.Document()
    root = document.part.numbering_part.element
    root.insert(
        0,
        parse_xml(
            f'<w:abstractNum {nsdecls("w")} w:abstractNumId="90"><w:lvl w:ilvl="0"><w:start w:val="1"/>'
            '<w:numFmt w:val="decimal"/><w:lvlText w:val="%1."/></w:lvl>'
            '<w:lvl w:ilvl="1"><w:start w:val="1"/>'
            '<w:numFmt w:val="lowerLetter"/><w:lvlText w:val="%1.%2)"/></w:lvl></w:abstractNum>'
        ),
    )
    root.append(parse_xml(f'<w:num {nsdecls("w")} w:numId="91"><w:abstractNumId w:val="90"/></w:num>'))
    for level, text in ((0, "First"), (1, "Inner"), (1, "Inner again"), (0, "Second"), (1, "Anew")):
        with_xml(
            document,
            f'<w:p><w:pPr><w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="91"/></w:numPr></w:pPr>'
            f"<w:r><w:t>{text}</w:t></w:r></w:p>",
        )
    [block] = read(document).blocks
    assert block.text == "1. First\n  1.a) Inner\n  1.b) Inner again\n2. Second\n  2.a) Anew"


def test_tables_keep_their_column_names_and_joined_cells() -> None:
    """A cell over several rows is repeated in each."""
    document = docx.Document()
    table = table_of(
        document, [["City", "Hotel", "Meals"], ["Berlin", "120", "40"], ["", "90", "30"], ["Rome", "1", "2"]]
    )
    table.cell(1, 0).merge(table.cell(2, 0))
    [block] = tables(read(document))
    assert block.columns == ("City", "Hotel", "Meals")
    assert block.rows == (("Berlin", "120", "40"), ("Berlin", "90", "30"), ("Rome", "1", "2"))


def test_two_head_rows_make_one_name_a_column() -> None:
    """Rows that Word repeats on each page are the head; a name over several columns is part of each."""
    document = docx.Document()
    table = table_of(document, [["Item", "Fees", ""], ["", "Card", "Cash"], ["A", "1", "2"]])
    table.cell(0, 1).merge(table.cell(0, 2))
    table.cell(0, 0).merge(table.cell(1, 0))
    for row in table.rows[:2]:
        row._tr.get_or_add_trPr().append(OxmlElement("w:tblHeader"))
    [block] = tables(read(document))
    assert (block.columns, block.rows) == (("Item", "Fees Card", "Fees Cash"), (("A", "1", "2"),))


def test_a_table_of_one_column_only_lays_out() -> None:
    """Its content is read as if the frame weren't there."""
    document = docx.Document()
    cell = document.add_table(rows=1, cols=1).cell(0, 0)
    cell.text = "Note"
    cell.add_paragraph("Inside", style="List Bullet")
    assert [(block.kind, block.text) for block in read(document).blocks] == [
        (BlockKind.TEXT, "Note"),
        (BlockKind.LIST, "- Inside"),
    ]


def test_questions_stay_with_their_answers() -> None:
    """In English and Chinese, under headings and in paragraphs."""
    document = docx.Document()
    document.add_heading("FAQ", 1)
    document.add_heading("Can I fly business?", 2)
    document.add_paragraph("Only over six hours.")
    document.add_heading("其他", 2)
    document.add_paragraph("问：如何报销？")
    document.add_paragraph("答：在系统中提交。")
    assert [block.text for block in read(document).blocks if block.kind is BlockKind.QA] == [
        "Can I fly business?\nOnly over six hours.",
        "问：如何报销？\n答：在系统中提交。",
    ]


def test_code_keeps_its_lines() -> None:
    """Paragraphs in a typewriter font follow each other in one block."""
    document = docx.Document()
    for text in ("def f():", "    return 1"):
        document.add_paragraph().add_run(text).font.name = "Courier New"
    assert read(document).blocks[0].text == "```\ndef f():\n    return 1\n```"


def test_deletions_headers_and_contents_are_left_out() -> None:
    """A document is read as if its changes were accepted; what runs along each page says nothing."""
    document = docx.Document()
    document.sections[0].header.paragraphs[0].text = "CONFIDENTIAL"
    document.sections[0].footer.paragraphs[0].text = "Page 1"
    with_xml(
        document,
        "<w:p><w:r><w:t>Limit: </w:t></w:r><w:del><w:r><w:delText>100</w:delText></w:r></w:del>"
        '<w:ins><w:r><w:t xml:space="preserve">200 EUR</w:t></w:r></w:ins>'
        "<w:moveFrom><w:r><w:t> moved</w:t></w:r></w:moveFrom>"
        "<w:r><w:rPr><w:vanish/></w:rPr><w:t> hidden</w:t></w:r>"
        "<w:r><w:instrText>PAGE</w:instrText></w:r></w:p>",
    )
    document.styles.add_style("toc 1", 1)
    document.add_paragraph("Limits 3", style="toc 1")
    table = table_of(document, [["a", "b"], ["c", "d"], ["gone", "gone"]])
    table.rows[2]._tr.get_or_add_trPr().append(OxmlElement("w:del"))
    parsed = read(document)
    assert parsed.blocks[0].text == "Limit: 200 EUR"
    assert tables(parsed)[0].rows == (("c", "d"),)
    assert len(parsed.blocks) == 2


def test_footnotes_stand_where_they_are_referred_to() -> None:
    """In square brackets behind the word."""
    document = docx.Document()
    with_xml(
        document,
        '<w:p><w:r><w:t>Two days</w:t></w:r><w:r><w:footnoteReference w:id="2"/></w:r>'
        "<w:r><w:t>.</w:t></w:r></w:p>",
    )
    relation = (
        '<Relationship Id="rId99" Target="footnotes.xml" Type="http://schemas.openxmlformats.org/'
        'officeDocument/2006/relationships/footnotes"/></Relationships>'
    )
    notes = (
        f'<w:footnotes {nsdecls("w")}><w:footnote w:type="separator" w:id="0"><w:p><w:r><w:t>-</w:t></w:r>'
        '</w:p></w:footnote><w:footnote w:id="2"><w:p><w:r><w:t>Working days</w:t></w:r></w:p></w:footnote>'
        "</w:footnotes>"
    )
    content = changed(
        saved(document),
        {"word/_rels/document.xml.rels": replaced("</Relationships>", relation)},
        {"word/footnotes.xml": notes.encode()},
    )
    assert read(content).blocks[0].text == "Two days [Working days]."


def test_text_boxes_are_read_once() -> None:
    """Word writes them twice, for itself and for older programs."""
    box = "<w:txbxContent><w:p><w:r><w:t>In a box</w:t></w:r></w:p></w:txbxContent>"
    document = docx.Document()
    with_xml(
        document,
        "<w:p><w:r><w:t>Before.</w:t></w:r><w:r><mc:AlternateContent "
        'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006">'
        f"<mc:Choice><w:drawing>{box}</w:drawing></mc:Choice><mc:Fallback><w:pict>{box}</w:pict></mc:Fallback>"
        "</mc:AlternateContent></w:r></w:p>",
    )
    assert [block.text for block in read(document).blocks] == ["Before.", "In a box"]


def test_a_file_with_macros_is_read_like_any_other() -> None:
    """Nothing in it is ever run."""
    macros = "application/vnd.ms-word.document.macroEnabled.main+xml"
    plain = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    content = changed(
        simple(), {"[Content_Types].xml": replaced(plain, macros)}, {"word/vbaProject.bin": b"\0"}
    )
    assert read(content).blocks[0].text == "Hello there."


def test_the_title_is_the_files_own_where_no_heading_is_one() -> None:
    """Several headings of the first level are chapters."""
    document = docx.Document()
    for name in ("One", "Two"):
        document.add_heading(name, 1)
        document.add_paragraph("Text.")
    document.core_properties.title = "Handbook"
    parsed = read(document)
    assert parsed.title == "Handbook"
    assert [block.section for block in parsed.blocks] == [("One",), ("Two",)]
    document.core_properties.title = "Word Document"
    assert read(document).title == "Rules"


DOCTYPE = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>'


def with_doctype(part: bytes) -> bytes:
    head, end, rest = part.partition(b"?>")
    return head + end + DOCTYPE.encode() + rest


def with_doctype_in_utf16(part: bytes) -> bytes:
    return part.decode().replace("?>", f"?>{DOCTYPE}", 1).replace("UTF-8", "UTF-16", 1).encode("utf-16")


def with_entities_in_a_part_named(ending: str) -> bytes:
    part = MAIN.replace(".xml", ending)
    parts = {"_rels/.rels": replaced(MAIN, part)}
    with zipfile.ZipFile(io.BytesIO(simple())) as package:
        return changed(simple(), parts, {part: with_doctype(package.read(MAIN))})


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"PK\x03\x04 no archive", "corrupt"),
        (simple()[:-200], "corrupt"),
        (changed(simple(), {MAIN: lambda part: part[:-30]}), "corrupt"),
        (changed(simple(), {"_rels/.rels": replaced("officeDocument", "somethingElse")}), "corrupt"),
        (changed(simple(), {MAIN: replaced("w:body", "w:other")}), "corrupt"),
        (encrypted(), "encrypted"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(1000), "unsupported_type"),
        (saved(docx.Document()), "blank"),
        (changed(simple(), {}, {"word/media/zeros.bin": bytes(30_000_000)}), "bomb"),
        (changed(simple(), {}, {f"word/media/{n}": b"" for n in range(10_001)}), "bomb"),
        (changed(simple(), {MAIN: with_doctype}), "bomb"),
        (changed(simple(), {MAIN: with_doctype_in_utf16}), "bomb"),
        (with_entities_in_a_part_named(".dat"), "bomb"),
        (lying_about_size(simple(), MAIN, 100), "corrupt"),
    ],
    ids=[
        "no archive",
        "cut",
        "broken XML",
        "no main part",
        "no body",
        "encrypted",
        "old",
        "blank",
        "inflates",
        "entries",
        "entities",
        "entities in UTF-16",
        "entities in a part of any name",
        "a wrong size",
    ],
)
def test_what_cannot_be_read_is_refused_with_its_reason(content: bytes, reason: str) -> None:
    """Before a parser of XML sees it, where it is built to do harm."""
    assert refusal(content) == reason


def test_a_flipped_byte_is_damage() -> None:
    """The archive's checksums tell."""
    content = bytearray(simple())
    with zipfile.ZipFile(io.BytesIO(content)) as package:
        place = package.getinfo(MAIN).header_offset + 30 + len(MAIN)
        middle = place + package.getinfo(MAIN).compress_size // 2
    content[middle] ^= 0xFF
    assert refusal(bytes(content)) == "corrupt"


def test_deep_nesting_neither_hurts_nor_hides_text() -> None:
    """Tables inside tables, and content controls inside each other, beyond any that people make."""
    document = docx.Document()
    opening = "<w:tbl><w:tr><w:tc>" * 900
    closing = "<w:p/></w:tc></w:tr></w:tbl>" * 900
    xml = f"{opening}<w:p><w:r><w:t>Deep</w:t></w:r></w:p>{closing}<w:p><w:r><w:t>After.</w:t></w:r></w:p>"
    content = changed(saved(document), {MAIN: replaced("<w:sectPr", f"{xml}<w:sectPr")})
    assert [block.text for block in read(content).blocks] == ["Deep", "After."]
