"""What a parser makes of a file, and what the chunker makes of that."""

from dataclasses import dataclass
from enum import StrEnum


class BlockKind(StrEnum):
    TEXT = "text"
    LIST = "list"
    CODE = "code"
    TABLE = "table"
    QA = "qa"


@dataclass(frozen=True, slots=True)
class Block:
    """One structural piece. ``section`` is the heading breadcrumb above it, outermost first.

    A TABLE has ``columns`` and ``rows`` and an empty ``text``; every other kind has ``text``.
    CODE text includes its fence lines; ``lead`` is the line that says where a part of it belongs
    (a function's signature). ``page`` is 0 when the format has no pages.
    """

    kind: BlockKind
    text: str
    section: tuple[str, ...] = ()
    page: int = 0
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    lead: str = ""


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """A file's text with its structure. ``parser_version`` is part of every chunk id.

    ``valid_from`` and ``valid_until`` are what the document itself says (seconds since the epoch).
    """

    title: str
    blocks: tuple[Block, ...]
    parser_version: str
    valid_from: int | None = None
    valid_until: int | None = None


@dataclass(frozen=True, slots=True)
class Passage:
    """One chunk before it has ids. ``section`` is the breadcrumb, joined with `` > ``."""

    section: str
    content: str
    page: int = 0


@dataclass(frozen=True, slots=True)
class BuiltDocument:
    """Everything a version's chunks are made of; what the object store keeps as its chunk file."""

    title: str
    parser_version: str
    splitter_version: str
    passages: tuple[Passage, ...]
    valid_from: int | None = None
    valid_until: int | None = None
    risk: tuple[str, ...] = ()
