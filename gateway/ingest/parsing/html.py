"""HTML pages: the main content's structure, without the page's furniture."""

import re

from selectolax.lexbor import LexborHTMLParser, LexborNode

from gateway.ingest.document import ParsedDocument
from gateway.ingest.parsing.html_walk import items_of, text_of
from gateway.ingest.parsing.outline import Heading, Piece, outline

PARSER_VERSION = "html/1"

_MAIN = ("main", '[role="main"]', "article")


def parse_html(text: str, source: str) -> ParsedDocument:
    """The title is the content's first h1, else ``<title>``, else the page's h1, else the file's name.

    An h1 outside the content is mostly the site's name.
    """
    page = LexborHTMLParser(text)
    items: list[Heading | Piece] = []
    for root in _roots(page):
        items = items_of(root) or items_of(root, forms=True)
        if any(isinstance(item, Piece) for item in items):
            break
    return outline(items, source=source, parser_version=PARSER_VERSION, fallback_title=_page_title(page))


def fragment_items(html: str) -> list[Heading | Piece]:
    """What a piece of HTML inside another format holds."""
    body = LexborHTMLParser(f"<body>{html}").body
    return items_of(body) if body is not None else []


def _roots(page: LexborHTMLParser) -> list[LexborNode]:
    """Where the content may be, best first. Of several articles none is the content: the body is."""
    roots = []
    for selector in _MAIN:
        found = page.css(selector)
        if found and (selector != "article" or len(found) == 1):
            roots.append(found[0])
    if page.body is not None:
        roots.append(page.body)
    return roots


def _page_title(page: LexborHTMLParser) -> str:
    for selector in ("head title", "h1"):
        node = page.css_first(selector)
        title = re.sub(r"\s+", " ", text_of(node)).strip() if node is not None else ""
        if title:
            return title
    return ""
