"""PDF headings: which lines are headings of which level, by the size and weight of their letters."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.ingest.parsing.outline import asks
from gateway.ingest.parsing.pdf.line import Line, PageTable

_LARGER = 1.08
_CHARS = 160
_BOLD_CHARS = 100
_LEVELS = 6
#: a heading that carries its number
NUMBERED = re.compile(r"(\d{1,3}(?:\.\d{1,3}){0,4})\.?\s+\S")
_ENDS_LIKE_TEXT = tuple(".。;；,，:：…")


@dataclass(frozen=True, slots=True)
class HeadingStyles:
    """``body`` is the size of most text in points; ``sizes`` are those of headings, largest first."""

    body: float
    sizes: tuple[float, ...]
    bold: bool

    def level(self, line: Line) -> int:
        """1 to 6; 0 for a line that is no heading."""
        if not _may_be_heading(line):
            return 0
        if line.size in self.sizes:
            return min(self.sizes.index(line.size) + 1, _LEVELS)
        if not self.bold or not _is_bold_heading(line, self.body):
            return 0
        number = NUMBERED.match(line.text)
        depth = number.group(1).count(".") if number else 0
        return min(len(self.sizes) + 1 + depth, _LEVELS)


def heading_styles(pages: Sequence[Sequence[Line | PageTable]]) -> HeadingStyles:
    """From all lines of the document. Bold lines count only where they are few."""
    lines = [item for page in pages for item in page if isinstance(item, Line)]
    chars: Counter[float] = Counter()
    for line in lines:
        if not line.mono:
            chars[line.size] += len(line.text)
    body = chars.most_common(1)[0][0] if chars else 0.0
    sizes = {line.size for line in lines if line.size >= body * _LARGER and _may_be_heading(line)}
    # A size that much text is set in is another kind of text, not a heading.
    headings = sorted((size for size in sizes if chars[size] * 4 < sum(chars.values())), reverse=True)
    bold = sum(len(line.text) for line in lines if line.bold)
    return HeadingStyles(body, tuple(headings), bold * 3 < sum(chars.values()))


def _may_be_heading(line: Line) -> bool:
    if line.mono or line.wide or len(line.text) > _CHARS or not any(char.isalpha() for char in line.text):
        return False
    return not line.text.endswith(tuple(",，;；"))


def _is_bold_heading(line: Line, body: float) -> bool:
    if not line.bold or line.size < body * 0.95 or len(line.text) > _BOLD_CHARS:
        return False
    if re.match(r"(?:Q|A|问|答)\s*+\d{0,3}\s*+[:：]", line.text):
        return False
    return asks(line.text) or not line.text.endswith(_ENDS_LIKE_TEXT)
