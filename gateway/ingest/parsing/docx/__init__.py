"""DOCX: Word's paragraphs, headings, lists and tables, read from the document's XML (ECMA-376)."""

import re
from collections.abc import Iterator, Mapping
from xml.etree.ElementTree import Element

from gateway.errors import DocumentRejected
from gateway.ingest.document import BlockKind, ParsedDocument
from gateway.ingest.parsing.archive import OfficePackage
from gateway.ingest.parsing.docx.numbering import Numbering, read_numbering
from gateway.ingest.parsing.docx.styles import ParagraphStyle, StyleKind, outline_level, read_styles
from gateway.ingest.parsing.docx.table import cells_of, is_layout, read_table
from gateway.ingest.parsing.docx.text import ParagraphText, boxes_of, children_of, read_text
from gateway.ingest.parsing.outline import Heading, Piece, outline, readable_name
from gateway.ingest.parsing.rendering import fenced, plain_text

PARSER_VERSION = "docx/1"

#: tables inside tables deeper than this are read as if their cells were paragraphs
_MAX_DEPTH = 12
_BOLD_HEADING_CHARS = 80
_BOLD_HEADING_LEVEL = 2
_ENDS_LIKE_TEXT = tuple(".。;；,，:：…!！")


def parse_docx(content: bytes, source: str) -> ParsedDocument:
    """The title is the paragraph styled as one, else the only level-1 heading, else the file's own title,
    else its name.

    Raises DocumentRejected corrupt, encrypted, unsupported_type, bomb, blank or too_complex.
    """
    package = OfficePackage(content)
    main = package.main_part()
    document = package.xml(main)
    body = document.find("body") if document is not None else None
    if body is None:
        raise DocumentRejected("corrupt", "The file is an Office document, but not one of Word.")
    parts = package.related(main)
    walk = _Walk(
        read_styles(package.xml(parts.get("styles", ""))),
        read_numbering(package.xml(parts.get("numbering", ""))),
        _notes(package, parts),
    )
    walk.children(body)
    walk.end()
    items = walk.items
    if not any(isinstance(item, Heading) for item in items):
        items = [_bold_heading(item) for item in items]
    if not items and not walk.title:
        raise DocumentRejected("blank", "No text was found in the file.")
    title = walk.title
    if not title and sum(isinstance(item, Heading) and item.level == 1 for item in items) != 1:
        title = _own_title(package) or readable_name(source)
    return outline(items, source=source, parser_version=PARSER_VERSION, title=title)


