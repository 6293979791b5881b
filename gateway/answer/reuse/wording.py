"""The wording of a question: which differences between two of them say nothing.

Whatever isn't named here stays apart: a letter's case, a hyphen, a point, a sign or a quote may be all that
two questions differ by, and a call more costs less than an answer to another question.
"""

import re
import unicodedata

#: spaces of any width and the tab; U+1680 is one too, and is seen as a line
_BLANKS = re.compile("[ \t\u00a0\u2000-\u200a\u202f\u205f\u3000]+")
#: in what is quoted, and where lines are laid out, a blank more may be what is asked about
_LAID_OUT = re.compile("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029\"'`´‘’‚‛“”„‟«»‹›「」『』﹁﹂﹃﹄《》〈〉＂＇｀]")
_MARKS = ("?", "？")


def plain_wording(question: str) -> str:
    """What is looked for: characters are composed (NFC), and in one line without quotes blanks say little."""
    composed = unicodedata.normalize("NFC", question).strip()
    return composed if _LAID_OUT.search(composed) else _BLANKS.sub(" ", composed)


def same_wording(question: str) -> str:
    """Equal for questions that ask the same in the same words: as they are looked for, but for one question
    mark at the very end, right behind a letter or a digit. "int??" asks about ``int?``.
    """
    wording = plain_wording(question)
    ended = wording.endswith(_MARKS) and wording[-2:-1].isalnum()
    return wording[:-1] if ended else wording
