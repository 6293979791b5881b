"""Encoding: turns a file's bytes into clean text, or says why that can't be done."""

import codecs
import re

from gateway.errors import DocumentRejected
from gateway.ingest.parsing.scripts import read_as_usual_text, read_as_utf16

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16: its mark begins with UTF-16's
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# What a page may declare; a declaration never picks a codec that isn't a character set.
_DECLARABLE = re.compile(
    r"(?:iso-?8859-\d+|latin-?1|us-ascii|windows-125\d|cp125\d|gb2312|gbk|gb18030|gb_2312-80|big5(?:-hkscs)?"
    r"|shift[-_]jis|euc-(?:jp|kr)|iso-2022-jp|koi8-[ru])\Z"
)
_META = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]{2,40})""", re.IGNORECASE)
_PARAMETER = re.compile(r"""charset\s*=\s*["']?([\w.:-]{2,40})""", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f]")
_DROPPED = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f\ufeff\ufffe\uffff]")
_EMPTY_LINES = re.compile(r"\n(?:[^\S\n]*\n){3,}")


def decode(content: bytes, media_type: str = "", *, markup: bool = False) -> str:
    """Text with ``\\n`` line ends, no byte order mark or control character, at most two empty lines in a row.

    A byte order mark decides; then UTF-8 if it is valid; then the character set that the media type
    or (``markup``) the page declares; then the one in which the text reads like a language.
    Raises DocumentRejected not_text or undecodable.
    """
    text = _decode(content, media_type, markup)
    controls = len(_CONTROL.findall(text))
    if controls > 8 and controls * 100 > len(text):
        raise DocumentRejected("not_text", "The file is named like text but is full of control characters.")
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\f", "\n")
    return _EMPTY_LINES.sub("\n\n\n", _DROPPED.sub("", text))


def _decode(content: bytes, media_type: str, markup: bool) -> str:
    for mark, codec in _BOMS:
        if content.startswith(mark):
            return _strictly(content, codec)
    if b"\0" in content:
        text = read_as_utf16(content)
        if text is None:
            raise DocumentRejected("not_text", "The file is named like text but contains zero bytes.")
        return text
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        pass
    declared = declared_charset(content, media_type, markup)
    if declared:
        return _strictly(content, declared)
    text = read_as_usual_text(content)
    if text is None:
        raise DocumentRejected(
            "undecodable",
            "The text encoding could not be determined. Save the file as UTF-8 and import it again.",
        )
    return text


def _strictly(content: bytes, codec: str) -> str:
    try:
        return content.decode(codec)
    except UnicodeDecodeError:
        if codec == "cp1252":  # five bytes have no meaning there; in Latin-1 they are control characters
            return content.decode("latin-1")
        raise DocumentRejected(
            "undecodable",
            f"The file says that its encoding is {codec.upper()}, but its bytes don't fit that.",
        ) from None


def declared_charset(content: bytes, media_type: str, markup: bool) -> str:
    """The Python codec for what is declared, with the WHATWG readings of gb2312 and Latin-1; else ''."""
    parameter = _PARAMETER.search(media_type)
    name = parameter.group(1) if parameter else ""
    if not name and markup and (meta := _META.search(content[:4096])):
        name = meta.group(1).decode("ascii", "replace")
    name = name.lower()
    if not _DECLARABLE.match(name):
        return ""
    if name.startswith("gb"):
        return "gb18030"
    if name in ("iso-8859-1", "iso8859-1", "latin1", "latin-1", "us-ascii"):
        return "cp1252"
    return name.replace("windows-", "cp") if name.startswith("windows-") else name
