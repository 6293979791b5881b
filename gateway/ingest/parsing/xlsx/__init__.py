"""XLSX: Excel's sheets as sections with their tables, read from the workbook's XML (ECMA-376)."""

import re

from gateway.errors import DocumentRejected
from gateway.ingest.document import ParsedDocument
from gateway.ingest.parsing.archive import OfficePackage
from gateway.ingest.parsing.outline import Heading, Piece, outline, readable_name
from gateway.ingest.parsing.xlsx.regions import items_of
from gateway.ingest.parsing.xlsx.sheet import MAX_CELLS, read_sheet
from gateway.ingest.parsing.xlsx.workbook import read_workbook

PARSER_VERSION = "xlsx/1"

#: what spreadsheet programs call a sheet that nobody has named
_UNNAMED = re.compile(
    r"(?:sheet|tabelle|feuil|hoja|foglio|planilha|лист|工作表|シート)\s*\d{0,3}", re.IGNORECASE
)


def parse_xlsx(content: bytes, source: str) -> ParsedDocument:
    """The title comes from the file's name. Hidden sheets are left out.

    Raises DocumentRejected corrupt, encrypted, unsupported_type, bomb, blank or too_complex.
    """
    package = OfficePackage(content)
    workbook = read_workbook(package)
    items: list[Heading | Piece] = []
    left = MAX_CELLS
    for name, part in workbook.sheets:
        with package.open(part) as stream:
            sheet = read_sheet(stream, workbook, left)
        left -= sum(map(len, sheet.cells.values()))
        named = len(workbook.sheets) > 1 or not _UNNAMED.fullmatch(name)
        found = list(items_of(sheet, level=2 if named else 1))
        if found and named:
            items.append(Heading(1, name))
        items.extend(found)
    if not items:
        raise DocumentRejected("blank", "No text was found in the file.")
    return outline(items, source=source, parser_version=PARSER_VERSION, title=readable_name(source))
