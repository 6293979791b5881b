"""Workbook: what all sheets of an XLSX file share: texts, formats, and which sheets can be seen."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from gateway.errors import DocumentRejected
from gateway.ingest.parsing.archive import OfficePackage
from gateway.ingest.parsing.xlsx.number import BUILT_IN

_WHOLE = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class CellFormat:
    code: str = ""
    bold: bool = False


@dataclass(frozen=True, slots=True)
class Workbook:
    """``sheets`` are (name, name of the part) of those that aren't hidden, in order."""

    sheets: tuple[tuple[str, str], ...]
    texts: tuple[str, ...]
    formats: tuple[CellFormat, ...]
    since_1904: bool


def read_workbook(package: OfficePackage) -> Workbook:
    """Raises DocumentRejected corrupt or too_complex."""
    main = package.main_part()
    root = package.xml(main)
    listed = root.find("sheets") if root is not None else None
    if root is None or listed is None:
        raise DocumentRejected("corrupt", "The file is an Office document, but not one of Excel.")
    targets = {name: target for name, kind, target in package.relations(main) if kind == "worksheet"}
    parts = package.related(main)
    properties = root.find("workbookPr")
    return Workbook(
        tuple(_visible(listed, targets)),
        tuple(_text(item) for item in _children(package.xml(parts.get("sharedStrings", "")), "si")),
        tuple(_formats(package.xml(parts.get("styles", "")))),
        properties is not None and properties.get("date1904") in ("1", "true"),
    )


def whole(text: str, default: int) -> int:
    """A number as XML writes it; ``default`` where it is none, or larger than any in a workbook."""
    return int(text) if _WHOLE.fullmatch(text) else default


def _visible(listed: Element, targets: dict[str, str]) -> Iterator[tuple[str, str]]:
    for sheet in listed:
        target = targets.get(sheet.get("id", ""))
        if target is not None and sheet.get("state", "visible") == "visible":
            yield sheet.get("name", "").strip(), target


def _text(item: Element) -> str:
    """Of all its runs, without the reading aids of Japanese."""
    return "".join(part.text or "" for child in item if child.tag in ("t", "r") for part in child.iter("t"))


def _formats(root: Element | None) -> Iterator[CellFormat]:
    if root is None:
        return
    codes = {
        whole(form.get("numFmtId", ""), -1): form.get("formatCode", "")
        for form in _children(root.find("numFmts"), "numFmt")
    }
    bold = [
        switch is not None and switch.get("val", "1") not in ("0", "false")
        for switch in (font.find("b") for font in _children(root.find("fonts"), "font"))
    ]
    for form in _children(root.find("cellXfs"), "xf"):
        code, at = whole(form.get("numFmtId", ""), 0), whole(form.get("fontId", ""), 0)
        yield CellFormat(codes.get(code, BUILT_IN.get(code, "")), at < len(bold) and bold[at])


def _children(element: Element | None, tag: str) -> Iterator[Element]:
    return (child for child in (element if element is not None else ()) if child.tag == tag)
