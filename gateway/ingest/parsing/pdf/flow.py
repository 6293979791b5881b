"""PDF flow: the lines of all pages become headings, paragraphs, lists, code and tables."""

from collections.abc import Sequence
from itertools import pairwise

from gateway.ingest.document import BlockKind
from gateway.ingest.parsing.outline import Heading, Piece, keeps_line_break
from gateway.ingest.parsing.pdf.headings import NUMBERED, HeadingStyles, heading_styles
from gateway.ingest.parsing.pdf.line import MARKER, MONO_WIDTH, Line, PageTable
from gateway.ingest.parsing.pdf.tables import Continued, continued
from gateway.ingest.parsing.rendering import fenced
from gateway.ingest.parsing.wording import ends_sentence, is_cjk, joined, reads_on, words_of

#: all in parts of the font's size
_PARAGRAPH_GAP = 0.35
_INDENT = 0.6
_HEADING_GAP = 0.4
#: a heading's lines stand hardly further apart than those of a paragraph
_HEADING_LEAD = 0.3
_SHORT = 2.0
#: what may be a pitch of lines, and what is taken for one where nothing shows it
_PITCHES = (0.9, 2.5)
_PITCH = 1.3

_Item = Line | PageTable


def items_of(pages: Sequence[Sequence[_Item]]) -> list[Heading | Piece]:
    """Pages without their furniture, in order. Each piece has the page on which it begins; a table that
    goes over pages is a piece on each, under the same column names.
    """
    flow = _Flow(heading_styles(pages), _usual_pitches(pages), words_of(_whole_lines(pages)))
    for item in continued([item for page in pages for item in page]):
        flow.add(item)
    flow.end()
    return flow.items


def _whole_lines(pages: Sequence[Sequence[_Item]]) -> list[str]:
    """Lines without a last word that may be cut."""
    lines = [item.text for page in pages for item in page if isinstance(item, Line)]
    return [line.rpartition(" ")[0] if line.endswith(("-", "\u00ad")) else line for line in lines]


