"""The token budget of a prompt: whole passages only, so that no qualifier is ever cut off."""

from collections.abc import Sequence
from typing import TypeVar

from gateway.answer.evidence import Evidence

_T = TypeVar("_T", bound=Evidence)

#: instructions, question frame and each passage's heading line, in tokens
_FRAME_TOKENS = 400
_HEADING_TOKENS = 40


def estimate_tokens(text: str) -> int:
    """A stated estimate, for models whose tokenizer isn't at hand.

    One token for each Han character, kana or Hangul syllable; for the rest four bytes of UTF-8 a
    token, which overestimates English prose slightly. Never characters alone.
    """
    wide = sum(
        1 for c in text if "\u3040" <= c <= "\u30ff" or "\u3400" <= c <= "\u9fff" or "\uac00" <= c <= "\ud7af"
    )
    rest = len(text.encode("utf-8", "replace")) - 3 * wide
    return wide + (max(0, rest) + 3) // 4


def fit_evidence(
    evidence: Sequence[_T], question: str, *, context_tokens: int, output_tokens: int
) -> tuple[_T, ...]:
    """The best passages that fit, in order, none of them cut; empty when not even the first fits."""
    left = context_tokens - output_tokens - _FRAME_TOKENS - estimate_tokens(question)
    kept: list[_T] = []
    for item in evidence:
        left -= estimate_tokens(item.chunk.content) + _HEADING_TOKENS
        if left < 0:
            break
        kept.append(item)
    return tuple(kept)
