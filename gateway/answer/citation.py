"""Citations: markers in a model's text made canonical, and the sentence each one rests on."""

import re
from collections.abc import Iterator, Mapping, Sequence

from gateway.answer.support.quote import QuotablePassage, plain_terms
from gateway.answer.support.sentences import Piece, pieces
from gateway.retrieval.chunk import Chunk
from gateway.stream.protocol import CitedSource

#: a marker longer than this is text; no more than this is ever held back
HOLD = 64

_WORDS = ("passages", "passage", "sources", "source", "资料", "来源", "文档")
_WORD = "|".join(_WORDS)
_WORD_START = "|".join(sorted({w[:i] for w in _WORDS for i in range(1, len(w) + 1)}, key=len, reverse=True))
_NUMBER = r"\^?[0-9]{1,3}"
_SEPARATOR = r"[ \t]*[,;，；、&\-–—~～][ \t]*"
_LIST = rf"{_NUMBER}(?:{_SEPARATOR}{_NUMBER})*"
_MARKER = re.compile(
    rf"(?P<space>[ \t]*)(?:\[[ \t]*(?P<word>(?:{_WORD})[ \t]*[:：]?[ \t]*)?(?P<square>{_LIST})[ \t]*\]"
    rf"|【[ \t]*(?:(?:{_WORD})[ \t]*[:：]?[ \t]*)?(?P<lens>{_LIST})[ \t]*(?:†[^】\n]*)?】)",
    re.IGNORECASE,
)
_MAYBE_MARKER = re.compile(
    rf"[ \t]*(?:\[[ \t]*(?:(?:{_WORD_START})[ \t]*[:：]?)?[0-9 \t,;，；、&\-–—~～^]*"
    rf"|【[ \t]*(?:(?:{_WORD_START})[ \t]*[:：]?)?[0-9 \t,;，；、&\-–—~～^]*(?:†[^】\n]*)?)?",
    re.IGNORECASE,
)
#: nothing in it that a rule looks at, and no end that could be the beginning of a marker
_PLAIN = re.compile(r"[^\[【`\n]*[^\[【`\n \t]")
_STOP = re.compile(r"[ \t\[【`\n]")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_MAYBE_FENCE = re.compile(r" {0,3}(?:`+|~+)?")
_TICKS = re.compile(r"`+")
_ITEM = re.compile(rf"(\^?[0-9]+)|({_SEPARATOR})")
_RANGE_SIGNS = frozenset("-–—~～")


