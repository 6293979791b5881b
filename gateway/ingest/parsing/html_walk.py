"""The walk through an HTML tree: elements in, headings and pieces out."""

import re
from collections.abc import Iterator

from selectolax.lexbor import LexborNode

from gateway.ingest.document import BlockKind
from gateway.ingest.parsing.html_table import CELL_TAGS, read_table
from gateway.ingest.parsing.outline import Heading, Piece
from gateway.ingest.parsing.rendering import fenced, list_text

#: below this depth elements count as plain text, so that hostile nesting can't exhaust the stack
_MAX_DEPTH = 80
_DROPPED = frozenset(
    "script style nav footer aside noscript template button svg math iframe canvas object embed head select"
    " option textarea input datalist dialog audio video map link meta title".split()
)
_DROPPED_ROLES = frozenset("navigation search banner contentinfo complementary menu menubar toolbar".split())
_DROPPED_NAMES = frozenset(
    "toc table-of-contents sphinxsidebar headerlink breadcrumb breadcrumbs skip-link skip-to-content".split()
)
_BLOCKS = frozenset(
    "address article body center dd details div dt fieldset figcaption figure header hgroup html li main p"
    " section summary tbody td tfoot th thead tr blockquote form dir".split()
)
_PERMALINKS = frozenset(("", "¶", "#", "§", "🔗", "🔗\ufe0e", "\uf0c1", "link", "permalink"))
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_HIDDEN_STYLE = re.compile(r"(?:display\s*:\s*none|visibility\s*:\s*hidden)", re.IGNORECASE)
_LANGUAGE = re.compile(r"(?:^|\s)(?:language|lang|highlight|brush:|sourceCode)[-\s]?([\w+#.-]+)")
_NO_LANGUAGE = frozenset(("default", "none", "text", "plaintext", "notranslate"))
_BREAK = "\v"


def items_of(root: LexborNode, *, forms: bool = False) -> list[Heading | Piece]:
    """Headings and pieces below ``root`` in order. ``forms``: read into forms (some pages are one)."""
    walk = _Walk(forms)
    walk.children(root, 0)
    walk.flush()
    return walk.items


def text_of(node: LexborNode) -> str:
    """All visible text below, white space as it is. Iterative: any depth is fine."""
    parts: list[str] = []
    stack = [node]
    while stack:
        current = stack.pop()
        tag = current.tag or ""
        if tag == "-text":
            parts.append(current.text_content or "")
        elif tag == "br":
            parts.append("\n")
        elif current is node or not _is_dropped(current, tag):
            stack.extend(reversed(list(current.iter(include_text=True))))
    return "".join(parts)


def _is_dropped(node: LexborNode, tag: str, forms: bool = False) -> bool:
    if tag in _DROPPED or tag[:1] in "-!" or (tag == "form" and not forms):
        return True
    attributes = node.attributes
    if not attributes:
        return False
    if "hidden" in attributes or attributes.get("aria-hidden") == "true":
        return True
    if attributes.get("role") in _DROPPED_ROLES or _HIDDEN_STYLE.search(attributes.get("style") or ""):
        return True
    names = {attributes.get("id") or "", *(attributes.get("class") or "").split()}
    return not names.isdisjoint(_DROPPED_NAMES)


def _is_permalink(node: LexborNode) -> bool:
    target = node.attributes.get("href") or ""
    return target.startswith("#") and text_of(node).strip().lower() in _PERMALINKS


