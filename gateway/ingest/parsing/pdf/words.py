"""PDF words: what one page says, read through PDFium and set upright."""

import ctypes
import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import pypdfium2
import pypdfium2.raw as pdfium

from gateway.errors import DocumentRejected

_MAX_PAGE_CHARS = 200_000
_FONT_NAME_BYTES = 128
_BOLD_WEIGHT = 600
_BOLD = re.compile(r"bold|black|heavy|semibd|demi|simhei", re.IGNORECASE)
_MONO = re.compile(
    r"mono|monl|courier|consol|menlo|monaco|typewriter|cmtt|lettergothic|sourcecode|cousine|andale",
    re.IGNORECASE,
)
#: PDFium's mark for a hyphen at a line's end
_HYPHEN = "\ufffe"
#: ligatures and PDFium's hyphen, and the bullets of the fonts Symbol and Wingdings
_LIGATURES = {"ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl", "ﬅ": "st", "ﬆ": "st", _HYPHEN: "-"}
_BULLETS = {"\uf0b7": "•", "\uf0a7": "▪", "\uf0d8": "➢", "\uf0fc": "✓", "\uf076": "❖"}
_PLAIN = str.maketrans(_LIGATURES | _BULLETS)
_UNREADABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ufeff\ufffd-\uffff\ud800-\udfff\ue000-\uf8ff]")
_WORD = re.compile(rf"[^\s{_HYPHEN}]+{_HYPHEN}?|{_HYPHEN}")
_HYPHEN_CODE = 2
_SLANTED = 9


class Style(NamedTuple):
    """``quarter``: which way text runs, in quarter turns against the clock; 9 for slanted text."""

    size: float
    bold: bool
    mono: bool
    quarter: int


class Word(NamedTuple):
    """Characters without a space between; lengths are points, y grows downwards."""

    text: str
    style: Style
    x0: float
    x1: float
    top: float
    bottom: float


class PageWords(NamedTuple):
    """In the file's order, all running along ``quarter``. ``chars`` and ``unreadable`` count the page's
    characters with and without a meaning.
    """

    words: list[Word]
    quarter: int
    chars: int
    unreadable: int


def read_words(page: pypdfium2.PdfPage) -> PageWords:
    """Text that runs another way than most of the page, like a watermark, is left out.

    Raises DocumentRejected too_complex for a page of more than 200,000 characters.
    """
    reader = _Reader(page)
    words: list[Word] = []
    unreadable = 0
    for word in reader.words():
        text = word.text.translate(_PLAIN)
        unreadable += len(_UNREADABLE.findall(text))
        text = _UNREADABLE.sub("", text)
        if text:
            words.append(word._replace(text=text))
    lengths: Counter[int] = Counter()
    for word in words:
        lengths[word.style.quarter] += len(word.text)
    del lengths[_SLANTED]
    quarter = lengths.most_common(1)[0][0] if lengths else 0
    upright = [_turned(word, quarter) for word in words if word.style.quarter == quarter]
    return PageWords(upright, quarter, sum(len(word.text) for word in words), unreadable)


def turned_point(x: float, y: float, quarter: int) -> tuple[float, float]:
    """Where a point of the page (y downwards) lies once text that runs along ``quarter`` is upright."""
    return ((x, y), (-y, x), (-x, -y), (y, -x))[quarter]


def _turned(word: Word, quarter: int) -> Word:
    if quarter == 0:
        return word
    x0, y0 = turned_point(word.x0, word.top, quarter)
    x1, y1 = turned_point(word.x1, word.bottom, quarter)
    return Word(word.text, word.style, min(x0, x1), max(x0, x1), min(y0, y1), max(y0, y1))


class _Reader:
    """Asks PDFium about first and last characters only: a question for each costs most of the time."""

    def __init__(self, page: pypdfium2.PdfPage) -> None:
        self._page = page.get_textpage()
        self._raw = self._page.raw
        self._styles: dict[int, Style] = {}
        self._box = pdfium.FS_RECTF()

    def words(self) -> Iterator[Word]:
        text = self._text()
        for match in _WORD.finditer(text):
            start, stop = match.span()
            word = self._word(match.group(), start, stop)
            if word is not None:
                yield word
                continue
            for at in range(start, stop):  # of two styles, or on two lines
                if (char := self._word(text[at], at, at + 1)) is not None:
                    yield char

    def _text(self) -> str:
        """One character for each of PDFium's, spaces and line ends that it finds by the gaps included."""
        count = self._page.count_chars()
        if count > _MAX_PAGE_CHARS:
            raise DocumentRejected("too_complex", "A page of the document has more than 200,000 characters.")
        buffer = (ctypes.c_ushort * (2 * count + 2))()
        written = pdfium.FPDFText_GetText(self._raw, 0, count, buffer)
        text = bytes(buffer)[: 2 * max(written - 1, 0)].decode("utf-16-le", "surrogatepass")
        if len(text) == count:
            return text
        codes = (pdfium.FPDFText_GetUnicode(self._raw, at) for at in range(count))
        return "".join(_HYPHEN if code == _HYPHEN_CODE else chr(code) for code in codes)

    def _word(self, text: str, start: int, stop: int) -> Word | None:
        """None when the characters don't form one word in one style."""
        style = self._style(start)
        if style is None or (stop - start > 1 and self._style(stop - 1) != style):
            return None
        x0, x1, top, bottom = self._place(start)
        if stop - start > 1:
            last_x0, last_x1, last_top, last_bottom = self._place(stop - 1)
            off = abs(last_bottom - bottom) + abs(last_top - top)
            if style.quarter in (0, _SLANTED) and (off > 0.5 * style.size or last_x1 < x0):
                return None
            x0, x1 = min(x0, last_x0), max(x1, last_x1)
            top, bottom = min(top, last_top), max(bottom, last_bottom)
        return Word(text, style, x0, x1, top, bottom)

    def _place(self, at: int) -> tuple[float, float, float, float]:
        box = self._box
        pdfium.FPDFText_GetLooseCharBox(self._raw, at, box)
        return box.left, box.right, -box.top, -box.bottom

    def _style(self, at: int) -> Style | None:
        """None for a character that PDFium has made up."""
        owner = pdfium.FPDFText_GetTextObject(self._raw, at)
        if not owner:
            return None
        address = ctypes.addressof(owner.contents)
        if address not in self._styles:
            self._styles[address] = self._look(at, owner)
        return self._styles[address]

    def _look(self, at: int, owner: pdfium.FPDF_PAGEOBJECT) -> Style:
        matrix = pdfium.FS_MATRIX()
        pdfium.FPDFText_GetMatrix(self._raw, at, matrix)
        size = pdfium.FPDFText_GetFontSize(self._raw, at) * math.hypot(matrix.c, matrix.d)
        turns = math.atan2(matrix.b, matrix.a) / (math.pi / 2)
        quarter = round(turns) % 4 if abs(turns - round(turns)) < 0.05 else _SLANTED
        font = pdfium.FPDFTextObj_GetFont(owner)
        buffer = ctypes.create_string_buffer(_FONT_NAME_BYTES)
        pdfium.FPDFFont_GetBaseFontName(font, buffer, _FONT_NAME_BYTES)
        name = buffer.value.decode("utf-8", "replace")
        bold = bool(_BOLD.search(name)) or pdfium.FPDFFont_GetWeight(font) >= _BOLD_WEIGHT
        return Style(max(round(size * 2) / 2, 0.5), bold, bool(_MONO.search(name)), quarter)
