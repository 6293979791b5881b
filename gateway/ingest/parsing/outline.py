"""Outline: turns a parser's flat run of headings and pieces into a title and blocks with breadcrumbs."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import PurePosixPath

from gateway.ingest.document import Block, BlockKind, ParsedDocument

#: longest title and longest breadcrumb step in characters; a longer heading also stays whole as text
TITLE_CHARS = 300
STEP_CHARS = 160
#: the longest question with its answer that is kept as one QA block, in characters
QA_CHARS = 1600

_QUESTION = re.compile(r"\s*(?:Q|Question|问|问题|提问)\s*+\d{0,4}\s*+[:：.、]", re.IGNORECASE)
_ANSWER = re.compile(r"\s*(?:A|Answer|答|答案|回答|答复)\s*+\d{0,4}\s*+[:：.、]", re.IGNORECASE)
_ANSWERS = (BlockKind.TEXT, BlockKind.LIST, BlockKind.CODE)


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading of level 1 (outermost) to 6. ``page`` is 0 when the format has no pages."""

    level: int
    text: str
    page: int = 0


@dataclass(frozen=True, slots=True)
class Piece:
    """A block that doesn't know its section yet. ``bold``: the whole line stands out, like a heading."""

    kind: BlockKind
    text: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    bold: bool = False
    page: int = 0


@dataclass(slots=True)
class _Section:
    path: tuple[str, ...]
    heading: str
    page: int = 0
    pieces: list[Piece] = field(default_factory=list)
    is_leaf: bool = True
    is_title: bool = False


def outline(
    items: Sequence[Heading | Piece],
    *,
    source: str,
    parser_version: str,
    title: str = "",
    fallback_title: str = "",
) -> ParsedDocument:
    """The document of these items.

    The title is ``title``, else the first level-1 heading, else ``fallback_title``, else the file's
    name. A level-1 heading that is the title and the only one of its level stays out of breadcrumbs.
    """
    tops = [item.text for item in items if isinstance(item, Heading) and item.level == 1]
    title = title or (tops[0] if tops else "") or fallback_title or readable_name(source)
    hidden = tops[0] if len(tops) == 1 and _squash(tops[0]) == _squash(title) else None
    blocks: list[Block] = []
    for section in _sections(items, hidden):
        blocks.extend(_blocks(section))
    return ParsedDocument(_shorten(title, TITLE_CHARS), tuple(blocks), parser_version)


def readable_name(source: str) -> str:
    """The file's name as a title: no folder, no extension, words apart. An index takes its folder's name."""
    path = PurePosixPath(source.replace("\\", "/"))
    stem = path.stem if re.fullmatch(r"\.[A-Za-z]\w{0,8}", path.suffix) else path.name
    if stem.lower() in ("index", "readme") and path.parent.name not in ("", ".", ".."):
        stem = path.parent.name
    words = re.sub(r"[\s_\-]+", " ", stem).strip() or stem or source
    return words[:1].upper() + words[1:] if words.islower() else words


def asks(text: str) -> bool:
    """Whether a heading-like line is a question."""
    return text.rstrip().endswith(("?", "？")) or bool(_QUESTION.match(text))


def keeps_line_break(before: str, after: str) -> bool:
    """Whether a soft line break stays because a question or an answer begins after it."""
    return bool(before.strip()) and bool(_QUESTION.match(after) or _ANSWER.match(after))


def _sections(items: Sequence[Heading | Piece], hidden: str | None) -> Iterator[_Section]:
    """Sections in order; each has been left for good when it is yielded."""
    stack: list[tuple[int, str]] = []
    current = _Section((), "")
    for item in items:
        if isinstance(item, Piece):
            current.pieces.append(item)
            continue
        current.is_leaf = bool(stack) and item.level <= stack[-1][0]
        yield current
        while stack and stack[-1][0] >= item.level:
            stack.pop()
        is_title = item.level == 1 and item.text == hidden
        step = _shorten(item.text, STEP_CHARS)
        stack.append((item.level, "" if is_title else step))
        path = tuple(text for _, text in stack if text)
        current = _Section(path, item.text, item.page, is_title=is_title)
        if len(item.text) > (TITLE_CHARS if is_title else STEP_CHARS):
            current.pieces.append(Piece(BlockKind.TEXT, item.text, page=item.page))
    yield current