class _Walk:
    """State of one walk: finished items, and the list or code that is being gathered."""

    def __init__(
        self, styles: Mapping[str, ParagraphStyle], numbering: Numbering, notes: Mapping[str, str]
    ) -> None:
        self.items: list[Heading | Piece] = []
        self.title = ""
        self._styles = styles
        self._numbering = numbering
        self._notes = notes
        self._held: list[str] = []
        self._held_kind = BlockKind.LIST

    def children(self, element: Element, depth: int = 0) -> None:
        for child in children_of(element):
            if child.tag == "p":
                self._paragraph(child, depth)
            else:
                self._table(child, depth)

    def end(self) -> None:
        """What was gathered becomes one piece."""
        lines, self._held = self._held, []
        text = "\n".join(lines)
        if text.strip():
            is_code = self._held_kind is BlockKind.CODE
            self.items.append(Piece(self._held_kind, fenced(text) if is_code else text))

    def _paragraph(self, paragraph: Element, depth: int) -> None:
        said = read_text(paragraph, self._notes)
        style = self._style(paragraph)
        label, level = self._label(paragraph, style)
        if style.kind is StyleKind.CODE or (said.mono and not label):
            self._gather(BlockKind.CODE, _raw_text(paragraph))
        elif not said.text or style.kind is StyleKind.CONTENTS:
            self.end() if said.text else None
        elif style.kind in (StyleKind.TITLE, StyleKind.HEADING):
            self._heading(said, style, label)
        elif label:
            indent = "  " * level
            hanging = indent + " " * (len(label) + 1)
            self._gather(BlockKind.LIST, f"{indent}{label} " + said.text.replace("\n", f"\n{hanging}"))
        else:
            self.end()
            bold = (style.bold if said.bold is None else said.bold) or bool(said.first_bold)
            self.items.append(Piece(BlockKind.TEXT, said.text, bold=bold))
        if depth < _MAX_DEPTH:
            for box in boxes_of(paragraph):
                self.end()
                self.children(box, depth + 1)

    def _heading(self, said: ParagraphText, style: ParagraphStyle, label: str) -> None:
        self.end()
        text = re.sub(r"\s+", " ", f"{label} {said.text}" if label not in ("", "-") else said.text)
        if style.kind is StyleKind.HEADING:
            self.items.append(Heading(style.level, text))
        elif not self.title and not self.items:
            self.title = text
        else:
            self.items.append(Heading(1, text))

    def _style(self, paragraph: Element) -> ParagraphStyle:
        named = paragraph.find("pPr/pStyle")
        style = self._styles.get(named.get("val", "") if named is not None else "", self._styles[""])
        level = outline_level(paragraph, "pPr/outlineLvl")
        if 0 <= level < 9 and style.kind is StyleKind.BODY:
            return ParagraphStyle(
                style.style_id, StyleKind.HEADING, min(level + 1, 6), style.num_id, style.num_level
            )
        return style

    def _label(self, paragraph: Element, style: ParagraphStyle) -> tuple[str, int]:
        """The paragraph's bullet or number, and its level in the list. Each call counts on."""
        own = paragraph.find("pPr/numPr/numId")
        num_id = own.get("val", "") if own is not None else style.num_id
        if not num_id or num_id == "0":
            return "", 0
        level = outline_level(paragraph, "pPr/numPr/ilvl")
        if level < 0:
            level = style.num_level
        if level < 0:
            level = self._numbering.level_of(num_id, style.style_id)
        return self._numbering.label(num_id, level), level

    def _gather(self, kind: BlockKind, line: str) -> None:
        if self._held and kind is not self._held_kind:
            self.end()
        self._held_kind = kind
        self._held.append(line)

    def _table(self, table: Element, depth: int) -> None:
        self.end()
        if depth >= _MAX_DEPTH:
            texts = [read_text(paragraph, self._notes).text for paragraph in table.iter("p")]
            self.items.append(Piece(BlockKind.TEXT, "\n".join(filter(None, texts))))
        elif is_layout(table):
            for cell in cells_of(table):
                self.children(cell, depth + 1)
                self.end()
        elif piece := read_table(table, lambda cell: self._cell_text(cell, depth + 1)):
            self.items.append(piece)

    def _cell_text(self, cell: Element, depth: int) -> str:
        inner = _Walk(self._styles, self._numbering, self._notes)
        inner.children(cell, depth)
        inner.end()
        texts = [inner.title, *(plain_text(item) for item in inner.items)]
        return re.sub(r"\s+", " ", " ".join(texts)).strip()


def _raw_text(paragraph: Element) -> str:
    """With all of its spaces, as code needs it."""
    parts = []
    for element in paragraph.iter():
        if element.tag == "t":
            parts.append(element.text or "")
        elif element.tag in ("tab", "br") and element.get("pos") is None:
            parts.append("    " if element.tag == "tab" else "\n")
    return "".join(parts).rstrip()


def _bold_heading(item: Heading | Piece) -> Heading | Piece:
    """In a document without headings, short bold lines are what its author meant as such."""
    if isinstance(item, Heading) or not item.bold or "\n" in item.text or item.kind is not BlockKind.TEXT:
        return item
    if len(item.text) > _BOLD_HEADING_CHARS or item.text.endswith(_ENDS_LIKE_TEXT):
        return item
    return Heading(_BOLD_HEADING_LEVEL, item.text)


def _notes(package: OfficePackage, parts: Mapping[str, str]) -> dict[str, str]:
    return {
        f"{kind} {element.get('id', '')}": text
        for kind in ("footnote", "endnote")
        for element in _note_elements(package, parts.get(f"{kind}s", ""))
        if (text := " ".join(read_text(paragraph, {}).text for paragraph in element.iter("p")).strip())
    }


def _note_elements(package: OfficePackage, part: str) -> Iterator[Element]:
    root = package.xml(part)
    for element in root if root is not None else ():
        if element.get("type", "normal") == "normal":  # others are the lines that part notes from text
            yield element


def _own_title(package: OfficePackage) -> str:
    properties = package.xml(package.related("").get("core-properties", ""))
    found = properties.find("title") if properties is not None else None
    title = re.sub(r"\s+", " ", found.text or "").strip() if found is not None else ""
    return "" if re.fullmatch(r"(?i)(word document|document\d*|untitled|.*\.\w{2,5})?", title) else title
