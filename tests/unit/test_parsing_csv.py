"""CSV and TSV: whatever wrote them, one table with the right column names comes out."""

import pytest

from gateway.errors import DocumentRejected
from gateway.ingest.building import build_document
from gateway.ingest.document import Block, BlockKind
from gateway.ingest.parsing import csv as csv_format
from gateway.ingest.parsing import parse


def table(text: str, source: str = "prices.csv") -> Block:
    *_, last = parse(source, "", text.encode()).blocks
    assert last.kind is BlockKind.TABLE
    return last


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_found(delimiter: str) -> None:
    """Also when the cells hold the others."""
    rows = [("Name", "Price; net", "Since"), ("A, B and C", "1,50", "1.1.2026"), ("D", "2,50; 3", "2.1.2026")]
    text = "".join(
        delimiter.join(f'"{cell}"' if delimiter in cell else cell for cell in row) + "\r\n" for row in rows
    )
    found = table(text)
    assert (found.columns, found.rows) == (rows[0], tuple(rows[1:]))


def test_quoted_line_ends_and_quotes_stay_in_their_cell() -> None:
    """A cell may hold anything."""
    found = table('id,text\n1,"line one\nline two, with a comma"\n2,"she said ""hi"""\n')
    assert found.rows == (("1", "line one\nline two, with a comma"), ("2", 'she said "hi"'))


@pytest.mark.parametrize("codec", ["utf-8-sig", "utf-16", "utf-16-le", "gb18030", "utf-8"])
def test_a_chinese_table_is_read_in_the_usual_encodings(codec: str) -> None:
    """Excel's own among them."""
    content = "姓名,部门,说明\n张三,财务,负责报销和发票的审核\n李四,人事,负责招聘和入职的手续\n".encode(codec)
    [block] = parse("员工.csv", "", content).blocks
    assert block.columns == ("姓名", "部门", "说明")
    assert block.rows[1] == ("李四", "人事", "负责招聘和入职的手续")


def test_a_western_table_is_read_without_a_byte_order_mark() -> None:
    """Most programs in Europe still write windows-1252."""
    content = "Straße;Größe\nKölner Straße;groß\n".encode("cp1252")
    [block] = parse("a.csv", "", content).blocks
    assert (block.columns, block.rows) == (("Straße", "Größe"), (("Kölner Straße", "groß"),))


def test_the_delimiter_that_excel_states_is_used() -> None:
    """And its line is no row."""
    found = table("sep=;\na;b,c\n1;2,3\n")
    assert (found.columns, found.rows) == (("a", "b,c"), (("1", "2,3"),))


def test_lines_above_the_table_stay_as_text() -> None:
    """A report's name and date are no column names."""
    blocks = parse("r.csv", "", b"Report of March\nMade by X\n\nid,name,sum\n1,a,5\n2,b,6\n").blocks
    assert [block.text for block in blocks] == ["Report of March", "Made by X", ""]
    assert blocks[-1].columns == ("id", "name", "sum")


def test_a_table_without_names_gets_numbers() -> None:
    """Its first row is knowledge like the others."""
    found = table("1,Berlin,3.5\n2,Paris,4.5\n")
    assert found.columns == ("Column 1", "Column 2", "Column 3")
    assert len(found.rows) == 2


def test_years_may_name_columns() -> None:
    """They are no values there."""
    assert table("Country,2024,2025\nDE,1,2\nFR,3,4\n").columns == ("Country", "2024", "2025")


def test_ragged_rows_are_kept_whole() -> None:
    """Cells beyond the last name and missing ones."""
    assert table("a,b\n1,2,3,4\n5\n,6\n").rows == (("1", "2", "3", "4"), ("5",), ("", "6"))


def test_a_quote_that_never_closes_swallows_nothing() -> None:
    """It is a character then."""
    found = table('a,b\n1,"x\n' + "".join(f"{n},y\n" for n in range(500)))
    assert len(found.rows) == 501
    assert found.rows[0] == ("1", '"x')


@pytest.mark.parametrize("text", ["a,b,c\n", "a;b;c", ",,\n,,\n", "\n\n", "a\tb\n\n"])
def test_column_names_alone_are_blank(text: str) -> None:
    """Nothing can be answered from them."""
    with pytest.raises(DocumentRejected) as caught:
        parse("a.csv", "", text.encode())
    assert caught.value.reason == "blank"


@pytest.mark.parametrize(
    "text",
    [
        "a,b\n" + "1,2\n" * (csv_format.MAX_ROWS + 1),
        "\n".join([",".join(map(str, range(1900)))] * (csv_format.MAX_CELLS // 1900 + 2)),
        ",".join(["x"] * 5000),
    ],
    ids=["rows", "cells", "columns"],
)
def test_a_database_is_refused_with_the_limit(text: str) -> None:
    """A million rows are no text to read."""
    with pytest.raises(DocumentRejected) as caught:
        parse("a.csv", "", text.encode())
    assert caught.value.reason == "too_complex"
    assert "rows" in caught.value.detail


def test_an_endless_cell_is_corrupt() -> None:
    """Beyond what any program writes into one."""
    with pytest.raises(DocumentRejected) as caught:
        parse("a.csv", "", b"a,b\n1," + b"x" * 200_000 + b"\n")
    assert caught.value.reason == "corrupt"


def test_every_passage_of_a_table_carries_the_column_names() -> None:
    """Forty rows or four thousand."""
    rows = "".join(f"E{n:04},what error {n} means and what to do about it\n" for n in range(400))
    passages = build_document("codes.csv", "", b"Code,Meaning\n" + rows.encode()).passages
    assert len(passages) > 10
    for passage in passages:
        assert passage.content.startswith("| Code | Meaning |\n| --- | --- |\n| E")
    everything = "".join(passage.content for passage in passages)
    assert all(f"| E{n:04} |" in everything for n in range(400))
