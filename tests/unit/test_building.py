"""Whole builds: one file a format as people have them, from its bytes to its passages."""

import io
import re

import openpyxl
import pytest
from docx import Document as WordDocument

from gateway.ingest.building import build_document
from gateway.ingest.chunking import DEFAULT_LIMITS
from gateway.ingest.document import BuiltDocument
from gateway.ingest.splitting import estimate_tokens
from gateway.ingest.tokens import count_tokens

RULES = " ".join(f"Rule {n} says what a traveller must keep for trip {n * 37}." for n in range(40))
REGELN = "。".join(f"第{n}条规定了出差人员应当保存的凭证编号{n * 37}" for n in range(60)) + "。"
ROWS = [
    (f"R-{n:03}", f"Room {n} on floor {n % 7}", f"{n * 13}.50", f"2026-0{n % 9 + 1}-15") for n in range(90)
]
NAMES = ("Code", "Room", "Price", "Since")
PAIRS = [(f"How do I book room {n}?", f"Ask desk {n * 3} a day before.") for n in range(12)]

MARKDOWN = "\n\n".join(
    (
        "---\ntitle: Travel\nvalid_until: 2026-12-31\n---",
        "# Travel policy",
        "## Rules",
        RULES,
        "### 规定",
        REGELN,
        "## Rooms",
        "All rooms:",
        "\n".join(
            [
                f"| {' | '.join(NAMES)} |",
                "|---|---|---|---|",
                *(f"| {' | '.join(row)} |" for row in ROWS),
            ]
        ),
        "```sh\n# not a heading\nbook --room 7\n```",
        "## FAQ",
        *(f"**{question}**\n\n{answer}" for question, answer in PAIRS),
    )
)
HTML = (
    "<!DOCTYPE html><html><head><title>Travel</title></head><body><main><h1>Travel</h1><h2>Rules</h2>"
    f"<p>{RULES}</p><p>{REGELN}</p><h2>Rooms</h2><table>"
    f"<tr>{''.join(f'<th>{name}</th>' for name in NAMES)}</tr>"
    + "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in ROWS)
    + "</table><h2>FAQ</h2>"
    + "".join(f"<h3>{question}</h3><p>{answer}</p>" for question, answer in PAIRS)
    + "</main></body></html>"
)
TEXT = f"Rules\n=====\n\n{RULES}\n\n{REGELN}\n\n" + "\n\n".join(f"Q: {q}\nA: {a}" for q, a in PAIRS)
SHEET = "\n".join(",".join(row) for row in (NAMES, *ROWS))
CODE = '"""Books rooms."""\n\nimport desk\n\n' + "\n\n".join(
    f"def book_{n}(room, guest):\n    # room {n}\n" + f"    desk.ask(room, guest, {n})\n" * 12
    for n in range(12)
)


def word_file() -> bytes:
    document = WordDocument()
    document.add_heading("Travel policy", 0)
    document.add_heading("Rules", 1)
    document.add_paragraph(RULES)
    document.add_paragraph(REGELN)
    document.add_heading("Rooms", 1)
    table = document.add_table(rows=0, cols=len(NAMES))
    for row in (NAMES, *ROWS):
        for cell, text in zip(table.add_row().cells, row, strict=True):
            cell.text = text
    document.add_heading("FAQ", 1)
    for question, answer in PAIRS:
        document.add_heading(question, 2)
        document.add_paragraph(answer)
    file = io.BytesIO()
    document.save(file)
    return file.getvalue()


def excel_file() -> bytes:
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.title = "Rooms"
    for row in (NAMES, *ROWS):
        sheet.append(row)
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


FILES = {
    "travel.md": MARKDOWN.encode(),
    "travel.html": HTML.encode(),
    "travel.txt": TEXT.encode("gb18030"),
    "rooms.csv": SHEET.encode("utf-16"),
    "rooms.tsv": SHEET.replace(",", "\t").encode(),
    "semicolons.csv": SHEET.replace(",", ";").encode("utf-8-sig"),
    "rooms.py": CODE.encode(),
    "travel.docx": word_file(),
    "rooms.xlsx": excel_file(),
}
TEXTS = {
    "travel.md": MARKDOWN.partition("---\n\n")[2],
    "travel.html": re.sub(r"<[^>]+>", " ", HTML),
    "travel.txt": TEXT,
    "rooms.csv": SHEET,
    "rooms.tsv": SHEET,
    "semicolons.csv": SHEET,
    "rooms.py": CODE,
    "travel.docx": "\n".join((RULES, REGELN, SHEET.replace(",", " "), *map(" ".join, PAIRS))),
    "rooms.xlsx": SHEET,
}


def built(source: str) -> BuiltDocument:
    return build_document(source, "application/octet-stream", FILES[source])


@pytest.mark.parametrize("source", FILES)
def test_every_word_of_a_file_is_in_some_passage(source: str) -> None:
    """Or in the title or a breadcrumb, which are embedded and shown with it."""
    document = built(source)
    kept = [document.title, *(part for p in document.passages for part in (p.section, p.content))]
    assert set(re.findall(r"\w+", TEXTS[source])) <= set(re.findall(r"\w+", "\n".join(kept)))


@pytest.mark.parametrize("source", FILES)
def test_no_passage_is_longer_than_the_maximum(source: str) -> None:
    """Neither as estimated nor as the embedder counts; and the same file gives the same passages."""
    document = built(source)
    assert document == built(source)
    for passage in document.passages:
        assert 0 < estimate_tokens(passage.content) <= DEFAULT_LIMITS.maximum
        assert count_tokens(passage.content) <= DEFAULT_LIMITS.maximum


@pytest.mark.parametrize("source", [source for source in FILES if not source.endswith((".txt", ".py"))])
def test_every_passage_with_a_row_has_the_column_names(source: str) -> None:
    """A price without them is a number."""
    with_rows = [p.content for p in built(source).passages if re.search(r"R-\d{3}", p.content)]
    assert len(with_rows) > 3
    for content in with_rows:
        assert "| Code | Room | Price | Since |" in content


@pytest.mark.parametrize("source", ["travel.md", "travel.html", "travel.txt", "travel.docx"])
def test_every_question_stands_with_its_answer(source: str) -> None:
    """Alone, so that it is found alone."""
    contents = [passage.content for passage in built(source).passages]
    for question, answer in PAIRS:
        assert [content for content in contents if question in content and answer in content]
