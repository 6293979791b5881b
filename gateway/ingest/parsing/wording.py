"""Wording: makes running text of lines that were broken and spaced for paper."""

import re
from collections.abc import Callable, Sequence

_CJK = r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]"
_CJK_END = re.compile(rf"{_CJK}\Z")
_CJK_START = re.compile(_CJK)
_SPACED_CJK = re.compile(rf"(?<={_CJK}) +(?={_CJK})")
_BROKEN_WORD = re.compile(r"(?<![^\W\d_])([^\W\d_]{2,}+)[-\u2010\u00ad]\Z")
_WORD_REST = re.compile(r"[^\W\d_]+")
_WORDS = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_SENTENCE_END = re.compile(r"[.!?。！？:：;；][\"'”’)\]）」』]*\Z")


def squeezed(text: str) -> str:
    """One line with single spaces, and none between Chinese characters; soft hyphens inside vanish."""
    text = re.sub(r"\s+", " ", text).strip()
    if "\u00ad" in text[:-1]:
        text = text[:-1].replace("\u00ad", "") + text[-1:]
    return _SPACED_CJK.sub("", text)


def is_cjk(text: str) -> bool:
    """Whether there are Chinese, Japanese or Korean characters in it."""
    return bool(_CJK_START.search(text))


def words_of(lines: Sequence[str]) -> frozenset[str]:
    """The lower-case words of whole lines, words with hyphens inside as one."""
    return frozenset(word.lower() for line in lines for word in _WORDS.findall(line) if line)


def joined(lines: Sequence[str], words: frozenset[str] = frozenset()) -> str:
    """One text of broken lines: words cut by a hyphen become whole, Chinese goes on without a space.

    A hyphen stays where the document writes the word with it elsewhere (``words``).
    """
    return joined_by(lines, lambda before, after: _seam(before, after, words))


def joined_by(lines: Sequence[str], seam: Callable[[str, str], tuple[str, str]]) -> str:
    """``seam(before, after)`` is what stays of ``before``, and what comes between the two."""
    text = ""
    for line in lines:
        if not text or not line:
            text += line
            continue
        text, between = seam(text, line)
        text += between + line
    return text


def ends_sentence(text: str) -> bool:
    """Or leads on to something else, with a colon."""
    return bool(_SENTENCE_END.search(text))


def reads_on(before: str, after: str) -> bool:
    """Whether a sentence goes on over a page or column break."""
    if not before or not after or ends_sentence(before):
        return False
    return bool(_BROKEN_WORD.search(before)) or after[0].islower() or bool(_CJK_START.match(after))


def _seam(before: str, after: str, words: frozenset[str]) -> tuple[str, str]:
    broken, rest = _BROKEN_WORD.search(before), _WORD_REST.match(after)
    if broken and rest and after[0].islower():
        with_hyphen = f"{broken.group(1)}-{rest.group()}".lower()
        whole = f"{broken.group(1)}{rest.group()}".lower()
        keeps = with_hyphen in words and whole not in words and before[-1] != "\u00ad"
        return (before if keeps else before[:-1]), ""
    if _CJK_END.search(before) and _CJK_START.match(after):
        return before, ""
    return before, "" if before.endswith(("-", "/")) and before[-2:-1].strip() and not broken else " "
