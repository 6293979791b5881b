"""Source code: a block for each function, under the classes it belongs to; the rest stays together."""

import json
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.errors import DocumentRejected
from gateway.ingest.document import Block, BlockKind, ParsedDocument
from gateway.ingest.parsing.languages import Language, language_of
from gateway.ingest.parsing.outline import STEP_CHARS, TITLE_CHARS
from gateway.ingest.parsing.rendering import fenced

if TYPE_CHECKING:
    from tree_sitter import Node

PARSER_VERSION = "code/1"

#: a shorter definition stays with what surrounds it
_SMALL_CHARS = 200
#: a shorter class stays whole
_WHOLE_CHARS = 800
_SIGNATURE_CHARS = 240
#: generated or minified code: what it says can't be read, by people or by passages
_MINIFIED_CHARS = 20_000
_MINIFIED_LINE_CHARS = 500
#: stands before a definition and belongs to it
_COMMENTS = frozenset("comment line_comment block_comment".split())
_PRELUDES = _COMMENTS | {"attribute_item", "decorator"}
_SECTION = re.compile(r"^\[{1,2}([^\]\n]{1,80})\]{1,2}", re.MULTILINE)
_KEY = re.compile(r"^([\w\"'./-][^\n:=]{0,80}?)[ \t]*:(?=\s)", re.MULTILINE)
#: the type in a Go method's receiver: ``(s *Shop)``, ``(s Stack[T])``
_RECEIVER = re.compile(r"(\w+)\s*(?:\[.*\])?\s*\)\Z")
#: how the outermost parts of a configuration begin
_PARTS = {"toml": _SECTION, "ini": _SECTION, "yaml": _KEY}


@dataclass(frozen=True, slots=True)
class _Cut:
    """A stretch of the file. ``lead``: the line that says what it is a part of."""

    path: tuple[str, ...]
    text: str
    lead: str = ""


def parse_code(text: str, source: str) -> ParsedDocument:
    """The title is the file's path. Broken syntax is read as far as it goes; nothing is left out.

    Raises DocumentRejected too_complex for minified code.
    """
    language = language_of(source, text)
    if language.name == "json":
        text = _readable_json(text)
    _refuse_minified(text)
    blocks = [_block(cut, language.name) for cut in _grouped(_cuts(text, language))]
    return ParsedDocument(source[-TITLE_CHARS:].replace("\\", "/"), tuple(blocks), PARSER_VERSION)


def _block(cut: _Cut, language: str) -> Block:
    return Block(BlockKind.CODE, fenced(cut.text, language), cut.path, lead=cut.lead)


def _cuts(text: str, language: Language) -> Iterator[_Cut]:
    if language.name in _PARTS:
        return _by_keys(text, _PARTS[language.name])
    grammar = language.load()
    if grammar is None:
        return iter([_Cut((), text)])
    from tree_sitter import Parser

    content = text.encode()
    root = Parser(grammar).parse(content).root_node
    return _Outline(content, language).cuts(root.children, 0, len(content), _Cut((), ""))


class _Outline:
    """The definitions of one file, found in its syntax tree. Offsets are in bytes."""

    def __init__(self, content: bytes, language: Language) -> None:
        self._content = content
        self._language = language

    def cuts(self, nodes: Sequence["Node"], start: int, end: int, around: _Cut) -> Iterator[_Cut]:
        """The range in order, without a gap: definitions by themselves, what is between them ``around``."""
        at = start
        for begin, node in self._definitions(nodes):
            begin = max(begin, at)
            stop = self._line_end(node.end_byte)
            name = self._name(node)
            if not name or stop - begin <= _SMALL_CHARS:
                continue
            between = self._text(at, begin)
            if at == start and between.strip(" \t\r\n{") == around.lead:
                begin = at  # a mere ``class X {`` says nothing alone
            elif between:
                yield _Cut(around.path, between, around.lead)
            inner = _Cut((*around.path, *name), "", self._signature(node))
            if node.type in self._language.containers and stop - begin > _WHOLE_CHARS:
                yield from self.cuts(node.children, begin, stop, inner)
            else:
                yield _Cut(inner.path, self._text(begin, stop), inner.lead)
            at = stop
        if at < end:
            yield _Cut(around.path, self._text(at, end), around.lead)

    def _definitions(self, nodes: Sequence["Node"]) -> Iterator[tuple[int, "Node"]]:
        """Each with the offset where it begins: at the comments right above it."""
        prelude: Node | None = None
        last_row = -2
        for node in self._flat(nodes):
            if node.type in _PRELUDES:
                if self._begins_line(node) and (prelude is None or node.start_point.row > last_row + 1):
                    prelude = node
                last_row = node.end_point.row
                continue
            target = self._unwrapped(node)
            if target is not None:
                near = prelude is not None and node.start_point.row <= last_row + 1
                yield self._line_start((prelude if near and prelude else node).start_byte), target
            prelude = None

    def _flat(self, nodes: Sequence["Node"]) -> Iterator["Node"]:
        for node in nodes:
            if node.type in self._language.transparent or node.type == "ERROR":
                yield from self._flat(node.children)
            else:
                yield node

    def _unwrapped(self, node: "Node") -> "Node | None":
        while node.type in self._language.wrappers:
            held = node.child_by_field_name("definition") or node.child_by_field_name("declaration")
            held = held or next((child for child in node.named_children if self._defines(child)), None)
            if held is None:
                return None
            node = held
        return node if self._defines(node) else None

    def _defines(self, node: "Node") -> bool:
        known = self._language
        return node.type in known.definitions | known.containers | known.wrappers

    def _name(self, node: "Node") -> tuple[str, ...]:
        """The breadcrumb steps of a definition: its name, behind the type a Go method belongs to."""
        named, receiver = _named(node), node.child_by_field_name("receiver")
        steps = [_RECEIVER.search(self._line(receiver))] if receiver is not None else []
        names = [step.group(1) for step in steps if step]
        return (*names, self._line(named)) if named is not None else ()

    def _line(self, node: "Node") -> str:
        return re.sub(r"\s+", " ", self._text(node.start_byte, node.end_byte)).strip()[:STEP_CHARS]

    def _signature(self, node: "Node") -> str:
        comments = (child.start_byte for child in node.children if child.type in _COMMENTS)
        body = node.child_by_field_name("body")
        end = min(next(comments, node.end_byte), node.end_byte if body is None else body.start_byte)
        signature = self._text(node.start_byte, end).strip()
        if len(signature) > _SIGNATURE_CHARS:
            signature = signature.split("\n")[0].split("{")[0].strip()[:_SIGNATURE_CHARS]
        return signature

    def _begins_line(self, node: "Node") -> bool:
        return self._line_start(node.start_byte) < node.start_byte or node.start_point.column == 0

    def _line_start(self, offset: int) -> int:
        """The beginning of the line if only blanks stand before ``offset``."""
        start = self._content.rfind(b"\n", 0, offset) + 1
        return start if not self._content[start:offset].strip() else offset

    def _line_end(self, offset: int) -> int:
        """Behind the line if only punctuation follows ``offset`` in it."""
        newline = self._content.find(b"\n", offset)
        end = len(self._content) if newline < 0 else newline + 1
        return end if not self._content[offset:end].strip(b" \t\r\n;,)") else offset

    def _text(self, start: int, end: int) -> str:
        return self._content[start:end].decode()


