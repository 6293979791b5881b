"""Citations: markers in a model's text made canonical, and the sentence each one rests on."""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

from gateway.answer.sentences import Piece, pieces
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


Terms = Callable[[str], Iterable[str]]

_TERM = re.compile(r"[\u3400-\u9fff]+|[^\W_\u3400-\u9fff]+(?:[._\-][^\W_\u3400-\u9fff]+)*")
_DIGITS = re.compile(r"[0-9]+(?:[.,:][0-9]+)*")
_NEGATION = re.compile(r"\b(?:not|no|never|none|nobody|cannot|without)\b|n['’]t\b|[不没無无未勿]|禁止")
_MARKERS = re.compile(r"(?:[ \t]*\[[0-9]{1,3}\])+")
_FILLERS = frozenset(
    "a an the of to in on at by for and or is are was were be it this that as with from".split()
)


def plain_terms(text: str) -> Iterator[str]:
    """Lower-case words without fillers; a Han run is taken as pairs of characters."""
    for token in _TERM.findall(text.lower()):
        if "\u3400" <= token[0] <= "\u9fff":
            yield from map("".join, pairwise(token)) if len(token) > 1 else token
        elif token not in _FILLERS:
            yield token


def cite(answer: str, n: int, chunk: Chunk, terms: Terms = plain_terms) -> CitedSource:
    """One citation of a finished answer with canonical markers.

    ``quote`` belongs to the first sentence that names ``n``; ``supported`` holds for all of them.
    """
    quotes = [best_quote(claim, chunk.content, terms) for claim in claims(answer, n)]
    return CitedSource(
        n=n,
        document_id=chunk.document_id,
        document_version=chunk.document_version,
        title=chunk.title,
        section=chunk.section,
        page=chunk.page,
        uri=chunk.source_uri,
        quote=quotes[0][0] if quotes else "",
        supported=bool(quotes) and all(supports for _, supports in quotes),
    )


def claims(answer: str, n: int) -> list[str]:
    """The sentence, row or block in front of each marker of ``n``, without markers."""
    found, start = [], 0
    for markers in _MARKERS.finditer(answer):
        before = answer[start : markers.start()].lstrip(" .。,，;；!！?？")
        start = markers.end()
        stated = pieces(_MARKERS.sub("", before))
        if stated and f"[{n}]" in markers[0]:
            found.append(stated[-1].text)
    return found


def quote_for(sentence: str, content: str, terms: Terms = plain_terms) -> str:
    """The piece of the passage, verbatim, that shares most with the sentence; empty for none."""
    return best_quote(sentence, content, terms)[0]


def best_quote(sentence: str, content: str, terms: Terms = plain_terms) -> tuple[str, bool]:
    """The best piece and whether it supports the sentence; two neighbours where one isn't enough."""
    found = pieces(content)
    if not found:
        return "", False
    wanted = set(terms(sentence))
    best = max(range(len(found)), key=lambda i: (_overlap(wanted, terms(_read(found[i]))), -i))
    if supported(sentence, _read(found[best]), terms):
        return found[best].source, True
    alone = _overlap(wanted, terms(_read(found[best])))
    for first in (best - 1, best):
        pair = found[first : first + 2] if first >= 0 else []
        both = " ".join(map(_read, pair))
        # A neighbour that adds no term must not lend its numbers or its negation.
        if len(pair) == 2 and _overlap(wanted, terms(both)) > alone and supported(sentence, both, terms):
            return _span(content, pair), True
    return found[best].source, False


def supported(sentence: str, quote: str, terms: Terms = plain_terms) -> bool:
    """A plain check, no proof: three fifths of the terms, every number, and the same negation."""
    wanted = set(terms(sentence))
    if not wanted or _overlap(wanted, terms(quote)) < 0.6:
        return False
    if not set(_DIGITS.findall(sentence)) <= set(_DIGITS.findall(quote)):
        return False
    return bool(_NEGATION.search(sentence.lower())) == bool(_NEGATION.search(quote.lower()))


def _read(piece: Piece) -> str:
    return f"{piece.lead} {piece.text}" if piece.lead else piece.text


def _overlap(wanted: set[str], terms: Iterable[str]) -> float:
    return len(wanted.intersection(terms)) / len(wanted) if wanted else 0.0


def _span(content: str, pair: list[Piece]) -> str:
    start = content.find(pair[0].source)
    end = content.find(pair[1].source, start) + len(pair[1].source)
    return content[start:end]
