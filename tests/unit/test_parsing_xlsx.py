"""XLSX files as openpyxl writes them: tables, what a person sees in a cell, and what is refused."""

import datetime
import io
from typing import Any

import openpyxl
import pytest
from openpyxl.styles import Font

from gateway.errors import DocumentRejected
from gateway.ingest.document import Block, BlockKind, ParsedDocument
from gateway.ingest.parsing.xlsx import parse_xlsx
from gateway.ingest.parsing.xlsx.number import shown
from gateway.ingest.parsing.xlsx.sheet import read_sheet
from gateway.ingest.parsing.xlsx.workbook import Workbook
from tests.unit.office_samples import changed, encrypted, replaced, saved

SHEET = "xl/worksheets/sheet1.xml"


def read(workbook: Any) -> ParsedDocument:
    content = workbook if isinstance(workbook, bytes) else saved(workbook)
    return parse_xlsx(content, "price_list.xlsx")


def workbook_of(*rows: list[Any], name: str = "Prices") -> Any:
    workbook = openpyxl.Workbook()
    workbook.active.title = name
    for row in rows:
        workbook.active.append(row)
    return workbook


def refusal(content: bytes) -> str:
    with pytest.raises(DocumentRejected) as caught:
        read(content)
    assert caught.value.detail.endswith(".")
    return caught.value.reason


def tables(document: ParsedDocument) -> list[Block]:
    return [block for block in document.blocks if block.kind is BlockKind.TABLE]


def test_each_sheet_is_a_section_with_its_table() -> None:
    """The title comes from the file's name; hidden sheets are left out."""
    workbook = workbook_of(["Plan", "Price"], ["Basic", 10], ["Pro", 20.5])
    workbook.create_sheet("Staff").append(["Name", "Room"])
    workbook["Staff"].append(["Ann", "B 12"])
    for state in ("hidden", "veryHidden"):
        workbook.create_sheet(state).append(["Secret", "Salary"])
        workbook[state].sheet_state = state
    document = read(workbook)
    assert document.title == "Price list"
    assert [(block.section, block.columns, block.rows) for block in document.blocks] == [
        (("Prices",), ("Plan", "Price"), (("Basic", "10"), ("Pro", "20.5"))),
        (("Staff",), ("Name", "Room"), (("Ann", "B 12"),)),
    ]


def test_a_single_sheet_that_nobody_has_named_is_no_section() -> None:
    """ "Sheet1" says nothing."""
    assert read(workbook_of(["A", "B"], ["c", "d"], name="Sheet1")).blocks[0].section == ()


def test_cells_read_as_a_person_sees_them() -> None:
    """Dates, times, percentages, amounts, padded numbers and truth values."""
    workbook = workbook_of(["What", "Value"])
    shown_as = [
        (datetime.date(2026, 1, 31), None, "2026-01-31"),
        (datetime.datetime(2026, 1, 31, 9, 30), None, "2026-01-31 09:30"),
        (datetime.time(8, 5), "h:mm", "08:05"),
        (datetime.timedelta(hours=30), "[h]:mm", "30:00"),
        (0.19, "0%", "19%"),
        (1234.5, '#,##0.00 "€"', "1,234.50 €"),
        (1234.5, "[$$-409]#,##0.00", "$1,234.50"),
        (42, "00000", "00042"),
        (0.1 + 0.2, None, "0.3"),
        (45000, None, "45000"),
        (True, None, "TRUE"),
        ("=1/0", None, ""),
        ("  two   words ", None, "two words"),
    ]
    for number, (value, form, _) in enumerate(shown_as, start=2):
        workbook.active.append([f"row {number}", value])
        if form:
            workbook.active.cell(number, 2).number_format = form
    [table] = tables(read(workbook))
    assert [row[1] for row in table.rows] == [text for _, _, text in shown_as]


@pytest.mark.parametrize(
    ("value", "code", "text"),
    [
        (60.0, "yyyy-mm-dd", "1900-02-28"),
        (59.0, "yyyy-mm-dd", "1900-02-28"),
        (45000.0, "mmm yyyy", "2023-03"),
        (45000.999999, "d/m/yy h:mm", "2023-03-16 00:00"),
        (0.5, "[Red]0.0%;[Blue]-0.0%", "50.0%"),
        (-1234.0, "#,##0_);(#,##0)", "-1,234"),
        (1234567.0, "#,##0,", "1,235"),
        (2.5, "0.0##", "2.5"),
        (2.0, "0.##", "2"),
        (5551234.0, "000-0000", "5551234"),
        (0.25, "# ?/?", "0.25"),
        (1e20, "0.00", "1e+20"),
        (3.0, "General", "3"),
        (3.0, '"Tag "0', "Tag 3"),
        (-5.0, "yyyy-mm-dd", "-5"),
        (0.00001, "0.00", "0.00"),
    ],
)
def test_number_formats(value: float, code: str, text: str) -> None:
    """Of the first section; what is too odd reads as without a format."""
    assert shown(value, code) == text


