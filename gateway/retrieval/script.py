"""Script: the writing that a question is in, because shares of words don't mean the same in each of them."""

import re

#: a gate may have thresholds of its own for questions in one of these
HAN, LATIN = "han", "latin"
SCRIPTS = (HAN, LATIN)

_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_KANA_OR_HANGUL = re.compile(r"[\u3040-\u30ff\u1100-\u11ff\uac00-\ud7af]")
_LETTER = re.compile(r"[^\W\d_]")
_LATIN = re.compile(r"[A-Za-z\u00aa\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u1e00-\u1eff]")


def script_of(question: str) -> str:
    """One of SCRIPTS, or '' for everything else: two scripts at once, no letter at all.

    Names and codes stand in Latin letters in Chinese too, so one Han character makes a question Han. Kana and
    Hangul make it neither, with or without Han beside them: nobody has measured how Japanese and Korean fare
    with thresholds that were fitted on Chinese.
    """
    if _KANA_OR_HANGUL.search(question):
        return ""
    if _HAN.search(question):
        return HAN
    letters = _LETTER.findall(question)
    return LATIN if letters and all(map(_LATIN.match, letters)) else ""
