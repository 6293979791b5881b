"""Segments, sans IO: a stream of text cut into pieces that a moderator can judge."""

import re

_END = re.compile(r"[.!?…](?=\s)|[。！？]|\n")


class Segments:
    """Feed text in pieces of any size; what comes out, joined, is the same text.

    A segment ends with a sentence or a line, or between two words before it is longer than ``longest``
    characters. A full stop is an end only once a space follows it: ``3.`` may go on as ``3.5``.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._held = ""

    def feed(self, text: str) -> list[str]:
        """The segments that are complete now; several sentences that came together are one."""
        self._held += text
        complete = []
        while end := self._end():
            complete.append(self._held[:end])
            self._held = self._held[end:]
        return complete

    def flush(self) -> str:
        """The end of the text: what is left, which may be nothing."""
        held, self._held = self._held, ""
        return held

    def _end(self) -> int:
        """Where the next segment ends; 0 when nobody can tell yet."""
        # the full stop at the window's end needs to see what follows it
        ends = [found.end() for found in _END.finditer(self._held, 0, self._longest + 1)]
        if ends:
            return min(ends[-1], self._longest)
        if len(self._held) <= self._longest:
            return 0
        return self._held.rfind(" ", 0, self._longest) + 1 or self._longest
