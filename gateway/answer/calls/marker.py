"""Holds back text while it could still be the marker of a model that found no support."""

from gateway.answer.prompt import NO_SUPPORT_MARKER


class MarkerHold:
    """Feed the model's text; what comes out is safe to send.

    ``found`` is True once the whole answer so far is the marker; then nothing was ever let out.
    """

    def __init__(self, marker: str = NO_SUPPORT_MARKER) -> None:
        self._marker = marker
        self._held = ""
        self._open = False

    def feed(self, text: str) -> str:
        if self._open:
            return text
        self._held += text
        start = self._held.strip()
        if self._marker.startswith(start) or start == self._marker:
            return ""
        self._open = True
        held, self._held = self._held, ""
        return held

    @property
    def found(self) -> bool:
        return not self._open and self._held.strip() == self._marker

    def flush(self) -> str:
        """The end of the answer: whatever was held and isn't the marker."""
        if self.found:
            return ""
        held, self._held = self._held, ""
        return held