class _Walk:
    """State of one walk: finished items, and the inline text gathered since the last block began."""

    def __init__(self, forms: bool = False) -> None:
        self.items: list[Heading | Piece] = []
        self._forms = forms
        self._run: list[str] = []

    def children(self, node: LexborNode, depth: int) -> None:
        if depth > _MAX_DEPTH:
            self._run.append(text_of(node))
            return
        for child in node.iter(include_text=True):
            tag = child.tag or ""
            if tag == "-text":
                self._run.append(child.text_content or "")
            elif not _is_dropped(child, tag, self._forms):
                self._element(child, tag, depth + 1)

    def flush(self, bold: bool = False) -> None:
        """Ends the paragraph: what was gathered becomes a text piece."""
        text = self._take()
        if text:
            self.items.append(Piece(BlockKind.TEXT, text, bold=bold))

    def _take(self) -> str:
        text = re.sub(r"[ \t\r\n\f]+", " ", "".join(self._run))
        self._run.clear()
        return re.sub(rf" ?{_BREAK} ?", "\n", text).strip()

    def _element(self, node: LexborNode, tag: str, depth: int) -> None:
        if tag in _HEADINGS:
            self._heading(node, _HEADINGS[tag], depth)
        elif tag == "header":
            self._header(node, depth)
        elif tag in ("ul", "ol", "menu"):
            self._list(node, tag, depth)
        elif tag == "dl":
            self._definitions(node, depth)
        elif tag == "pre":
            self.flush()
            self._code(node)
        elif tag == "table":
            self.flush()
            self._table(node, depth)
        elif tag in _BLOCKS:
            self.flush()
            self.children(node, depth)
            self.flush(bold=tag == "summary" or (tag == "p" and _is_bold(node)))
        else:
            self._inline(node, tag, depth)

    def _inline(self, node: LexborNode, tag: str, depth: int) -> None:
        if tag == "br":
            self._run.append(_BREAK)
        elif tag == "hr":
            self.flush()
        elif tag == "img":
            self._run.append(node.attributes.get("alt") or "")
        elif tag in ("code", "tt", "kbd", "samp"):
            code = text_of(node)
            self._run.append(f"`{code}`" if code.strip() and "`" not in code else code)
        elif tag != "a" or not _is_permalink(node):
            self.children(node, depth)

    def _heading(self, node: LexborNode, level: int, depth: int) -> None:
        self.flush()
        inner = _Walk(self._forms)
        inner.children(node, depth)
        text = re.sub(r"\s+", " ", " ".join([*(item.text for item in inner.items), inner._take()])).strip()
        text = text.replace("`", "")
        if text:
            self.items.append(Heading(level, text))

    def _header(self, node: LexborNode, depth: int) -> None:
        """Page furniture, but the content's own header may hold its headings."""
        self.flush()
        inner = _Walk(self._forms)
        inner.children(node, depth)
        self.items.extend(item for item in inner.items if isinstance(item, Heading))

    def _list(self, node: LexborNode, tag: str, depth: int) -> None:
        self.flush()
        if _is_table_of_contents(node):
            return
        start = node.attributes.get("start") or "1"
        number = int(start) if re.fullmatch(r"\d{1,6}", start) else 1
        entries: list[tuple[str, list[Heading | Piece]]] = []
        for child in node.iter(include_text=True):
            inner = _Walk(self._forms)
            child_tag = child.tag or ""
            if child_tag == "-text":
                inner._run.append(child.text_content or "")
            elif not _is_dropped(child, child_tag, self._forms):
                inner.children(child, depth) if child_tag == "li" else inner._element(child, child_tag, depth)
            inner.flush()
            if inner.items:
                entries.append((f"{number}." if tag == "ol" else "-", inner.items))
                number += 1
        if text := list_text(entries):
            self.items.append(Piece(BlockKind.LIST, text))

    def _definitions(self, node: LexborNode, depth: int) -> None:
        """Short definitions become one list; those with blocks inside, and questions, stay apart."""
        self.flush()
        entries: list[tuple[str, list[Heading | Piece]]] = []
        for term, items in _terms(node, depth, self._forms):
            simple = len(items) <= 1 and all(isinstance(i, Piece) and i.kind is BlockKind.TEXT for i in items)
            if simple and not term.endswith(("?", "？")):
                text = ": ".join(part for part in (term.rstrip(":："), *(i.text for i in items)) if part)
                entries.append(("-", [Piece(BlockKind.TEXT, text)]))
                continue
            self._end_list(entries)
            if term:
                self.items.append(Piece(BlockKind.TEXT, term, bold=True))
            self.items.extend(items)
        self._end_list(entries)

    def _end_list(self, entries: list[tuple[str, list[Heading | Piece]]]) -> None:
        if entries:
            self.items.append(Piece(BlockKind.LIST, list_text(entries)))
            entries.clear()

    def _code(self, node: LexborNode) -> None:
        parts = [child for child in node.iter() if child.tag == "code"]
        texts = [text_of(part) for part in parts] if len(parts) > 1 else [text_of(node)]
        code = "\n\n".join(text.strip("\n") for text in texts)
        if code.strip():
            self.items.append(Piece(BlockKind.CODE, fenced(code, _language(node))))

    def _table(self, node: LexborNode, depth: int) -> None:
        table = read_table(node, self._cell_text)
        if table is None:
            for cell in _cells(node):
                self.children(cell, depth + 1)
                self.flush()
            return
        if table.caption:
            self.items.append(Piece(BlockKind.TEXT, table.caption))
        self.items.append(Piece(BlockKind.TABLE, "", columns=table.columns, rows=table.rows))

    def _cell_text(self, cell: LexborNode) -> str:
        inner = _Walk(self._forms)
        inner.children(cell, _MAX_DEPTH // 2)
        inner.flush()
        return re.sub(r"\s+", " ", " ".join(item.text for item in inner.items)).strip()


def _terms(node: LexborNode, depth: int, forms: bool) -> Iterator[tuple[str, list[Heading | Piece]]]:
    """(term, what defines it) pairs; several terms of one definition are joined."""
    term: list[str] = []
    items: list[Heading | Piece] = []
    for child in _definition_parts(node):
        inner = _Walk(forms)
        inner.children(child, depth)
        inner.flush()
        if child.tag == "dt":
            if items:
                yield ", ".join(term), items
                term, items = [], []
            term.extend(item.text for item in inner.items)
        else:
            items.extend(inner.items)
    if term or items:
        yield ", ".join(term), items


def _definition_parts(node: LexborNode) -> Iterator[LexborNode]:
    for child in node.iter():
        if child.tag == "div":
            yield from child.iter()
        elif not _is_dropped(child, child.tag or ""):
            yield child


def _cells(table: LexborNode) -> Iterator[LexborNode]:
    """Cells of this table but not of tables inside it, and its caption."""
    stack = [table]
    while stack:
        current = stack.pop()
        if current.tag in CELL_TAGS or current.tag == "caption":
            yield current
        elif current is table or current.tag in ("thead", "tbody", "tfoot", "tr"):
            stack.extend(reversed(list(current.iter())))


def _is_bold(node: LexborNode) -> bool:
    """The paragraph is one bold line."""
    children = [c for c in node.iter(include_text=True) if c.tag != "-text" or (c.text_content or "").strip()]
    return len(children) == 1 and children[0].tag in ("b", "strong")


def _is_table_of_contents(node: LexborNode) -> bool:
    """Three or more links into the same page and next to nothing else."""
    links = node.css("a")
    if len(links) < 3 or not all((link.attributes.get("href") or "").startswith("#") for link in links):
        return False
    linked = sum(len(text_of(link).strip()) for link in links)
    return linked * 10 >= len(re.sub(r"\s+", " ", text_of(node)).strip()) * 9


def _language(pre: LexborNode) -> str:
    """From the class of the element, of its code child, or of the two elements around it."""
    around = pre.parent
    nodes = [pre, *(c for c in pre.iter() if c.tag == "code"), around, around.parent if around else None]
    for node in nodes:
        names = (node.attributes.get("class") or "") if node is not None else ""
        if (match := _LANGUAGE.search(names)) and match.group(1) not in _NO_LANGUAGE:
            return match.group(1)
    return ""
