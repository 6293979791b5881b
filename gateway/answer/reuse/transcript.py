"""A transcript: the text of one answer as it grows, for several who read it at their own pace."""

import io

#: who has much to catch up with is given it in slices, which his session then can hold back
_SLICE_CHARS = 4096


class Transcript:
    """Its length is in characters. Pieces of a token each, kept as they come, would weigh tenfold."""

    def __init__(self) -> None:
        self._text = io.StringIO()
        self._length = 0
        self._last = ""
        self._slice = _SLICE_CHARS

    def __len__(self) -> int:
        return self._length

    def add(self, text: str) -> None:
        self._text.write(text)
        self._length += len(text)
        self._last = text
        self._slice = max(self._slice, len(text))  # what came whole goes whole

    def after(self, place: int) -> str:
        """What stands behind the first ``place`` characters, as much as one may take at once."""
        if self._length - place == len(self._last):
            return self._last if place < self._length else ""
        self._text.seek(place)
        text = self._text.read(self._slice)
        self._text.seek(0, io.SEEK_END)
        return text

    def whole(self) -> str:
        return self._text.getvalue()
