"""The wording of a question: which differences between two of them say nothing."""

import re
import unicodedata

_BLANKS = re.compile(r"[^\S\r\n]+")


def same_wording(question: str) -> str:
    """Equal for questions that are the same but for blanks and for the way their characters are composed."""
    return _BLANKS.sub(" ", unicodedata.normalize("NFC", question)).strip()


def about_now(question: str) -> bool:
    """Whether it is asked about a time that moves on with the clock."""
    return False