def test_days_count_from_1904_where_the_workbook_says_so() -> None:
    """As old Macs wrote them."""
    assert shown(0.0, "yyyy-mm-dd", since_1904=True) == "1904-01-01"


def test_values_that_formulas_had_when_saved_are_read() -> None:
    """Nothing is computed here; a formula without a saved value is empty."""
    content = saved(workbook_of(["What", "Sum"], ["all", "=1+1"], ["none", "=2+2"]))
    content = changed(content, {SHEET: replaced("<f>1+1</f><v></v>", "<f>1+1</f><v>2</v>")})
    assert tables(read(content))[0].rows == (("all", "2"), ("none", ""))


def test_a_title_over_a_table_becomes_a_heading() -> None:
    """And lines under it that aren't in columns stay text."""
    workbook = workbook_of(
        ["Fees 2026"],
        ["Plan", "Fee", "From"],
        ["Basic", 10, "May"],
        ["Pro", 20, "June"],
        [],
        ["Without tax."],
    )
    blocks = read(workbook).blocks
    assert [(block.kind, block.section) for block in blocks] == [
        (BlockKind.TABLE, ("Prices", "Fees 2026")),
        (BlockKind.TEXT, ("Prices", "Fees 2026")),
    ]
    assert blocks[0].columns == ("Plan", "Fee", "From")
    assert blocks[1].text == "Without tax."


def test_several_tables_on_a_sheet_are_several() -> None:
    """Beside each other and under each other, parted by empty columns and rows."""
    workbook = workbook_of(
        ["Plan", "Fee", None, "Region", "Tax"],
        ["Basic", 10, None, "North", 5],
        ["Pro", 20, None, "South", 6],
        [],
        ["City", "Office"],
        ["Rome", "Via 1"],
    )
    assert [(table.columns, len(table.rows)) for table in tables(read(workbook))] == [
        (("Plan", "Fee"), 2),
        (("Region", "Tax"), 2),
        (("City", "Office"), 1),
    ]


def test_an_empty_row_inside_a_table_doesnt_lose_its_column_names() -> None:
    """What follows without a head of its own goes on."""
    workbook = workbook_of(["Date", "Sum"], ["1 May", 10], [], ["2 May", 20], ["3 May", 30])
    assert [(table.columns, table.rows) for table in tables(read(workbook))] == [
        (("Date", "Sum"), (("1 May", "10"),)),
        (("Date", "Sum"), (("2 May", "20"), ("3 May", "30"))),
    ]


def test_joined_cells_are_resolved() -> None:
    """Names over several columns are part of each name; a cell over several rows is repeated."""
    workbook = workbook_of(
        ["Item", "Q1", None, "Q2", None],
        [None, "Plan", "Real", "Plan", "Real"],
        ["Rent", 1, 2, 3, 4],
        [None, 5, 6, 7, 8],
    )
    for place in ("A1:A2", "B1:C1", "D1:E1", "A3:A4"):
        workbook.active.merge_cells(place)
    [table] = tables(read(workbook))
    assert table.columns == ("Item", "Q1 Plan", "Q1 Real", "Q2 Plan", "Q2 Real")
    assert table.rows == (("Rent", "1", "2", "3", "4"), ("Rent", "5", "6", "7", "8"))


def test_labels_on_the_left_are_no_column_names() -> None:
    """A form: bold labels with values beside them."""
    workbook = workbook_of(["Owner", "Ann"], ["Team", "Sales"])
    for row in (1, 2):
        workbook.active.cell(row, 1).font = Font(bold=True)
    [table] = tables(read(workbook))
    assert (table.columns, table.rows) == ((), (("Owner", "Ann"), ("Team", "Sales")))


def test_numbers_as_bold_column_names_are_names() -> None:
    """Years head columns too."""
    workbook = workbook_of(["Region", 2025, 2026], ["North", 1, 2], ["South", 3, 4])
    for column in (1, 2, 3):
        workbook.active.cell(1, column).font = Font(bold=True)
    assert tables(read(workbook))[0].columns == ("Region", "2025", "2026")


