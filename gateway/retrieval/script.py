"""Script: the writing that a question is in, because shares of words don't mean the same in each of them."""

import re

#: a gate may have thresholds of its own for questions in one of these
HAN, LATIN = "han", "latin"
SCRIPTS = (HAN, LATIN)

_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_WORD = re.compile(r"[A-Za-z0-9_]+|[^A-Za-z0-9_]+")
_LETTER = re.compile(r"[^\W\d_]")
_LATIN = re.compile(r"[A-Za-z\u00aa\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u1e00-\u1eff]")


def script_of(question: str) -> str:
    """One of SCRIPTS, or '' for everything else: another alphabet, no letter at all, or English that names a
    thing in Chinese.

    Names and codes stand in Latin letters in Chinese too, so a question is Han when a quarter of its letters
    are, those of codes left out, and all others are Latin. Kana, Hangul or any other letter makes it neither:
    nobody has measured how such languages fare with thresholds that were fitted on Chinese and English.
    """
    words = " ".join(word for word in _WORD.findall(question) if not _is_code(word))
    letters = _LETTER.findall(words)
    han = sum(1 for letter in letters if _HAN.match(letter))
    latin = sum(1 for letter in letters if _LATIN.match(letter))
    if not letters or han + latin < len(letters):
        return ""
    if not han:
        return LATIN
    return HAN if han * 4 >= len(letters) else ""


def _is_code(word: str) -> bool:
    """``ERR_4012``, ``TLS``, ``v2``: the same in every language."""
    return word.isascii() and (word.isupper() or any(sign.isdigit() or sign == "_" for sign in word))
