"""Sentences and other smallest quotable pieces of a passage: table rows, code blocks, list items."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum


class PieceKind(StrEnum):
    SENTENCE = "sentence"
    ITEM = "item"
    ROW = "row"
    CODE = "code"


@dataclass(frozen=True, slots=True)
class Piece:
    """``text`` reads on its own (a row names its columns), ``source`` stands in the passage verbatim.

    ``lead`` is the sentence that introduces a list item or a code block, if there is one; ``heading`` the
    line above it that heads its part of the passage.
    """

    kind: PieceKind
    text: str
    source: str
    lead: str = ""
    heading: str = ""


_ABBREVIATIONS = frozenset(
    "e.g i.e cf vs mr mrs ms dr prof st jr sr approx dept est fig figs eq sec no nos vol art pp ca al inc ltd"
    " co corp jan feb mar apr jun jul aug sep sept oct nov dec".split()
)
# These end a sentence as well when a capital follows.
_MAYBE_FINAL = frozenset({"inc", "ltd", "co", "corp", "al", "st", "sec", "no"})
_END = re.compile(
    r"(?P<latin>[.!?]+[\"”’')\]]*)(?=\s|$)|(?P<cjk>[。！？；]+[\"”’』」）)]*)|(?P<break>\n[ \t]*\n)"
)
_FENCE = re.compile(r" {0,3}(?P<run>`{3,}|~{3,})")
_ITEM = re.compile(r"(?P<indent>[ \t]*)(?P<bullet>[-*+•]|\d{1,3}[.)、])[ \t]+(?P<text>\S.*)")
_HEADING = re.compile(r" {0,3}#{1,6}[ \t]")
# no two runs of blanks side by side, which would be tried against each other
_RULE = re.compile(r"[ \t]*(?:\|[ \t]*)?:?-{2,}:?[ \t]*(?:\|[ \t]*:?-{2,}:?[ \t]*)*(?:\|[ \t]*)?$")
_THEMATIC = re.compile(r" {0,3}(?:[-*_][ \t]*){3,}$")
_COMMAND = re.compile(r"[ \t]*\$ \S|(?: {4}|\t)\S")
_CELL = re.compile(r"(?<!\\)\|")
_NEXT = re.compile(r"\S")
#: how far back a word is looked for
_WORD_CHARS = 64
#: a line that begins a sentence, and its first word
_BEGINNING = re.compile(r"[ \t]*(?P<word>[\u3000-\u9fff]|[A-Z0-9\"“‘'(]\S*)")
_STOPPED = re.compile(r"[.!?:;,。！？：；，、…][\"”’』」）)]*\s*$")
_HEADING_CHARS = 60
_HAN = re.compile(r"[\u3000-\u9fff\uff00-\uffef]")


def split_sentences(text: str) -> list[str]:
    """Verbatim sentences of prose, stripped; abbreviations, initials and decimals don't end one."""
    found, start = [], 0
    for match in _END.finditer(text):
        if match["latin"] and not _ends(text, start, match):
            continue
        found.append(text[start : match.end()].strip())
        start = match.end()
    found.append(text[start:].strip())
    return [sentence for sentence in found if sentence]


def _ends(text: str, start: int, match: re.Match[str]) -> bool:
    found = _NEXT.search(text, match.end())
    following = found[0] if found else ""
    if not following or match["latin"][0] != ".":
        return True
    # only the word before matters: with all that is before, "e.g. e.g. …" would be read over and over
    near = max(start, match.start() - _WORD_CHARS)
    words = text[near : match.start()].split()
    word = words[-1].lstrip("(\"'[“").lower() if words else ""
    if following.islower() or (word.isdigit() and len(words) == 1 and near == start):
        return False
    if word in _ABBREVIATIONS:
        return word in _MAYBE_FINAL and following.isupper()
    return not (len(word) == 1 and word.isalpha() and words[-1][-1:].isupper())


def pieces(content: str) -> list[Piece]:
    """Everything quotable, in order; headings, rules and table heads are left out."""
    reader = _Reader(content)
    return [replace(piece, heading=reader.heading) if reader.heading else piece for piece in reader.read()]


def one_line(text: str) -> str:
    """Wrapped lines joined; no blank between Han characters."""
    lines = [line.strip(" \t>") for line in text.splitlines()]
    joined = ""
    for line in filter(None, lines):
        tight = joined and _HAN.match(joined[-1]) and _HAN.match(line[0])
        joined += line if not joined or tight else " " + line
    return joined


