"""DOCX styles: what a paragraph is by its style, whatever language the style's name is in."""

import re
from dataclasses import dataclass
from enum import StrEnum
from xml.etree.ElementTree import Element

_MAX_BASES = 12
_HEADING = re.compile(
    r"(?:heading|überschrift|titre|título|titolo|rubrik|nagłówek|заголовок|kop|标题|標題|見出し|제목)\s*([1-9])\Z",
    re.IGNORECASE,
)
_TITLE = frozenset(("title", "titel", "titre principal", "标题", "標題", "표제"))
_CONTENTS = re.compile(
    r"(?:toc\b|table of (?:contents|figures|authorities)|contents\b|index \d|目录)", re.IGNORECASE
)
_CODE = re.compile(r"code\b|source ?code|preformatted|listing|monospace|代码", re.IGNORECASE)
MONO = re.compile(r"mono|courier|consol|menlo|monaco|typewriter", re.IGNORECASE)


class StyleKind(StrEnum):
    BODY = "body"
    HEADING = "heading"
    TITLE = "title"
    CONTENTS = "contents"
    CODE = "code"


@dataclass(frozen=True, slots=True)
class ParagraphStyle:
    """``level``, 1 to 6, is a HEADING's. ``num_id`` names a list; ``num_level`` is -1 where it isn't said."""

    style_id: str = ""
    kind: StyleKind = StyleKind.BODY
    level: int = 0
    num_id: str = ""
    num_level: int = -1
    bold: bool = False
    mono: bool = False


def read_styles(root: Element | None) -> dict[str, ParagraphStyle]:
    """By style id; the default paragraph style also under ''."""
    elements = {
        element.get("styleId", ""): element
        for element in (root.iter("style") if root is not None else ())
        if element.get("type") == "paragraph"
    }
    styles = {style_id: _style(style_id, elements) for style_id in elements}
    default = next((i for i, e in elements.items() if e.get("default") in ("1", "true", "on")), None)
    return {"": styles[default] if default is not None else ParagraphStyle(), **styles}


def _style(style_id: str, elements: dict[str, Element]) -> ParagraphStyle:
    """The nearest of the style and those it is based on decides each question."""
    kind, level, num_id, num_level = StyleKind.BODY, 0, "", -1
    bold = mono = None
    for element in _bases(style_id, elements):
        if kind is StyleKind.BODY:
            kind, level = _kind(element)
        number = element.find("pPr/numPr/numId")
        if number is not None and not num_id:
            num_id = number.get("val", "")
            num_level = outline_level(element, "pPr/numPr/ilvl")
        properties = element.find("rPr")
        if properties is not None:
            bold = is_on(properties, "b") if bold is None else bold
            fonts = properties.find("rFonts")
            if fonts is not None and mono is None:
                mono = bool(MONO.search(fonts.get("ascii", "")))
    return ParagraphStyle(style_id, kind, level, num_id, num_level, bool(bold), bool(mono))


def _bases(style_id: str, elements: dict[str, Element]) -> list[Element]:
    chain: list[Element] = []
    while style_id in elements and len(chain) < _MAX_BASES:
        chain.append(elements[style_id])
        based_on = elements[style_id].find("basedOn")
        style_id = based_on.get("val", "") if based_on is not None else ""
    return chain


def _kind(element: Element) -> tuple[StyleKind, int]:
    named = element.find("name")
    name = (named.get("val", "") if named is not None else "").strip()
    if match := _HEADING.match(name):
        return StyleKind.HEADING, min(int(match.group(1)), 6)
    if name.lower() in _TITLE:
        return StyleKind.TITLE, 0
    if _CONTENTS.match(name):
        return StyleKind.CONTENTS, 0
    if _CODE.search(name):
        return StyleKind.CODE, 0
    level = outline_level(element, "pPr/outlineLvl")
    return (StyleKind.HEADING, min(level + 1, 6)) if 0 <= level < 9 else (StyleKind.BODY, 0)


def outline_level(element: Element, path: str) -> int:
    """The number in the ``val`` of the element at ``path``; -1 when there is none."""
    found = element.find(path)
    value = found.get("val", "") if found is not None else ""
    return int(value) if re.fullmatch(r"\d{1,3}", value) else -1


def is_on(properties: Element, tag: str) -> bool | None:
    """A switch of a run or paragraph; None when it isn't there."""
    switch = properties.find(tag)
    return None if switch is None else switch.get("val", "1") not in ("0", "false", "off", "none")
