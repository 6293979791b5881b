"""Tokens: the ids a text is pooled from, word by word, because the same words come again and again."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

#: longer ones, such as Han text without blanks, come once and are not kept
_WORD_CHARS = 32
_WORDS_KEPT = 32_768
#: about half a millisecond of work
_FEW_CHARS = 256
#: in texts with one of these a word may have other tokens than alone: runs of blanks are tokens of their own,
#: and ``<s>`` is one that starts the text anew
_ENTANGLED = ("  ", "\u2581", "<")


class WordTokens:
    """The same ids as the tokenizer's own for the whole text: none of its tokens reaches over a blank.

    May be called from several threads.
    """

    def __init__(self, tokenizer: Any) -> None:
        """``tokenizer`` is a tokenizers.Tokenizer of LLaMA 2's vocabulary."""
        self._tokenizer = tokenizer
        self._known: dict[str, list[int]] = {}

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

    def _encoded(self, texts: Sequence[str]) -> list[list[int]]:
        """The batch call lets go of the interpreter lock; for few words waking its threads costs more."""
        if sum(map(len, texts)) <= _FEW_CHARS:
            return [self._tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        found = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [one.ids for one in found]

    def _keep(self, fresh: dict[str, list[int]]) -> None:
        if len(self._known) + len(fresh) <= _WORDS_KEPT:
            self._known.update(fresh)
        else:
            self._known = fresh if len(fresh) <= _WORDS_KEPT else {}


def _words(text: str) -> list[str]:
    whole = text[:1] == " " or text[-1:] == " " or any(mark in text for mark in _ENTANGLED)
    return [text] if whole else text.split(" ")