def _usual_pitches(pages: Sequence[Sequence[_Item]]) -> dict[bool, float]:
    """From line to line of a paragraph in parts of the font's size; Chinese (True) has its own."""
    pitches: dict[bool, list[float]] = {True: [], False: []}
    for before, line in (pair for page in pages for pair in pairwise(page)):
        if isinstance(line, Line) and isinstance(before, Line) and line.size == before.size:
            pitch = (line.bottom - before.bottom) / line.size
            if _PITCHES[0] < pitch < _PITCHES[1]:
                pitches[is_cjk(line.text)].append(pitch)
    return {key: sorted(found)[len(found) // 4] if found else _PITCH for key, found in pitches.items()}


class _Flow:
    """State of one walk: finished items, and the lines gathered since the last one."""

    def __init__(self, styles: HeadingStyles, pitches: dict[bool, float], words: frozenset[str]) -> None:
        self.items: list[Heading | Piece] = []
        self._styles = styles
        self._pitches = pitches
        self._words = words
        self._held: list[Line] = []
        self._level = 0

    def add(self, item: Line | Continued) -> None:
        if isinstance(item, Continued):
            self.end()
            self.items.append(Piece(BlockKind.TABLE, "", item.columns, item.rows, page=item.page))
            return
        level = self._styles.level(item)
        if not self._held or level != self._level or not self._goes_on(item):
            self.end()
            self._level = level
        self._held.append(item)

    def end(self) -> None:
        """What was gathered becomes a heading, a piece, or several: a list's items follow each other."""
        lines, self._held = self._held, []
        if not lines:
            return
        page = lines[0].page
        if self._level:
            self.items.append(Heading(self._level, self._text(lines), page))
        elif lines[0].mono:
            self.items.append(Piece(BlockKind.CODE, fenced(_code(lines)), page=page))
        elif MARKER.match(lines[0].text):
            self.items.append(Piece(BlockKind.LIST, self._list(lines), page=page))
        else:
            bold = lines[0].bold and (len(lines) == 1 or not lines[1].bold or all(n.bold for n in lines))
            self.items.append(Piece(BlockKind.TEXT, self._text(lines), bold=bold, page=page))

    def _goes_on(self, line: Line) -> bool:
        """Whether the line belongs to what was gathered."""
        last, first = self._held[-1], self._held[0]
        moved = line.page != last.page or line.top < last.top
        gap = (line.bottom - last.bottom) / line.size - self._pitches[is_cjk(line.text)]
        if line.mono or last.mono:
            return line.mono and last.mono and (moved or gap < _SHORT)
        if self._level:
            near = not moved and gap < _HEADING_LEAD and line.top - last.bottom < _HEADING_GAP * line.size
            return (
                near and line.size == last.size and line.bold == last.bold and not NUMBERED.match(line.text)
            )
        if abs(line.size - last.size) > 0.15 * last.size:
            return False
        if MARKER.match(first.text):
            return self._list_goes_on(line, moved, gap)
        if MARKER.match(line.text) or keeps_line_break(last.text, line.text):
            return False
        if moved:
            return reads_on(last.text, line.text)
        return gap < _PARAGRAPH_GAP and not self._begins_paragraph(line)

    def _begins_paragraph(self, line: Line) -> bool:
        """Indented, or in another weight: a bold line over its text stands for itself, one inside doesn't."""
        last = self._held[-1]
        if line.bold != last.bold:
            return len(self._held) == 1 if last.bold else ends_sentence(last.text)
        return line.x0 > min(held.x0 for held in self._held) + _INDENT * line.size and len(self._held) > 1

    def _list_goes_on(self, line: Line, moved: bool, gap: float) -> bool:
        item = next(held for held in reversed(self._held) if MARKER.match(held.text))
        if MARKER.match(line.text):
            first = self._held[0]
            outer = moved or line.x0 < first.x0 + _INDENT * line.size
            same = _is_numbered(line.text) == _is_numbered(first.text)
            return (same or not outer) and (moved or gap < _SHORT)
        if moved:
            return reads_on(self._held[-1].text, line.text)
        hangs = line.x0 > item.x0 + 0.4 * line.size
        return gap < _PARAGRAPH_GAP and (hangs or abs(line.x0 - item.x0) < 1)

    def _text(self, lines: Sequence[Line]) -> str:
        return joined([line.text for line in lines], self._words)

    def _list(self, lines: Sequence[Line]) -> str:
        """One line an item, deeper ones indented by two spaces a level; bullets of any form are ``-``."""
        items: list[list[Line]] = []
        for line in lines:
            if MARKER.match(line.text):
                items.append([])
            items[-1].append(line)
        depths: list[float] = []
        texts = []
        for item in items:
            depths = [x0 for x0 in depths if x0 < item[0].x0 - _INDENT * item[0].size] + [item[0].x0]
            texts.append("  " * (len(depths) - 1) + _item_text(self._text(item)))
        return "\n".join(texts)


def _is_numbered(text: str) -> bool:
    marker = MARKER.match(text)
    return marker is not None and any(char.isalnum() for char in marker.group())


def _item_text(text: str) -> str:
    marker = MARKER.match(text)
    if marker is None:
        return text
    sign = marker.group().strip()
    return f"{sign if any(char.isalnum() for char in sign) else '-'} {text[marker.end() :]}"


def _code(lines: Sequence[Line]) -> str:
    """Indented as on the page, with an empty line where there was room for one."""
    left = min(line.x0 for line in lines)
    text = ""
    for before, line in zip([None, *lines[:-1]], lines, strict=True):
        if before is not None:
            wide = line.page == before.page and line.top - before.bottom > 0.8 * line.size
            text += "\n\n" if wide else "\n"
        text += " " * round((line.x0 - left) / (MONO_WIDTH * line.size)) + line.text
    return text
