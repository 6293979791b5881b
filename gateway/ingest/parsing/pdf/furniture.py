"""PDF furniture: running headers, footers, page numbers, contents: things of the paper, not of the text."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from gateway.ingest.parsing.pdf.line import Line, PageTable

_Item = Line | PageTable
_Key = tuple[str | int, int]

#: how many lines at the top and at the bottom of a page may be furniture
_EDGE_LINES = 3
_SHARE = 0.6
#: the height of a band in points: what runs along the pages stays in one
_NEAR = 6.0
_PAGE_NUMBER = re.compile(
    r"(?:[-–—|(]\s*)?(?:(?:page|seite|p\.)\s*)?\d{1,4}(?:\s*(?:/|of|von)\s*\d{1,4})?(?:\s*[-–—|)])?"
    r"|第\s*\d{1,4}\s*页(?:\s*[/,，]?\s*共\s*\d{1,4}\s*页)?|[-–—]?\s*[ivxl]{1,6}\s*[-–—]?",
    re.IGNORECASE,
)
_OUTER_NUMBER = re.compile(r"(\d{1,4})\s+\D.*|.*\D\s(\d{1,4})", re.DOTALL)
#: "2.1 Limits . . . . . 14"
_CONTENTS_ENTRY = re.compile(r".*(?:(?:[.·…]\s?){5}|…{2})\s*(?:\d{1,4}|[ivxl]{1,6})", re.IGNORECASE)


def without_furniture(pages: Sequence[Sequence[_Item]]) -> list[list[_Item]]:
    """Drops entries of contents, page numbers at an edge of a page, and what stands at the edges of at least
    60 % of the pages (or of the left or the right ones) at the same height: the same text, digits aside, or
    any text beside the page's own number.
    """
    edges = [list(_edges(page)) for page in pages]
    running = _running(edges) | _running(edges[::2]) | _running(edges[1::2])
    dropped = {
        id(item)
        for page in edges
        for item in page
        if _is_page_number(item) or not running.isdisjoint(_keys(item))
    }
    return [
        [item for item in page if id(item) not in dropped and not _is_contents_entry(item)] for page in pages
    ]


def _edges(page: Sequence[_Item]) -> Iterator[_Item]:
    ordered = sorted(page, key=lambda item: item.top)
    at_top = ordered[:_EDGE_LINES]
    yield from at_top
    yield from ordered[max(len(at_top), len(ordered) - _EDGE_LINES) :]


def _keys(item: _Item) -> set[_Key]:
    """What an item may have in common with those of other pages, and where: its text without digits, and
    how far a number at its end is from the page's. Bands of height overlap: near items share one at least.
    """
    text = _text(item)
    traits: set[str | int] = {re.sub(r"\d+", "#", re.sub(r"\s+", "", text)).casefold()}
    match = _OUTER_NUMBER.fullmatch(text) if isinstance(item, Line) else None
    if match:
        traits.add(int(match.group(1) or match.group(2)) - item.page)
    bands = (round(item.top / _NEAR) * 2, round(item.top / _NEAR + 0.5) * 2 + 1)
    return {(trait, band) for trait in traits for band in bands}


def _running(edges: Sequence[Sequence[_Item]]) -> set[_Key]:
    """The keys that most pages have; one page alone has no neighbour to agree with."""
    counts: Counter[_Key] = Counter()
    for page in edges:
        counts.update(set().union(*(_keys(item) for item in page)))
    return {key for key, count in counts.items() if count >= 2 and count >= _SHARE * len(edges)}


def _text(item: _Item) -> str:
    if isinstance(item, Line):
        return item.text
    return "|".join("|".join(row) for row in (item.columns, *item.rows))


def _is_page_number(item: _Item) -> bool:
    return isinstance(item, Line) and bool(_PAGE_NUMBER.fullmatch(item.text.strip()))


def _is_contents_entry(item: _Item) -> bool:
    return isinstance(item, Line) and bool(_CONTENTS_ENTRY.fullmatch(item.text))
