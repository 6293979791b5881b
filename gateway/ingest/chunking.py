"""Chunking: packs a document's blocks into passages along its structure, the same way every time."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from gateway.ingest.document import Block, BlockKind, ParsedDocument, Passage
from gateway.ingest.splitting import (
    estimate_tokens,
    last_sentence,
    split_code,
    split_lines,
    split_list,
    split_text,
)
from gateway.ingest.tabulating import split_table
from gateway.ingest.tokens import most_tokens
from gateway.retrieval.terms import TERMS_VERSION

#: part of every chunk id: other passages or other lexical terms mean other rows
SPLITTER_VERSION = f"structure/2+{TERMS_VERSION}"


@dataclass(frozen=True, slots=True)
class ChunkLimits:
    """Sizes in estimated tokens (``splitting.estimate_tokens``).

    ``target`` is aimed at; ``maximum`` is exceeded neither by the estimate nor by the embedder's own
    count (``tokens.count_tokens``). Neighbouring sections of at most ``tiny``
    under the same parent share a passage of at most ``shared``.
    """

    target: int = 260
    maximum: int = 400
    tiny: int = 16
    shared: int = 80


DEFAULT_LIMITS = ChunkLimits()

# Text with more tokens than estimated is cut again with smaller limits, first as its kind is cut; what
# is left after these rounds, such as thousands of emoji, like plain text.
_ROUNDS = 3
_SMALLEST = 0.3
_DENSEST = 5

# A heading that names an error code, option or version is what people look for: it stays a breadcrumb.
_CODE = re.compile(r"[\d_(=]|--\w|\w\.\w")


@dataclass(frozen=True, slots=True)
class _Unit:
    """A piece of text that stays whole. ``alone``: never shares a passage; ``leads``: introduces the next."""

    text: str
    size: int
    page: int
    alone: bool = False
    leads: bool = False


@dataclass(frozen=True, slots=True)
class _Part:
    """One section's passage in the making."""

    text: str
    size: int
    page: int
    alone: bool


def chunk(document: ParsedDocument, limits: ChunkLimits = DEFAULT_LIMITS) -> tuple[Passage, ...]:
    """Passages in document order; empty when the document says nothing.

    A passage stays inside one section, except for tiny siblings: they share one under their parent's
    breadcrumb, each with its heading in the text. Raises DocumentRejected too_complex.
    """
    sections = [
        (path, _packed(_units(list(blocks), limits), limits))
        for path, blocks in groupby(document.blocks, key=lambda block: block.section)
    ]
    passages: list[Passage] = []
    for path, parts in _with_tiny_siblings_joined(sections, limits):
        section = " > ".join(path)
        passages.extend(Passage(section, part.text, part.page) for part in parts)
    return tuple(passages)


def _units(blocks: Sequence[Block], limits: ChunkLimits) -> Iterator[_Unit]:
    lead = ""
    for block in blocks:
        texts = _texts(block, lead, limits)
        lead = _lead_in(block)
        for n, text in enumerate(texts):
            yield _Unit(
                text,
                estimate_tokens(text),
                block.page,
                alone=block.kind is BlockKind.QA,
                leads=bool(lead) and n == len(texts) - 1,
            )


def _texts(block: Block, lead: str, limits: ChunkLimits) -> list[str]:
    """The block in parts that fit, counted too."""
    texts = _cut(block, lead, limits)
    smaller = 1.0
    for _ in range(_ROUNDS):
        longest = most_tokens(texts, limits.maximum)
        if longest <= limits.maximum:
            return texts
        smaller = max(smaller * limits.maximum / longest * 0.95, _SMALLEST)
        texts = _cut(block, lead, _scaled(limits, smaller))
    densest = limits.maximum // _DENSEST
    return [
        part
        for text in texts
        for part in (
            split_text(text, densest, densest)
            if most_tokens([text], limits.maximum) > limits.maximum
            else [text]
        )
    ]


def _scaled(limits: ChunkLimits, factor: float) -> ChunkLimits:
    return replace(limits, target=int(limits.target * factor), maximum=int(limits.maximum * factor))


def _cut(block: Block, lead: str, limits: ChunkLimits) -> list[str]:
    """The block in parts that fit by the estimate.

    ``lead``, the sentence before it, is repeated if a list is split.
    """
    goal, limit = limits.target, limits.maximum
    if block.kind is BlockKind.TABLE:
        return split_table(block.columns, block.rows, goal, limit)
    size = estimate_tokens(block.text)
    if size <= (goal if block.kind in (BlockKind.TEXT, BlockKind.LIST) else limit):
        return [block.text] if block.text.strip() else []
    if block.kind is BlockKind.CODE:
        return split_code(block.text, limit, block.lead)
    if block.kind is BlockKind.QA:
        return _split_answer(block.text, limits)
    if block.kind is BlockKind.LIST:
        room = estimate_tokens(lead)
        first, *others = split_list(block.text, goal - room, limit - room)
        return [first, *(f"{lead}\n{part}" if lead else part for part in others)]
    return split_text(block.text, goal, limit)


