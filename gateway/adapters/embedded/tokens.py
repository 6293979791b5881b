"""Tokens: the ids a text is pooled from, word by word, because the same words come again and again."""

import re
from collections.abc import Sequence
from itertools import chain
from typing import Any

#: longer ones come once and are not kept
_WORD_CHARS = 32
_WORDS_KEPT = 32_768
#: about half a millisecond of work
_FEW_CHARS = 256
#: in texts with one of these a word may have other tokens than alone: runs of blanks are tokens of their own,
#: and ``<s>`` is one that starts the text anew
_ENTANGLED = ("  ", "\u2581", "<")
#: Han characters and their marks: each is in tokens of its own, or in those of its bytes
_ALONE = r"\u3000-\u303f\u3400-\u9fff\uff00-\uffef"
_HAS_ALONE = re.compile(f"[{_ALONE}]")
_PIECE = re.compile(f"[{_ALONE}]|[^{_ALONE}]+")
#: before a piece that doesn't begin its word: other tokens stand there than at the beginning
_INSIDE = "一"
#: before a text that stays whole; no word has a blank
_WHOLE = " "


class WordTokens:
    """The same ids as the tokenizer's own for the whole text: none of its tokens reaches over a blank, and
    none has a Han character beside another sign.

    May be called from several threads.
    """

    def __init__(self, tokenizer: Any) -> None:
        """``tokenizer`` is a tokenizers.Tokenizer of LLaMA 2's vocabulary."""
        self._tokenizer = tokenizer
        self._known: dict[str, list[int]] = {}
        self._before = len(tokenizer.encode(_INSIDE, add_special_tokens=False).ids)

    def __call__(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids, one list a text; blocks."""
        split = [_words(text) for text in texts]
        known = self._known  # never loses a word: a full one is replaced
        distinct = dict.fromkeys(chain.from_iterable(split))
        missing = [word for word in distinct if word not in known]
        fresh = dict(zip(missing, self._encoded(missing), strict=True))
        self._keep({word: ids for word, ids in fresh.items() if len(word) <= _WORD_CHARS})
        found = {word: fresh[word] if word in fresh else known[word] for word in distinct}
        return [[*chain.from_iterable(map(found.__getitem__, words))] for words in split]

    def _encoded(self, words: Sequence[str]) -> list[list[int]]:
        """The batch call lets go of the interpreter lock; for few words waking its threads costs more."""
        texts = [word.removeprefix(_WHOLE) for word in words]
        if sum(map(len, texts)) <= _FEW_CHARS:
            found = [self._tokenizer.encode(text, add_special_tokens=False) for text in texts]
        else:
            found = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [
            one.ids[self._before :] if _is_inside(w) else one.ids for w, one in zip(words, found, strict=True)
        ]

    def _keep(self, fresh: dict[str, list[int]]) -> None:
        if len(self._known) + len(fresh) <= _WORDS_KEPT:
            self._known.update(fresh)
        else:
            self._known = fresh if len(fresh) <= _WORDS_KEPT else {}


def _words(text: str) -> list[str]:
    if text[:1] == " " or text[-1:] == " " or any(mark in text for mark in _ENTANGLED):
        return [_WHOLE + text]
    words = text.split(" ")
    if text.isascii() or _HAS_ALONE.search(text) is None:
        return words
    return [*chain.from_iterable(map(_pieces, words))]


def _pieces(word: str) -> list[str]:
    """Signs that are alone one by one, and what stands between them."""
    first, *inside = _PIECE.findall(word)
    return [first, *map(_INSIDE.__add__, inside)]


def _is_inside(word: str) -> bool:
    return len(word) > 1 and word[0] == _INSIDE