class _Reader:
    """Walks the lines once; ``_lead`` is the sentence that stood right before, ``heading`` the last one."""

    def __init__(self, content: str) -> None:
        self._lines = content.split("\n")
        self._width = max(map(len, self._lines))
        self._at = 0
        self._lead = ""
        self.heading = ""

    def read(self) -> Iterator[Piece]:
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if not line.strip() or _HEADING.match(line) or _THEMATIC.match(line):
                self._lead = self._lead if not line.strip() else ""
                self._at += 1
            elif fence := _FENCE.match(line):
                yield self._fence(fence["run"])
            elif self._is_table():
                yield from self._table()
            elif _ITEM.match(line):
                yield from self._items()
            elif _COMMAND.match(line):
                yield self._commands()
            else:
                yield from self._paragraph()

    def _take(self, until: int) -> str:
        taken = "\n".join(self._lines[self._at : until])
        self._at = until
        return taken

    def _fence(self, run: str) -> Piece:
        close = re.compile(rf" {{0,3}}{re.escape(run[0])}{{{len(run)},}}[ \t]*$")
        end = self._at + 1
        while end < len(self._lines) and not close.match(self._lines[end]):
            end += 1
        source = self._take(min(end + 1, len(self._lines)))
        whole = source if end < len(self._lines) or self._at > end else f"{source}\n{run}"
        return Piece(PieceKind.CODE, whole, source, self._pop_lead())

    def _commands(self) -> Piece:
        end = self._at
        while end < len(self._lines) and _COMMAND.match(self._lines[end]):
            end += 1
        source = self._take(end)
        return Piece(PieceKind.CODE, f"```\n{source}\n```", source, self._pop_lead())

    def _is_table(self) -> bool:
        line = self._lines[self._at]
        after = self._lines[self._at + 1] if self._at + 1 < len(self._lines) else ""
        return "|" in line and "|" in after and bool(_RULE.match(after))

    def _table(self) -> Iterator[Piece]:
        columns = _cells(self._lines[self._at])
        self._at += 2
        while self._at < len(self._lines) and "|" in self._lines[self._at]:
            source = self._take(self._at + 1).strip()
            named = zip(columns, _cells(source), strict=False)
            text = "; ".join(f"{column}: {cell}" if column else cell for column, cell in named if cell)
            if text:
                yield Piece(PieceKind.ROW, text, source)
        self._lead = ""

    def _items(self) -> Iterator[Piece]:
        lead = self._lead if self._lead.endswith((":", "：")) else ""
        self._lead = ""
        while self._at < len(self._lines) and (item := _ITEM.match(self._lines[self._at])):
            end = self._at + 1
            while end < len(self._lines) and self._continues(end, len(item["indent"])):
                end += 1
            source = self._take(end)
            text = one_line(source[item.start("text") :])
            self._lead = text if text.endswith((":", "：")) else ""
            yield Piece(PieceKind.ITEM, text, source.strip(), lead)
            while self._at < len(self._lines) - 1 and not self._lines[self._at].strip():
                if not _ITEM.match(self._lines[self._at + 1]):
                    return
                self._at += 1

    def _continues(self, at: int, indent: int) -> bool:
        line = self._lines[at]
        deeper = len(line) - len(line.lstrip()) > indent
        return deeper and bool(line.strip()) and not _ITEM.match(line) and not _FENCE.match(line)

    def _paragraph(self) -> Iterator[Piece]:
        end = self._at + 1
        while end < len(self._lines) and self._is_prose(end):
            end += 1
        if end - self._at > 1 and self._is_heading(*self._lines[self._at : self._at + 2]):
            self.heading = self._take(self._at + 1).strip()
        for source in split_sentences(self._take(end)):
            text = one_line(source)
            if text:
                self._lead = text
                yield Piece(PieceKind.SENTENCE, text, source)

    def _is_heading(self, line: str, following: str) -> bool:
        """Small sections share a passage, each under its heading. That is no wrapped prose: the next line's
        first word would have had room, and begins a sentence.
        """
        began = _BEGINNING.match(following)
        fits = began is not None and len(line) + 1 + len(began["word"]) <= self._width
        return fits and len(line) <= _HEADING_CHARS and not _STOPPED.search(line)

    def _is_prose(self, at: int) -> bool:
        line = self._lines[at]
        if not line.strip() or _HEADING.match(line) or _FENCE.match(line) or _ITEM.match(line):
            return False
        following = self._lines[at + 1] if at + 1 < len(self._lines) else ""
        return not ("|" in line and _RULE.match(following) and "|" in following)

    def _pop_lead(self) -> str:
        lead, self._lead = self._lead, ""
        return lead


def _cells(row: str) -> list[str]:
    inner = row.strip().removeprefix("|")
    if inner.endswith("|") and not inner.endswith("\\|"):
        inner = inner[:-1]
    return [cell.strip().replace("\\|", "|") for cell in _CELL.split(inner)]