def test_cells_far_apart_cost_nothing() -> None:
    """The space between them isn't there."""
    workbook = workbook_of(["Near", "this"])
    workbook.active.cell(1_048_576, 3, "far")
    assert [block.text for block in read(workbook).blocks] == ["Near this", "far"]


def test_rich_and_inline_texts_are_read_without_reading_aids() -> None:
    """Texts of several runs, texts inside the cell, and Japanese with its pronunciation."""
    main = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    texts = f"<sst {main}><si><r><t>on</t></r><r><t>e</t></r><rPh sb='0' eb='1'><t>ichi</t></rPh></si></sst>"
    relation = '<Relationship Id="rId99" Target="texts.xml" Type="x/sharedStrings"/>'
    rows = (
        f'<worksheet {main}><sheetData><row r="1"><c r="A1" t="s"><v>0</v></c>'
        '<c r="B1" t="str"><v>two</v></c></row>'
        '<row r="2"><c r="A2" t="inlineStr"><is><r><t>th</t></r><r><t>ree</t></r></is></c>'
        '<c r="B2" t="inlineStr"><is><t>five</t><rPh><t>go</t></rPh></is></c></row></sheetData></worksheet>'
    )
    content = changed(
        saved(workbook_of(["a"])),
        {SHEET: lambda _: rows.encode(), "xl/_rels/workbook.xml.rels": replaced("</Rel", f"{relation}</Rel")},
        {"xl/texts.xml": texts.encode()},
    )
    [table] = tables(read(content))
    assert (table.columns, table.rows) == (("one", "two"), (("three", "five"),))


def with_entities_in_a_part_named(part: str) -> bytes:
    relations = {"xl/_rels/workbook.xml.rels": replaced(SHEET, part)}
    return changed(saved(workbook_of(["a"])), relations, {part: b"<!DOCTYPE x><worksheet/>"})


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"PK\x03\x04 no archive", "corrupt"),
        (changed(saved(workbook_of(["a"])), {SHEET: lambda part: part[:-20]}), "corrupt"),
        (changed(saved(workbook_of(["a"])), {"xl/workbook.xml": replaced("sheets>", "other>")}), "corrupt"),
        (encrypted(), "encrypted"),
        (saved(openpyxl.Workbook()), "blank"),
        (saved(workbook_of(["x"] * 2_001)), "too_complex"),
        (changed(saved(workbook_of(["a"])), {}, {"xl/media/zeros": bytes(30_000_000)}), "bomb"),
        (changed(saved(workbook_of(["a"])), {SHEET: lambda part: b"<!DOCTYPE x>" + part}), "bomb"),
        (with_entities_in_a_part_named("xl/worksheets/sheet1.dat"), "bomb"),
    ],
    ids="no archive|broken XML|no sheets|encrypted|blank|columns|inflates|entities|any name".split("|"),
)
def test_what_cannot_be_read_is_refused_with_its_reason(content: bytes, reason: str) -> None:
    """Before a parser of XML sees it, where it is built to do harm."""
    assert refusal(content) == reason


@pytest.mark.parametrize(
    "number", ["²", "1" * 5_000, "", "-1", "x"], ids=["power", "long", "none", "minus", "letter"]
)
def test_a_number_that_is_none_is_passed_over(number: str) -> None:
    """What stands where a row, a style or a format is numbered may be anything."""
    content = changed(
        saved(workbook_of(["Plan", "Price"], ["Basic", 10])),
        {
            SHEET: replaced('r="2"', f'r="{number}"'),
            "xl/styles.xml": replaced('numFmtId="0"', f'numFmtId="{number}"'),
        },
    )
    [table] = tables(read(content))
    assert (table.columns, table.rows) == (("Plan", "Price"), (("Basic", "10"),))


def test_too_many_cells_are_refused_while_they_are_read() -> None:
    """A small file may hold millions: its rows are all the same."""
    sheet = (
        b"<worksheet><sheetData>"
        + b"<row><c><v>1</v></c><c><v>1</v></c></row>" * 6
        + b"</sheetData></worksheet>"
    )
    workbook = Workbook(sheets=(), texts=(), formats=(), since_1904=False)
    assert len(read_sheet(io.BytesIO(sheet), workbook, 12).cells) == 6
    with pytest.raises(DocumentRejected) as caught:
        read_sheet(io.BytesIO(sheet), workbook, 11)
    assert caught.value.reason == "too_complex"
