"""DOCX text: what one paragraph says as the document stands now, without deletions, fields and pictures."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from gateway.ingest.parsing.docx.styles import MONO, is_on

#: deletions and moved text, what only lays out, and what fields are made of
_DROPPED = frozenset(
    "del moveFrom delText delInstrText instrText pPr rPr sdtPr sdtEndPr txbxContent pict rt ruby"
    " commentReference annotationRef footnoteRef endnoteRef Fallback".split()
)
_MARKS = {"tab": "\t", "cr": "\n", "noBreakHyphen": "-", "softHyphen": ""}
_SYMBOLS = {"f0b7": "•", "f0a7": "▪", "f0d8": "➢", "f0fc": "✓", "f0e0": "→", "f0e8": "→", "f02d": "-"}
_CONTENTS = "Table of Contents"
_MAX_DEPTH = 60


@dataclass(frozen=True, slots=True)
class _Run:
    text: str
    bold: bool | None
    mono: bool


@dataclass(frozen=True, slots=True)
class ParagraphText:
    """``bold``: all of it, or None where only the style says; ``mono`` likewise all of it.

    ``first_bold`` is the bold text that it begins with, up to a line end.
    """

    text: str
    bold: bool | None
    mono: bool
    first_bold: str = ""


def read_text(paragraph: Element, notes: Mapping[str, str]) -> ParagraphText:
    """``notes``: texts of foot- and endnotes by kind and id; they are put where they are referred to."""
    runs = [run for run in _runs(paragraph, notes, 0) if run.text]
    text = "".join(run.text for run in runs)
    said = [run for run in runs if run.text.strip()]
    bold: bool | None = None
    if said and len({run.bold for run in said}) == 1:
        bold = said[0].bold
    elif said:
        bold = False
    return ParagraphText(clean(text), bold, bool(said) and all(run.mono for run in said), _first_bold(runs))


def clean(text: str) -> str:
    """Single spaces inside lines; line ends stay."""
    text = re.sub(r"[^\S\n]+", " ", text.replace("\u00ad", ""))
    return re.sub(r" ?\n ?", "\n", text).strip()


def boxes_of(paragraph: Element) -> Iterator[Element]:
    """The contents of text boxes that hang on the paragraph, each once."""
    stack = [paragraph]
    while stack:
        element = stack.pop()
        if element.tag == "txbxContent":
            yield element
        elif element.tag not in ("Fallback", "del", "moveFrom"):
            stack.extend(reversed(element))


def children_of(element: Element, depth: int = 0) -> Iterator[Element]:
    """Paragraphs and tables, those inside content controls and insertions included; no table of contents."""
    for child in element:
        if child.tag in ("p", "tbl"):
            yield child
        elif child.tag in ("sdt", "sdtContent", "customXml", "ins", "moveTo") and depth < _MAX_DEPTH:
            gallery = child.find("sdtPr/docPartObj/docPartGallery")
            if gallery is None or gallery.get("val") != _CONTENTS:
                yield from children_of(child, depth + 1)


def _first_bold(runs: list[_Run]) -> str:
    text = ""
    for run in runs:
        head, end, _ = run.text.partition("\n")
        if not run.bold and run.text.strip():
            return ""
        text += head
        if end:
            return clean(text)
    return ""


def _runs(element: Element, notes: Mapping[str, str], depth: int) -> Iterator[_Run]:
    for child in element:
        if child.tag == "r":
            yield from _run(child, notes, depth)
        elif child.tag in ("t", "m"):  # of a formula
            yield _Run(child.text or "", None, False)
        elif child.tag not in _DROPPED and depth < _MAX_DEPTH:
            yield from _runs(child, notes, depth + 1)


def _run(run: Element, notes: Mapping[str, str], depth: int) -> Iterator[_Run]:
    properties = run.find("rPr")
    bold, mono = None, False
    if properties is not None:
        if is_on(properties, "vanish"):
            return
        bold = is_on(properties, "b")
        fonts = properties.find("rFonts")
        mono = fonts is not None and bool(MONO.search(fonts.get("ascii", "")))
    parts: list[str] = []
    for child in run:
        if child.tag == "AlternateContent" and depth < _MAX_DEPTH:
            choice = child.find("Choice")
            parts.extend(
                inner.text for inner in _runs(choice, notes, depth + 1)
            ) if choice is not None else None
        else:
            parts.append(_mark(child, notes))
    yield _Run("".join(parts), bold, mono)


def _mark(child: Element, notes: Mapping[str, str]) -> str:
    match child.tag:
        case "t":
            return child.text or ""
        case "br":
            return "\n" if child.get("type") in (None, "textWrapping") else " "
        case "sym":
            return _SYMBOLS.get(child.get("char", "").lower(), "")
        case "footnoteReference" | "endnoteReference":
            note = notes.get(f"{child.tag.removesuffix('Reference')} {child.get('id', '')}", "")
            return f" [{note}]" if note else ""
        case tag:
            return _MARKS.get(tag, "")
