"""The token budget of a prompt: whole passages only, so that no qualifier is ever cut off."""

import re
from collections.abc import Sequence
from typing import TypeVar

from gateway.answer.evidence import Evidence

_T = TypeVar("_T", bound=Evidence)

#: instructions, question frame and each passage's heading line, in tokens
_FRAME_TOKENS = 400
_HEADING_TOKENS = 40


#: kana, Han characters, Hangul syllables
_WIDE = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")


class TokenCount:
    """The stated estimate of a text that comes in pieces; pieces add up as if they were one."""

    def __init__(self) -> None:
        self._wide = 0
        self._bytes = 0

    def add(self, text: str) -> None:
        if text.isascii():
            self._bytes += len(text)
            return
        wide = sum(map(len, _WIDE.findall(text)))
        self._wide += wide
        self._bytes += len(text.encode("utf-8", "replace")) - 3 * wide

    @property
    def tokens(self) -> int:
        return self._wide + (self._bytes + 3) // 4


def estimate_tokens(text: str) -> int:
    """A stated estimate, for models whose tokenizer isn't at hand.

    One token for each Han character, kana or Hangul syllable; for the rest four bytes of UTF-8 a
    token, which overestimates English prose slightly. Never characters alone.
    """
    count = TokenCount()
    count.add(text)
    return count.tokens


def fit_evidence(
    evidence: Sequence[_T], question: str, *, context_tokens: int, output_tokens: int
) -> tuple[_T, ...]:
    """The best passages that fit, in order, none of them cut; empty when not even the first fits."""
    left = context_tokens - output_tokens - _FRAME_TOKENS - estimate_tokens(question)
    kept: list[_T] = []
    for item in evidence:
        left -= _cost(item)
        if left < 0:
            break
        kept.append(item)
    return tuple(kept)


def tokens_left(
    evidence: Sequence[Evidence], question: str, *, context_tokens: int, output_tokens: int
) -> int:
    """What a prompt with these passages still has room for; below 0 when they don't fit."""
    frame = output_tokens + _FRAME_TOKENS + estimate_tokens(question)
    return context_tokens - frame - sum(map(_cost, evidence))


def _cost(item: Evidence) -> int:
    return estimate_tokens(item.text) + _HEADING_TOKENS