def _split_answer(text: str, limits: ChunkLimits) -> list[str]:
    """A question whose answer doesn't fit: each part begins with the question, unless that is long itself."""
    question, _, answer = text.partition("\n")
    room = estimate_tokens(question)
    if room * 4 > limits.maximum or not answer.strip():
        return split_lines(text, limits.target, limits.maximum)
    parts = split_lines(answer.strip("\n"), limits.target - room, limits.maximum - room)
    return [f"{question}\n{part}" for part in parts]


def _lead_in(block: Block) -> str:
    """The sentence before a list, table or code that says what it is; '' when the text doesn't lead on."""
    if block.kind is not BlockKind.TEXT or not block.text.rstrip().endswith((":", "：")):
        return ""
    sentence = last_sentence(block.text)
    return sentence if estimate_tokens(sentence) <= 60 else ""


def _packed(units: Iterator[_Unit], limits: ChunkLimits) -> list[_Part]:
    parts: list[_Part] = []
    held: list[_Unit] = []
    for unit in units:
        if held and not _fits(held, unit, limits):
            carried = held[-1:] if held[-1].leads and len(held) > 1 else []
            if carried and not _fits(carried, unit, limits):
                carried = []
            parts.extend(_parts(held[: len(held) - len(carried)], limits))
            held = carried
        held.append(unit)
    if held:
        parts.extend(_parts(held, limits))
    return _without_stump(parts, limits)


def _fits(held: Sequence[_Unit], unit: _Unit, limits: ChunkLimits) -> bool:
    if unit.alone or held[-1].alone:
        return False
    size = sum(other.size for other in held)
    small = limits.target // 4
    may_stretch = size <= small or unit.size <= small or (held[-1].leads and len(held) == 1)
    return size + unit.size <= (limits.maximum if may_stretch else limits.target)


def _parts(units: Sequence[_Unit], limits: ChunkLimits) -> list[_Part]:
    """The units together, or in halves while they have more tokens than estimated."""
    part = _part(units)
    if len(units) == 1 or most_tokens([part.text], limits.maximum) <= limits.maximum:
        return [part]
    middle = len(units) // 2
    return [*_parts(units[:middle], limits), *_parts(units[middle:], limits)]


def _part(units: Sequence[_Unit]) -> _Part:
    return _Part(
        "\n\n".join(unit.text for unit in units),
        sum(unit.size for unit in units),
        units[0].page,
        units[0].alone,
    )


def _without_stump(parts: list[_Part], limits: ChunkLimits) -> list[_Part]:
    """A short last part joins the one before it if both fit."""
    if len(parts) < 2:
        return parts
    *others, before, last = parts
    if before.alone or last.alone or last.size > limits.target // 4:
        return parts
    if before.size + last.size > limits.maximum:
        return parts
    text = f"{before.text}\n\n{last.text}"
    if most_tokens([text], limits.maximum) > limits.maximum:
        return parts
    return [*others, _Part(text, before.size + last.size, before.page, False)]


_Sections = list[tuple[tuple[str, ...], list[_Part]]]


def _with_tiny_siblings_joined(sections: _Sections, limits: ChunkLimits) -> _Sections:
    joined: _Sections = []
    group: _Sections = []
    size = 0
    for path, parts in sections:
        cost = _tiny_cost(path, parts, limits)
        if group and (not cost or group[0][0][:-1] != path[:-1] or size + cost > limits.shared):
            joined.extend(_shared(group))
            group, size = [], 0
        if cost:
            group.append((path, parts))
            size += cost
        else:
            joined.append((path, parts))
    joined.extend(_shared(group))
    return joined


def _tiny_cost(path: tuple[str, ...], parts: Sequence[_Part], limits: ChunkLimits) -> int:
    """Tokens of a section that is small enough to share, with its heading; 0 otherwise."""
    if not path or len(parts) != 1 or parts[0].alone or parts[0].size > limits.tiny:
        return 0
    if _CODE.search(path[-1]):
        return 0
    return parts[0].size + estimate_tokens(path[-1])


def _shared(group: _Sections) -> _Sections:
    if len(group) < 2:
        return group
    text = "\n\n".join(f"{path[-1]}\n{parts[0].text}" for path, parts in group)
    size = sum(parts[0].size for _, parts in group)
    return [(group[0][0][:-1], [_Part(text, size, group[0][1][0].page, False)])]
