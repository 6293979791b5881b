"""A moderator in this process: flags the phrases of a file, for whoever has no moderation endpoint."""

import math
import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path

from gateway.answer.calls.moderation import Verdict
from gateway.context import Deadline
from gateway.errors import ConfigurationError

_LINE = re.compile(r"(?P<category>[a-z0-9_/-]{1,40}):\s*(?P<phrase>\S.*)")
#: texts don't leave this process
_MAX_SENSITIVITY = 3


class PhraseModerator:
    """Flags a text that holds a phrase, whatever its case, its width and the space between its words."""

    def __init__(self, phrases: Mapping[str, str]) -> None:
        """``phrases`` maps each one to its category."""
        self._phrases = {_folded(phrase): category for phrase, category in phrases.items()}

    @classmethod
    def load(cls, path: Path) -> "PhraseModerator":
        """From a file with ``category: phrase`` on each line; ``#`` begins a line that says nothing.

        Raises ConfigurationError, with the number of the line that can't be read and nothing of it.
        """
        try:
            lines = path.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            raise _invalid("it can't be read") from None
        phrases = {}
        for number, line in enumerate(map(str.strip, lines), start=1):
            if not line or line.startswith("#"):
                continue
            found = _LINE.fullmatch(line)
            if found is None:
                raise _invalid(f"line {number} isn't of the form category: phrase")
            phrases[found["phrase"]] = found["category"]
        if not phrases:
            raise _invalid("it has no phrases")
        return cls(phrases)

    @property
    def max_sensitivity(self) -> int:
        return _MAX_SENSITIVITY

    async def check(self, text: str, deadline: Deadline) -> Verdict:
        deadline.budget("moderation", math.inf)
        folded = _folded(text)
        found = {category for phrase, category in self._phrases.items() if phrase in folded}
        return Verdict(bool(found), tuple(sorted(found)))


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _invalid(because: str) -> ConfigurationError:
    return ConfigurationError("moderation_phrases_invalid", f"the file of moderated phrases: {because}")