class CitationStream:
    """Feed the model's text in pieces of any size; the output is the same for every split.

    Numbers from 1 to ``known`` become ``[1][2]``; others are removed and counted in ``unknown``, unless
    they look like an index (``row[9]``). Code, fenced or inline, passes unchanged. ``cited`` has each
    number once, in order of first use.
    """

    def __init__(self, known: int) -> None:
        self.cited: list[int] = []
        self.unknown = 0
        self._known = known
        self._held = ""
        self._last = "\n"
        self._after_marker = False
        self._fence = ""
        self._ticks = 0

    def feed(self, text: str) -> str:
        """What may be sent now."""
        return self._run(text, final=False)

    def flush(self) -> str:
        """The end of the text: nothing stays held."""
        return self._run("", final=True)

    def _run(self, text: str, *, final: bool) -> str:
        if not (self._held or self._ticks or self._fence or self._last == "\n") and _PLAIN.fullmatch(text):
            self._last = text[-1]
            self._after_marker = False
            return text
        buffer, self._held = self._held + text, ""
        out: list[str] = []
        at = 0
        while at < len(buffer):
            step = self._step(buffer, at, final)
            if step is None:
                self._held = buffer[at:]
                break
            end, sent = step
            if sent:
                out.append(sent)
                self._last = sent[-1]
            at = end
        return "".join(out)

    def _step(self, buffer: str, at: int, final: bool) -> tuple[int, str] | None:
        """(where to go on, what to send), or None when it takes more text to tell."""
        if self._ticks:
            return self._inline(buffer, at, final)
        if self._last == "\n" and (step := self._line_start(buffer, at, final)) is not _NO_FENCE:
            return step
        if self._fence:
            return self._to_line_end(buffer, at)
        if buffer[at] == "`":
            return self._open_inline(buffer, at, final)
        if buffer[at] in " \t[【":
            return self._marker(buffer, at, final)
        self._after_marker = False
        stop = _STOP.search(buffer, at + 1)
        if buffer[at] == "\n":
            return at + 1, "\n"
        end = stop.start() if stop else len(buffer)
        return end, buffer[at:end]

    def _line_start(self, buffer: str, at: int, final: bool) -> tuple[int, str] | None:
        window = buffer[at : at + HOLD]
        undecided = len(window) < HOLD and not final
        maybe = _MAYBE_FENCE.match(window)
        if maybe and maybe.end() == len(window) and undecided:
            return None
        fence = _FENCE.match(window)
        if fence is None:
            return _NO_FENCE
        if not self._fence:
            self._fence = fence[1]
        elif fence[1].startswith(self._fence):
            line, newline, _ = window[fence.end() :].partition("\n")
            if line.strip(" \t"):
                return _NO_FENCE
            if undecided and not newline:
                return None
            self._fence = ""
        return at + fence.end(), fence[0]

    def _to_line_end(self, buffer: str, at: int) -> tuple[int, str]:
        end = min(_line_end(buffer, at) + 1, len(buffer))
        return end, buffer[at:end]

    def _open_inline(self, buffer: str, at: int, final: bool) -> tuple[int, str] | None:
        run = _TICKS.match(buffer, at, at + HOLD)
        end = run.end() if run else at + 1
        if end == len(buffer) and end - at < HOLD and not final:
            return None
        self._ticks = end - at
        self._after_marker = False
        return end, buffer[at:end]

    def _inline(self, buffer: str, at: int, final: bool) -> tuple[int, str] | None:
        """Up to the closing run of backticks; a line's end closes as well, so nothing stays open."""
        if buffer[at] == "\n":
            self._ticks = 0
            return at + 1, "\n"
        run = _TICKS.match(buffer, at, at + HOLD)
        if run is None:
            stops = [place for place in (buffer.find("`", at), buffer.find("\n", at)) if place >= 0]
            end = min(stops, default=len(buffer))
            return end, buffer[at:end]
        if run.end() == len(buffer) and run.end() - at < HOLD and not final:
            return None
        if run.end() - at == self._ticks:
            self._ticks = 0
        return run.end(), run[0]

    def _marker(self, buffer: str, at: int, final: bool) -> tuple[int, str] | None:
        window = buffer[at : at + HOLD]
        found = _MARKER.match(window)
        if found is not None:
            return at + found.end(), self._rewrite(found)
        maybe = _MAYBE_MARKER.match(window)
        if not final and len(window) < HOLD and maybe and maybe.end() == len(window):
            return None
        spaces = len(window) - len(window.lstrip(" \t"))
        self._after_marker = False
        end = at + max(spaces, 1)
        return end, buffer[at:end]

    def _rewrite(self, found: re.Match[str]) -> str:
        numbers = list(_numbers(found["square"] or found["lens"]))
        known = [n for n in dict.fromkeys(numbers) if 1 <= n <= self._known]
        if not known and self._is_index(found):
            self._after_marker = False
            return found[0]
        self.unknown += sum(not 1 <= n <= self._known for n in numbers)
        self.cited.extend(n for n in known if n not in self.cited)
        self._after_marker = True
        return found["space"] + "".join(f"[{n}]" for n in known) if known else ""

    def _is_index(self, found: re.Match[str]) -> bool:
        plain = found["square"] and not found["word"] and not found["space"] and "^" not in found[0]
        before = self._last
        glued = (before.isascii() and (before.isalnum() or before == "_")) or before in ")]"
        return bool(plain) and glued and not self._after_marker


_NO_FENCE: tuple[int, str] = (-1, "")


def _line_end(buffer: str, at: int) -> int:
    end = buffer.find("\n", at)
    return len(buffer) if end < 0 else end