def _named(node: "Node") -> "Node | None":
    """Where the name stands: behind C's declarators, in a field, in Rust's ``impl`` and one step below."""
    declarator = node.child_by_field_name("declarator")
    if declarator is not None:
        return _innermost(declarator)
    named = node.child_by_field_name("name") or node.child_by_field_name("type")
    below = (child for child in node.named_children if child.type.endswith(("spec", "declarator")))
    inner = next(below, None) if named is None else None
    return named if inner is None else inner.child_by_field_name("name")


def _innermost(declarator: "Node") -> "Node":
    inner = declarator.child_by_field_name("declarator")
    if inner is None and declarator.type == "reference_declarator":
        inner = declarator.named_children[-1]
    return declarator if inner is None else _innermost(inner)


def _by_keys(text: str, beginning: re.Pattern[str]) -> Iterator[_Cut]:
    """Configuration by its outermost keys or its sections, comments above included."""
    parts = list(beginning.finditer(text))
    starts = [_with_comments(text, part.start()) for part in parts]
    at = 0
    for part, start, end in zip(parts, starts, [*starts, len(text)][1:], strict=True):
        if end - start <= _SMALL_CHARS:
            continue
        if start > at:
            yield _Cut((), text[at:start])
        yield _Cut((part.group(1).strip(" \"'"),), text[start:end], part.group())
        at = end
    if at < len(text):
        yield _Cut((), text[at:])


def _with_comments(text: str, start: int) -> int:
    """Where the comment lines right above ``start`` begin."""
    while start:
        above = text.rfind("\n", 0, start - 1) + 1
        if not text[above:start].lstrip().startswith(("#", ";")):
            break
        start = above
    return start


def _grouped(cuts: Iterator[_Cut]) -> list[_Cut]:
    """One cut a path, in order of first appearance; closing brackets stay with what they close."""
    texts: dict[tuple[str, ...], list[str]] = {}
    leads: dict[tuple[str, ...], str] = {}
    last: tuple[str, ...] | None = None
    for cut in cuts:
        says_something = any(char.isalnum() for char in cut.text)
        if says_something or last is None:
            last = cut.path
            texts.setdefault(last, []).append(textwrap.dedent(cut.text).strip("\n"))
            leads.setdefault(last, cut.lead)
        elif cut.text.strip():
            texts[last][-1] += "\n" + cut.text.strip("\n")
    return [_Cut(path, "\n\n".join(parts), leads[path]) for path, parts in texts.items() if any(parts)]


def _readable_json(text: str) -> str:
    """JSON in one endless line gets lines; any other stays as it is, broken JSON too."""
    if len(text) <= _SMALL_CHARS or text.count("\n") * _MINIFIED_LINE_CHARS > len(text):
        return text
    try:
        return json.dumps(json.loads(text), ensure_ascii=False, indent=1)
    except ValueError:
        return text


def _refuse_minified(text: str) -> None:
    lines = text.count("\n") + 1
    if len(text) > _MINIFIED_CHARS and len(text) > lines * _MINIFIED_LINE_CHARS:
        raise DocumentRejected(
            "too_complex",
            f"The file looks minified or generated: its lines have {len(text) // lines:,} characters on"
            " average. Import the source it was made from.",
        )
