"""DOCX numbering: the bullets and numbers that Word shows but doesn't write into the text."""

import re
from dataclasses import dataclass, field
from xml.etree.ElementTree import Element

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_CHINESE = "零一二三四五六七八九"
_ROMAN = ((100, "c"), (90, "xc"), (50, "l"), (40, "xl"), (10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i"))
_MAX_LEVEL = 8


@dataclass(frozen=True, slots=True)
class _Level:
    form: str
    text: str
    start: int


@dataclass(slots=True)
class Numbering:
    """Labels in document order: each call counts on. ``num_id`` and levels are as paragraphs give them."""

    _levels: dict[str, dict[int, _Level]] = field(default_factory=dict)
    _lists: dict[str, str] = field(default_factory=dict)
    _style_levels: dict[tuple[str, str], int] = field(default_factory=dict)
    _counts: dict[str, list[int]] = field(default_factory=dict)

    def label(self, num_id: str, level: int) -> str:
        """``-`` for a bullet, a number as it is shown ("3.", "(b)", "1.2"), or nothing."""
        definition = self._lists.get(num_id)
        if definition is None:
            return ""
        level = max(0, min(level, _MAX_LEVEL))
        levels = self._levels.get(definition, {})
        own = levels.get(level)
        if own is None or own.form in ("bullet", "none"):
            return "-" if own is None or own.form == "bullet" else ""
        counts = self._counts.setdefault(definition, [])
        while len(counts) <= level:
            above = levels.get(len(counts))
            counts.append((above.start if above else 1) - 1)
        del counts[level + 1 :]
        counts[level] += 1

        def shown(match: re.Match[str]) -> str:
            at = int(match.group(1)) - 1
            if not 0 <= at <= level:
                return ""
            form = levels[at].form if at in levels else "decimal"
            return _number(max(counts[at], 1), "decimal" if form == "bullet" else form)

        return re.sub(r"%(\d)", shown, own.text).strip()

    def level_of(self, num_id: str, style_id: str) -> int:
        """The level that a style's paragraphs have where they don't say it themselves."""
        return self._style_levels.get((self._lists.get(num_id, ""), style_id), 0)


def read_numbering(root: Element | None) -> Numbering:
    numbering = Numbering()
    for element in root if root is not None else ():
        if element.tag == "abstractNum":
            _read_definition(numbering, element)
        elif element.tag == "num":
            definition = element.find("abstractNumId")
            if definition is not None:
                numbering._lists[element.get("numId", "")] = definition.get("val", "")
    return numbering


def _read_definition(numbering: Numbering, element: Element) -> None:
    name = element.get("abstractNumId", "")
    levels = numbering._levels.setdefault(name, {})
    for child in element.iter("lvl"):
        at = _integer(child.get("ilvl"), 0)
        levels[at] = _Level(
            _value(child, "numFmt", "decimal"),
            _value(child, "lvlText", ""),
            _integer(_value(child, "start", "1"), 1),
        )
        if style := _value(child, "pStyle", ""):
            numbering._style_levels[name, style] = at


def _value(element: Element, tag: str, default: str) -> str:
    child = element.find(tag)
    return child.get("val", default) if child is not None else default


def _integer(text: str | None, default: int) -> int:
    return int(text) if text and re.fullmatch(r"\d{1,6}", text) else default


def _number(value: int, form: str) -> str:
    if form in ("lowerLetter", "upperLetter"):
        text = _LETTERS[(value - 1) % 26] * ((value - 1) // 26 + 1)
        return text.upper() if form == "upperLetter" else text
    if form in ("lowerRoman", "upperRoman") and value < 400:
        text = _roman(value)
        return text.upper() if form == "upperRoman" else text
    if ("chinese" in form or "ideograph" in form or "japanese" in form) and value < 100:
        return _chinese(value)
    return f"{value:02}" if form == "decimalZero" else str(value)


def _roman(value: int) -> str:
    text = ""
    for worth, letters in _ROMAN:
        count, value = divmod(value, worth)
        text += letters * count
    return text


def _chinese(value: int) -> str:
    tens, ones = divmod(value, 10)
    head = "" if not tens else "十" if tens == 1 else _CHINESE[tens] + "十"
    return head + (_CHINESE[ones] if ones or not tens else "")