def _blocks(section: _Section) -> Iterator[Block]:
    heading, above = section.heading, section.path[:-1]
    if not section.pieces:
        if section.is_leaf and heading and not section.is_title:
            yield Block(BlockKind.TEXT, heading, above, section.page)
        return
    if heading and section.is_leaf and not section.is_title and asks(heading):
        text = _joined([Piece(BlockKind.TEXT, heading), *section.pieces])
        if all(piece.kind in _ANSWERS for piece in section.pieces) and len(text) <= QA_CHARS:
            yield Block(BlockKind.QA, text, above, section.page)
            return
    for piece in _paired(section.pieces):
        yield Block(piece.kind, piece.text, section.path, piece.page, piece.columns, piece.rows)


def _paired(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """The same pieces, with each question and its answer as one QA piece."""
    flat = [part for piece in pieces for part in _one_question_each(piece)]
    at = 0
    while at < len(flat):
        end = _answer_end(flat, at) if _is_question(flat[at]) else at
        if end > at:
            yield Piece(BlockKind.QA, _joined(flat[at:end]), page=flat[at].page)
        else:
            yield flat[at]
        at = max(end, at + 1)


def _one_question_each(piece: Piece) -> Iterator[Piece]:
    lines = piece.text.split("\n") if piece.kind is BlockKind.TEXT else []
    starts = [number for number, line in enumerate(lines) if number and _QUESTION.match(line)]
    if not starts or not any(_ANSWER.match(line) for line in lines):
        yield piece
        return
    for start, end in zip([0, *starts], [*starts, len(lines)], strict=True):
        yield Piece(BlockKind.TEXT, "\n".join(lines[start:end]), page=piece.page)


def _is_question(piece: Piece) -> bool:
    if piece.kind is not BlockKind.TEXT:
        return False
    return bool(_QUESTION.match(piece.text)) or (piece.bold and asks(piece.text.split("\n")[0]))


def _answers_itself(piece: Piece) -> bool:
    lines = piece.text.split("\n")[1:]
    return any(_ANSWER.match(line) for line in lines) or (piece.bold and bool(lines))


def _answer_end(pieces: Sequence[Piece], at: int) -> int:
    """Index behind the answer to the question at ``at``; ``at`` itself when there is none.

    Up to the next question everything belongs to the answer; behind the last question only the
    first piece does, with the lists and code that follow it at once.
    """
    end = at + 1
    if not _answers_itself(pieces[at]):
        if end == len(pieces) or _is_question(pieces[end]) or pieces[end].kind not in _ANSWERS:
            return at
        if not pieces[at].bold and not _ANSWER.match(pieces[end].text):
            return at
        end += 1
    following = next((n for n in range(end, len(pieces)) if _is_question(pieces[n])), None)
    room = QA_CHARS - sum(len(piece.text) for piece in pieces[at:end])
    reach = end
    while reach < (len(pieces) if following is None else following):
        piece = pieces[reach]
        room -= len(piece.text)
        if piece.kind not in _ANSWERS or room < 0 or (following is None and piece.kind is BlockKind.TEXT):
            break
        reach += 1
    return reach


def _joined(pieces: Sequence[Piece]) -> str:
    text = pieces[0].text
    for before, piece in pairwise(pieces):
        near = before is pieces[0] and piece.kind is BlockKind.TEXT
        text += ("\n" if near else "\n\n") + piece.text
    return text


def _squash(text: str) -> str:
    return re.sub(r"\W+", "", text).casefold()


def _shorten(text: str, limit: int) -> str:
    text = re.sub(r"\s+", " ", text).strip()
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"
