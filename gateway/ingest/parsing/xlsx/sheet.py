"""Sheet: the cells of one worksheet, streamed from its XML as the texts that a person sees."""

import re
from dataclasses import dataclass, field
from typing import IO
from xml.parsers import expat

from gateway.errors import DocumentRejected
from gateway.ingest.parsing.archive import refuse_declarations
from gateway.ingest.parsing.xlsx.number import shown
from gateway.ingest.parsing.xlsx.workbook import CellFormat, Workbook, whole

#: in all sheets together
MAX_CELLS = 500_000
_MAX_COLUMNS = 2_000
_MAX_MERGED = 20_000
_REFERENCE = re.compile(r"([A-Z]{1,3})(\d{1,7})")
_PLAIN = CellFormat()


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    bold: bool = False


@dataclass(slots=True)
class Sheet:
    """``cells[row][column]`` holds only cells with text, counted from 0. ``spans``: the (rows, columns) that
    a joined cell covers, by its upper left place.
    """

    cells: dict[int, dict[int, Cell]] = field(default_factory=dict)
    spans: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)


def read_sheet(stream: IO[bytes], workbook: Workbook, cells_left: int = MAX_CELLS) -> Sheet:
    """Raises DocumentRejected corrupt, too_complex, or bomb (see ``refuse_declarations``)."""
    reader = _Reader(workbook, cells_left)
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = refuse_declarations
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text
    try:
        parser.ParseFile(stream)
    except expat.ExpatError:
        raise DocumentRejected("corrupt", "The file is damaged: a sheet of it is no valid XML.") from None
    return reader.sheet


class _Reader:
    """Expat's events into cells. Only what stands in ``v`` and ``t`` elements of a cell is its value."""

    def __init__(self, workbook: Workbook, cells_left: int) -> None:
        self.sheet = Sheet()
        self._workbook = workbook
        self._left = cells_left
        self._row, self._column = -1, -1
        self._type = self._style = ""
        self._parts: list[str] = []
        self._gathers = False
        self._aids = 0  # open elements that say how a text is pronounced
        self._locals: dict[str, str] = {}

    def start(self, name: str, attributes: dict[str, str]) -> None:
        match self._local(name):
            case "row":
                self._row = whole(attributes.get("r", ""), self._row + 2) - 1
                self._column = -1
            case "c":
                self._place(attributes.get("r", ""))
                self._type, self._style = attributes.get("t", "n"), attributes.get("s", "")
                self._parts.clear()
            case "v" | "t":
                self._gathers = not self._aids
            case "rPh":
                self._aids += 1
            case "mergeCell" if len(self.sheet.spans) < _MAX_MERGED:
                self._merge(attributes.get("ref", ""))
            case _:
                pass

    def _local(self, name: str) -> str:
        """Without the namespace."""
        found = self._locals.get(name)
        if found is None:
            found = self._locals[name] = name.rpartition(" ")[2]
        return found

    def text(self, text: str) -> None:
        if self._gathers:
            self._parts.append(text)

    def end(self, name: str) -> None:
        match self._local(name):
            case "v" | "t":
                self._gathers = False
            case "rPh":
                self._aids -= 1
            case "c":
                self._finish()
            case _:
                pass

    def _place(self, reference: str) -> None:
        match = _REFERENCE.fullmatch(reference)
        if match is None:
            self._column += 1
            return
        self._row, self._column = int(match.group(2)) - 1, _column(match.group(1))

    def _finish(self) -> None:
        form = _PLAIN
        style = whole(self._style, -1)
        if 0 <= style < len(self._workbook.formats):
            form = self._workbook.formats[style]
        text = self._value("".join(self._parts), form)
        if not text.isalnum():
            text = re.sub(r"\s+", " ", text).strip()
        if not text:
            return
        self._left -= 1
        if self._left < 0:
            raise DocumentRejected("too_complex", f"The workbook has more than {MAX_CELLS:,} filled cells.")
        if self._column >= _MAX_COLUMNS:
            raise DocumentRejected("too_complex", f"A sheet has more than {_MAX_COLUMNS:,} columns.")
        self.sheet.cells.setdefault(self._row, {})[self._column] = Cell(text, form.bold)

    def _value(self, raw: str, form: CellFormat) -> str:
        match self._type:
            case "s":
                at = whole(raw, -1)
                return self._workbook.texts[at] if 0 <= at < len(self._workbook.texts) else ""
            case "b":
                return "TRUE" if raw == "1" else "FALSE" if raw else ""
            case "e":
                return ""
            case "n":
                return self._number(raw, form)
            case _:
                return raw

    def _number(self, raw: str, form: CellFormat) -> str:
        if not form.code and len(raw) < 12 and raw.isdecimal():
            return raw
        try:
            value = float(raw)
        except ValueError:
            return raw
        if value != value or value in (float("inf"), float("-inf")):
            return raw
        return shown(value, form.code, since_1904=self._workbook.since_1904)

    def _merge(self, reference: str) -> None:
        first, _, last = reference.partition(":")
        one, other = _REFERENCE.fullmatch(first), _REFERENCE.fullmatch(last)
        if one is None or other is None:
            return
        row, column = int(one.group(2)) - 1, _column(one.group(1))
        rows, columns = int(other.group(2)) - row, _column(other.group(1)) - column + 1
        if rows > 0 and columns > 0:
            self.sheet.spans[row, column] = rows, columns


def _column(letters: str) -> int:
    number = 0
    for letter in letters:
        number = number * 26 + ord(letter) - 64
    return number - 1
