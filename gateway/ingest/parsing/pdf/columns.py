"""PDF columns: parts of a page in reading order, one column after the other."""

from collections.abc import Iterator, Sequence

from gateway.ingest.parsing.pdf.line import PageTable, Segment

_Part = Segment | PageTable

_DEPTH = 3
_MAX_PARTS = 3_000
_STEP = 2.0
#: width of the gap between columns, in points
_GUTTER = 8.0
_LINES = 4


def in_columns(parts: Sequence[_Part], depth: int = _DEPTH) -> list[list[_Part]]:
    """Groups to be read one after the other; what crosses the gap between columns parts the groups."""
    ordered = sorted(parts, key=lambda part: (part.top, part.x0))
    gutter = _gutter(ordered) if depth and len(ordered) <= _MAX_PARTS else None
    if gutter is None:
        return [ordered] if ordered else []
    groups: list[list[_Part]] = []
    for band in _bands(ordered, gutter):
        left = [part for part in band if part.x1 <= gutter]
        right = [part for part in band if part.x0 >= gutter]
        if not left or not right:
            groups.append(band)
            continue
        groups.extend(in_columns(left, depth - 1))
        groups.extend(in_columns(right, depth - 1))
    return groups


def _bands(ordered: Sequence[_Part], gutter: float) -> Iterator[list[_Part]]:
    """Runs of parts beside the gap, and runs of parts across it."""
    held: list[_Part] = []
    held_crosses = False
    for part in ordered:
        crosses = part.x0 < gutter < part.x1
        if held and crosses is not held_crosses:
            yield held
            held = []
        held.append(part)
        held_crosses = crosses
    if held:
        yield held


def _gutter(parts: Sequence[_Part]) -> float | None:
    """Where an upright gap stands between two columns of running text; None when there is none."""
    if len(parts) < 2 * _LINES:
        return None
    first, last = min(part.x0 for part in parts), max(part.x1 for part in parts)
    width = last - first
    best: tuple[int, float, float] | None = None
    for step in range(int(width * 0.6 / _STEP)):
        x = first + 0.2 * width + step * _STEP
        left = [part for part in parts if part.x1 <= x]
        right = [part for part in parts if part.x0 >= x]
        crossing = len(parts) - len(left) - len(right)
        if crossing * 5 > len(parts) or len(left) < _LINES or len(right) < _LINES:
            continue
        start, stop = max(part.x1 for part in left), min(part.x0 for part in right)
        if stop - start < _GUTTER or not _runs_like_text(left, start - first):
            continue
        if not _runs_like_text(right, last - stop) or not _beside(left, right):
            continue
        if best is None or (crossing, start - stop) < best[:2]:
            best = (crossing, start - stop, (start + stop) / 2)
    return best[2] if best else None


def _runs_like_text(parts: Sequence[_Part], width: float) -> bool:
    """Most lines fill most of the column, which the cells of a table don't."""
    return sum(part.x1 - part.x0 > 0.6 * width for part in parts) * 2 >= len(parts)


def _beside(left: Sequence[_Part], right: Sequence[_Part]) -> bool:
    """Both stand at the same height for at least half of the shorter one."""
    tops = min(p.top for p in left), min(p.top for p in right)
    bottoms = max(p.bottom for p in left), max(p.bottom for p in right)
    shorter = min(bottoms[0] - tops[0], bottoms[1] - tops[1])
    return min(bottoms) - max(tops) >= 0.5 * shorter
