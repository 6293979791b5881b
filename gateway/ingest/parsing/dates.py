"""Dates: from when until when a document holds, if it says so itself in a form that can't be misread."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from gateway.ingest.document import Block, BlockKind, ParsedDocument

#: a statement counts near the top only, where it is about the whole document
_TOP_CHARS = 2_500
_TOP_LINES = 40

_MONTHS = "january february march april may june july august september october november december".split()
_MONTH_NUMBER = {
    spelling: number
    for number, name in enumerate(_MONTHS, 1)
    for spelling in (name, name[:3], name[:4] if name == "september" else name)
}
_MONTH = r"[a-z]{3,9}"
_DAY = rf"""(?:(?P<year>\d{{4}})\s*(?P<mark>[-/.年])\s*(?P<month>\d{{1,2}})\s*[-/.月]
        \s*(?P<day>\d{{1,2}})\s*日?
    | (?P<day2>\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?(?P<month2>{_MONTH})\.?,?\s+(?P<year2>\d{{4}})
    | (?P<month3>{_MONTH})\.?\s+(?P<day3>\d{{1,2}})(?:st|nd|rd|th)?,?\s+(?P<year3>\d{{4}}))(?!\d)"""
_FROM = (
    r"effective(?:\s+date|\s+from|\s+as\s+of|\s+since|\s+on)?|date\s+of\s+effect|valid\s+(?:from|as\s+of|since)"
    r"|in\s+(?:force|effect)\s+(?:from|since|as\s+of)|applies\s+from|applicable\s+from"
    r"|(?:comes|came|enters)\s+into\s+(?:force|effect)(?:\s+on)?|生效日期|生效时间|生效日|实施日期|施行日期|有效期自|(?:本[\u4e00-\u9fff]{1,6})?自"
)
_UNTIL = (
    r"valid\s+(?:until|till|through|thru|to)|effective\s+(?:until|through)|(?:in\s+force|applies)\s+until"
    r"|expir(?:es|y|ation)(?:\s+date)?(?:\s+on)?|有效期至|有效期到|有效期截止|有效期截至|有效至|失效日期|失效时间|到期日期|到期日"
)
_SPAN = r"valid(?:ity)?(?:\s+period)?|effective(?:\s+period)?|有效期限|有效期|有效时间"
_TO = r"(?:to|until|till|through|thru|and|[-–—~～]|至|到)"
_FLAGS = re.IGNORECASE | re.VERBOSE
# Runs of marks and blanks are possessive: a line of nothing else takes time in proportion to its length.
#: a line begins with the statement, or a label with a colon stands in it
_FIRST = re.compile(
    rf"""(?:\A[-*•>\#|\s]*+(?P<label>{_UNTIL}|{_FROM}|{_SPAN})\s*+[:：]?\s*+(?:is\s+)?
    |(?<![a-z])(?<!not\ )(?P<named>{_UNTIL}|{_FROM}|{_SPAN})\s*+[:：]\s*+){_DAY}""",
    _FLAGS,
)
_SECOND = re.compile(rf"[\s,，;；|]*+(?P<label>{_UNTIL}|{_FROM}|{_TO})\s*+[:：]?\s*+{_DAY}", _FLAGS)
_DATE = re.compile(_DAY, _FLAGS)
#: what may follow a statement: the end of its line or sentence, a mark, the next label
_END = re.compile(
    r"""\s*+(?:起?(?:正式)?(?:生效|施行|实施|执行)|起|止)?\s*+
    (?:\Z|[.。](?:\s|\Z)|[;；|·(（]|(?<=\s)[A-Z][\w\ -]{0,24}[:：]|[\u4e00-\u9fff]{2,8}[:：])""",
    re.VERBOSE,
)
_UNTIL_LABEL = re.compile(rf"(?:{_UNTIL})\Z", re.IGNORECASE)
_FROM_LABEL = re.compile(rf"(?:{_FROM})\Z", re.IGNORECASE)
_MARKUP = re.compile(r"[*_`]+")

_FRONT_KEY = re.compile(
    r"""^(?:(?P<start>(?:effective|valid)[-_ ](?:date|from|since)|effective)|(?P<end>(?:valid|effective)[-_ ]
    (?:until|to|through)|expir(?:es|y|ation)(?:[-_ ](?:date|on))?))[ \t]*:[ \t]*["']?
    (?P<date>\d{4}-\d{2}-\d{2})(?:[T ]00:00(?::00)?(?:Z|\+00:00)?)?["']?[ \t]*(?:\#.*)?$""",
    _FLAGS | re.MULTILINE,
)

_Statement = tuple[bool, int]


def with_stated_validity(document: ParsedDocument, front_matter: str = "") -> ParsedDocument:
    """The document with ``valid_from`` and ``valid_until`` as its front matter or its top states them.

    A first day counts from its beginning, a last day up to its end (UTC). Front matter goes first.
    Nothing is taken from a date that could be read in two ways (01/02/2026), from two statements that
    differ, or from an end before the beginning.
    """
    start, end = _agreed(_from_front_matter(front_matter))
    if start is None and end is None:
        start, end = _agreed(statement for line in _top(document.blocks) for statement in _in_line(line))
    return replace(document, valid_from=start, valid_until=end)


def _agreed(statements: Iterator[_Statement]) -> tuple[int | None, int | None]:
    starts: set[int] = set()
    ends: set[int] = set()
    for is_end, moment in statements:
        (ends if is_end else starts).add(moment)
    start = starts.pop() if len(starts) == 1 else None
    end = ends.pop() if len(ends) == 1 else None
    return (None, None) if start is not None and end is not None and start >= end else (start, end)


def _from_front_matter(text: str) -> Iterator[_Statement]:
    for match in _FRONT_KEY.finditer(text):
        date = _DATE.match(match["date"])
        moment = _moment(date, is_end=match["end"] is not None) if date else None
        if moment is not None:
            yield match["end"] is not None, moment


def _top(blocks: Sequence[Block]) -> Iterator[str]:
    room, lines = _TOP_CHARS, _TOP_LINES
    for block in blocks:
        if block.kind is BlockKind.CODE:
            continue
        for line in _lines(block):
            if room <= 0 or lines <= 0:
                return
            yield line[:_TOP_CHARS]
            room -= len(line)
            lines -= 1


def _lines(block: Block) -> Iterator[str]:
    if block.kind is not BlockKind.TABLE:
        yield from block.text.split("\n")
        return
    for row in (block.columns, *block.rows[:_TOP_LINES]):
        if len(row) == 2:
            yield ": ".join(row)


def _in_line(line: str) -> Iterator[_Statement]:
    """The statements of a line: a label, a date, perhaps a second one, and then nothing that goes on."""
    line = _MARKUP.sub("", line)
    at = 0
    while (first := _FIRST.search(line, at)) is not None:
        second = _SECOND.match(line, first.end())
        at = (second or first).end()
        if _END.match(line, at):
            yield from _stated(first, second, line)


def _stated(first: re.Match[str], second: re.Match[str] | None, line: str) -> Iterator[_Statement]:
    label = first["label"] or first["named"]
    is_end = bool(_UNTIL_LABEL.match(label))
    if second is not None:
        yield from _dated(first, is_end=is_end)
        yield from _dated(second, is_end=not _FROM_LABEL.match(second["label"]))
    elif label.endswith("自") and "起" not in line[first.end() : first.end() + 2]:
        return
    elif is_end or _FROM_LABEL.match(label):  # of a period with one date nobody said which end it is
        yield from _dated(first, is_end=is_end)


def _dated(date: re.Match[str], *, is_end: bool) -> Iterator[_Statement]:
    moment = _moment(date, is_end=is_end)
    if moment is not None:
        yield is_end, moment


def _moment(date: re.Match[str], *, is_end: bool) -> int | None:
    """The start of the day, of the day after it for an end (epoch seconds); None if there is no such day."""
    year = date["year"] or date["year2"] or date["year3"]
    day = date["day"] or date["day2"] or date["day3"]
    named = date["month2"] or date["month3"]
    month = _MONTH_NUMBER.get(named.lower(), 0) if named else int(date["month"])
    try:
        moment = datetime(int(year), month, int(day), tzinfo=UTC) + timedelta(days=is_end)
    except (ValueError, OverflowError):
        return None
    return int(moment.timestamp()) if 1970 <= moment.year <= 9998 else None
