"""Markdown: CommonMark with tables and strikethrough, read from markdown-it's tokens."""

import re
from collections.abc import Iterator, Sequence

from markdown_it import MarkdownIt
from markdown_it.token import Token

from gateway.errors import DocumentRejected
from gateway.ingest.document import BlockKind, ParsedDocument
from gateway.ingest.parsing.brackets import bound_links
from gateway.ingest.parsing.html import fragment_items
from gateway.ingest.parsing.outline import Heading, Piece, keeps_line_break, outline
from gateway.ingest.parsing.rendering import fenced, list_text

PARSER_VERSION = "markdown/1"

#: markdown-it drops what is nested deeper without a word, so such a document is refused
_MAX_NESTING = 60
_FRONT_MATTER = re.compile(r"\A\s*---[ \t]*\n(.*?\n)(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_FRONT_MATTER_LINE = re.compile(r"""(?:\s|#|-\s|[\w."' -]{1,80}:(?:\s|\Z)|[\]}])|\Z""")
_FRONT_TITLE = re.compile(r"^title:[ \t]*+(.*[^ \t\n])", re.MULTILINE | re.IGNORECASE)
_CJK = r"[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\u3000-\u303f]"
_CJK_JOIN = re.compile(rf"{_CJK}\Z")
_CJK_START = re.compile(_CJK)
_BREAK_TAG = re.compile(r"<br\b", re.IGNORECASE)


def parse_markdown(text: str, source: str) -> ParsedDocument:
    """The title is the front matter's, else the first level-1 heading, else the file's name.

    Raises DocumentRejected too_complex for nesting deeper than 60 levels.
    """
    front_matter, body = split_front_matter(text)
    title = _FRONT_TITLE.search(front_matter)
    reader = MarkdownIt("commonmark", {"maxNesting": _MAX_NESTING}).enable(["table", "strikethrough"])
    bound_links(reader)
    tokens = reader.parse(body)
    if any(token.level >= _MAX_NESTING - 1 for token in tokens):
        raise DocumentRejected(
            "too_complex", "Lists or quotes in the document are nested deeper than 60 levels."
        )
    return outline(
        _items(tokens),
        source=source,
        parser_version=PARSER_VERSION,
        title=title.group(1).strip("\"'").strip() if title else "",
    )


def split_front_matter(text: str) -> tuple[str, str]:
    """The YAML lines at the top, '' when there are none, and the Markdown below them."""
    match = _FRONT_MATTER.match(text)
    if not match or not all(_FRONT_MATTER_LINE.match(line) for line in match.group(1).split("\n")):
        return "", text
    return match.group(1), text[match.end() :]


def _items(tokens: Sequence[Token]) -> list[Heading | Piece]:
    items: list[Heading | Piece] = []
    for token, inside in _top_level(tokens):
        items.extend(_item(token, inside))
    return items


def _top_level(tokens: Sequence[Token]) -> Iterator[tuple[Token, Sequence[Token]]]:
    """Each token of the outermost level, with the tokens between it and its closing token."""
    at = 0
    while at < len(tokens):
        start, depth = at, 0
        while True:
            depth += tokens[at].nesting
            at += 1
            if depth == 0:
                break
        yield tokens[start], tokens[start + 1 : at - 1]


def _item(token: Token, inside: Sequence[Token]) -> Iterator[Heading | Piece]:
    match token.type:
        case "heading_open":
            text = re.sub(r"\s+", " ", _inline(inside[0])).strip()
            if text:
                yield Heading(int(token.tag[1]), text.replace("`", ""))
        case "paragraph_open":
            text = _inline(inside[0]).strip()
            if text:
                yield Piece(BlockKind.TEXT, text, bold=_bold_end(inside[0]) > 0)
        case "fence" if token.content.strip():
            info = re.sub(r"\s+", " ", token.info).strip()
            code = token.content.removesuffix("\n")
            yield Piece(BlockKind.CODE, f"{token.markup}{info}\n{code}\n{token.markup}")
        case "code_block" if token.content.strip():
            yield Piece(BlockKind.CODE, fenced(token.content))
        case "bullet_list_open" | "ordered_list_open":
            if text := list_text(_entries(token, inside)):
                yield Piece(BlockKind.LIST, text)
        case "blockquote_open":
            for item in _items(inside):
                yield Piece(BlockKind.TEXT, item.text, bold=True) if isinstance(item, Heading) else item
        case "table_open":
            yield _table(inside)
        case "html_block":
            yield from fragment_items(token.content)
        case _:
            return


def _entries(token: Token, inside: Sequence[Token]) -> list[tuple[str, list[Heading | Piece]]]:
    ordered = token.type == "ordered_list_open"
    first = int(token.attrGet("start") or 1) if ordered else 0
    return [
        (f"{first + n}." if ordered else "-", _items(content))
        for n, (_, content) in enumerate(_top_level(inside))
    ]


def _table(inside: Sequence[Token]) -> Piece:
    columns: list[str] = []
    rows: list[tuple[str, ...]] = []
    row: list[str] = []
    cell = ""
    for token in inside:
        match token.type:
            case "tr_open":
                row = []
            case "inline":
                cell = re.sub(r"\s+", " ", _inline(token)).strip()
            case "th_close":
                columns.append(cell)
                cell = ""
            case "td_close":
                row.append(cell)
                cell = ""
            case "tr_close" if any(row):
                rows.append(tuple(row))
            case _:
                pass
    return Piece(BlockKind.TABLE, "", columns=tuple(columns), rows=tuple(rows))


def _inline(token: Token) -> str:
    """Text without emphasis marks, tags and link targets; code keeps its backticks, images their alt text."""
    parts: list[str] = []
    children = token.children or []
    bold_end = _bold_end(token)
    for at, child in enumerate(children):
        match child.type:
            case "text" | "text_special":
                parts.append(child.content)
            case "code_inline":
                parts.append(f"{child.markup}{_padded(child.content)}{child.markup}")
            case "softbreak" if at == bold_end:
                parts.append("\n")
            case "softbreak":
                parts.append(_line_end("".join(parts[-3:]), _text_after(children, at)))
            case "hardbreak":
                parts.append("\n")
            case "html_inline" if _BREAK_TAG.match(child.content):
                parts.append("\n")
            case "image":
                parts.append(_inline(child))
            case _:
                pass
    return "".join(parts)


def _padded(code: str) -> str:
    return f" {code} " if code.startswith("`") or code.endswith("`") else code


def _text_after(children: Sequence[Token], at: int) -> str:
    return "".join(
        child.content for child in children[at + 1 : at + 5] if child.type in ("text", "code_inline")
    )


def _line_end(before: str, after: str) -> str:
    """A soft break is a space, nothing between Chinese characters, a line end before Q: or A:."""
    if keeps_line_break(before, after):
        return "\n"
    return "" if _CJK_JOIN.search(before) and _CJK_START.match(after) else " "


def _bold_end(inline: Token) -> int:
    """Index behind the bold text that fills the paragraph or its first line; 0 when there is none."""
    children = inline.children or []
    start = next((n for n, child in enumerate(children) if child.type != "text" or child.content), 0)
    if not children or children[start].type != "strong_open":
        return 0
    end = 1 + next(n for n, child in enumerate(children) if child.type == "strong_close")
    while end < len(children) and children[end].type == "text" and not children[end].content:
        end += 1
    return end if end == len(children) or children[end].type in ("softbreak", "hardbreak") else 0
