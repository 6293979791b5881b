"""PDF line: words beside each other as rows, as segments between wide gaps, and as lines of text."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from gateway.ingest.parsing.pdf.words import Word
from gateway.ingest.parsing.table import Row
from gateway.ingest.parsing.wording import squeezed

#: what a list's item begins with
MARKER = re.compile(
    r"(?:[•◦▪▫‣●○■□◆◇➢➤❖✓✔·∙*–—-]|\d{1,3}[.)]|[a-zA-Z][.)]|[(（](?:\d{1,3}|[a-z]|[ivx]{1,5})[)）])\s+"
    r"|[•▪●■◆➢➤❖]\s*|[①-⑳]\s*|[(（][一二三四五六七八九十]{1,3}[)）]\s*|\d{1,3}、\s*"
)
#: the width of a typewriter font's character, in parts of its size
MONO_WIDTH = 0.6
#: in parts of the font's size: a gap that is a space, and one that parts columns or cells
_SPACE_GAP = 0.12
_SEGMENT_GAP = 1.1


@dataclass(frozen=True, slots=True)
class Segment:
    """Words without a wide gap between them; lengths are points, y grows downwards."""

    words: tuple[Word, ...]
    x0: float
    x1: float
    top: float
    bottom: float

    @classmethod
    def of(cls, words: Sequence[Word]) -> "Segment":
        return cls(
            tuple(words),
            words[0].x0,
            max(word.x1 for word in words),
            min(word.top for word in words),
            max(word.bottom for word in words),
        )


@dataclass(frozen=True, slots=True)
class Line:
    """A line of text. ``bold`` and ``mono``: all of it is. ``wide``: it has a gap as between cells.

    Text that is ``mono`` keeps its spaces.
    """

    text: str
    x0: float
    x1: float
    top: float
    bottom: float
    size: float
    bold: bool
    mono: bool
    page: int
    wide: bool = False


@dataclass(frozen=True, slots=True)
class PageTable:
    """The part of a table that stands on one page; without ``columns`` it may go on from the last page."""

    columns: Row
    rows: tuple[Row, ...]
    x0: float
    x1: float
    top: float
    bottom: float
    page: int

    @property
    def width(self) -> int:
        return max(len(row) for row in (self.columns, *self.rows))


_Placed = TypeVar("_Placed", Word, Segment)


def rows_of(parts: Iterable[_Placed]) -> list[list[_Placed]]:
    """Parts whose heights overlap by half stand on one row; rows from the top, each from the left."""
    rows: list[list[_Placed]] = []
    for part in sorted(parts, key=lambda part: part.top + part.bottom):
        if rows and _overlap(rows[-1][0], part):
            rows[-1].append(part)
        else:
            rows.append([part])
    return [sorted(row, key=lambda part: part.x0) for row in rows]


def segments_of(rows: Sequence[Sequence[Word]]) -> Iterator[Segment]:
    """Each row, cut at its wide gaps."""
    for row in rows:
        held: list[Word] = []
        for word in row:
            if held and _gap(held[-1], word) > _SEGMENT_GAP:
                yield Segment.of(held)
                held = []
            held.append(word)
        yield Segment.of(held)


def line_of(segments: Sequence[Segment], page: int) -> Line:
    """The segments of one row as one line; its size is that of most of its characters."""
    words = [word for segment in segments for word in segment.words]
    mono = all(word.style.mono for word in words)
    sizes: Counter[float] = Counter()
    for word in words:
        sizes[word.style.size] += len(word.text)
    text = _spaced(words, mono)
    whole = Segment.of(words)
    return Line(
        text if mono else squeezed(text),
        whole.x0,
        whole.x1,
        whole.top,
        whole.bottom,
        size=sizes.most_common(1)[0][0],
        bold=all(word.style.bold for word in words if any(char.isalnum() for char in word.text)),
        mono=mono,
        page=page,
        wide=len(segments) > 1,
    )


def text_of(words: Sequence[Word]) -> str:
    """The words of one row as text."""
    return squeezed(_spaced(words, False))


def _overlap(one: Word | Segment, other: Word | Segment) -> bool:
    height = min(one.bottom - one.top, other.bottom - other.top)
    return min(one.bottom, other.bottom) - max(one.top, other.top) >= 0.5 * height


def _gap(before: Word, word: Word) -> float:
    return (word.x0 - before.x1) / max(word.style.size, before.style.size)


def _spaced(words: Sequence[Word], mono: bool) -> str:
    parts = [words[0].text]
    for before, word in pairwise(words):
        gap = _gap(before, word)
        if gap > _SPACE_GAP:
            parts.append(" " * max(1, round(gap / MONO_WIDTH)) if mono else " ")
        parts.append(word.text)
    return "".join(parts)