def _numbers(listed: str) -> Iterator[int]:
    """The numbers of ``1, 3-5``; a range that runs backwards or far counts as its two ends."""
    last, ranged = 0, False
    for match in _ITEM.finditer(listed):
        if match[2]:
            ranged = match[2].strip() in _RANGE_SIGNS
            continue
        number = int(match[1].lstrip("^"))
        if ranged and 0 < number - last <= 20:
            yield from range(last + 1, number)
        yield number
        last, ranged = number, False


#: begins where a run of blanks begins, or a long one would be read again from each of them
_MARKERS = re.compile(r"(?<![ \t])(?:[ \t]*\[[0-9]{1,3}\])+")
_ITEM_NUMBER = re.compile(r"[0-9]+")
#: sentences that are checked against one passage; far more than an answer of the usual budget has
_MOST_CLAIMS = 60


def cite(answer: str, n: int, chunk: Chunk) -> CitedSource:
    """One citation of a finished answer with canonical markers."""
    return cite_all(answer, {n: (chunk,)})[0]


def cite_all(answer: str, passages: Mapping[int, Sequence[Chunk]]) -> tuple[CitedSource, ...]:
    """The citations of a finished answer, one for each number; the answer and each passage are read once.
    A passage is what was found and then the neighbours joined to it; the one that is quoted is cited.

    ``quote`` belongs to the first sentence that names the number; ``supported`` holds for all of them.
    Of more than 60 sentences those after them are not looked at, and nothing is said to support them.
    """
    stated = _stated(answer)
    return tuple(_cited(n, chunks, stated.get(n, [])) for n, chunks in passages.items())


def _cited(n: int, chunks: Sequence[Chunk], stated: Sequence[str]) -> CitedSource:
    parts = [(chunk, _quotable(chunk)) for chunk in chunks]
    quotes = [_best_quote(claim, parts) for claim in stated[:_MOST_CLAIMS]]
    chunk, quote, _ = quotes[0] if quotes else (chunks[0], "", False)
    return CitedSource(
        n=n,
        chunk_id=chunk.chunk_id,
        document_id=chunk.document_id,
        document_version=chunk.document_version,
        title=chunk.title,
        section=chunk.section,
        page=chunk.page,
        uri=chunk.source_uri,
        quote=quote,
        supported=0 < len(stated) <= _MOST_CLAIMS and all(supports for _, _, supports in quotes),
    )


def _quotable(chunk: Chunk) -> QuotablePassage:
    return QuotablePassage(chunk.content, headings=f"{chunk.title}\n{chunk.section}")


def _best_quote(claim: str, parts: Sequence[tuple[Chunk, QuotablePassage]]) -> tuple[Chunk, str, bool]:
    """The first part that supports the sentence, else the one whose quote shares most with it."""
    quotes = [(chunk, *passage.best_quote(claim)) for chunk, passage in parts]
    if len(quotes) == 1:
        return quotes[0]
    wanted = set(plain_terms(claim))
    return max(quotes, key=lambda found: (found[2], len(wanted.intersection(plain_terms(found[1])))))


def claims(answer: str, n: int) -> list[str]:
    """The sentence, row or block in front of each marker of ``n``, without markers."""
    return _stated(answer).get(n, [])


def uncited(answer: str) -> int:
    """How many sentences of a finished answer no marker stands behind."""
    start = found = 0
    for markers in _MARKERS.finditer(answer):
        found += max(0, len(_pieces_of(answer[start : markers.start()])) - 1)
        start = markers.end()
    return found + len(_pieces_of(answer[start:]))


def _stated(answer: str) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    start = 0
    for markers in _MARKERS.finditer(answer):
        stated = _pieces_of(answer[start : markers.start()])
        start = markers.end()
        for n in dict.fromkeys(map(int, _ITEM_NUMBER.findall(markers[0]))) if stated else ():
            found.setdefault(n, []).append(stated[-1].text)
    return found


def _pieces_of(between: str) -> list[Piece]:
    """Of the text between two markers; the first one's full stop may stand behind it."""
    return pieces(between.lstrip(" .。,，;；!！?？"))
