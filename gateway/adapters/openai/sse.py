"""The bytes of a chat stream, sans IO: SSE events out of any split, and whole code points out of halves."""

import re

from gateway.errors import UpstreamFailed

#: a single event larger than this is a fault of the upstream, not an answer
MAX_EVENT_BYTES = 1024 * 1024

_LF, _CR = 0x0A, 0x0D
_BOM = b"\xef\xbb\xbf"
_SURROGATE = re.compile("[\ud800-\udfff]")


class SseDecoder:
    """Turns reads of any size into the ``data`` of each event.

    Lines end with LF, CR or CRLF, also when the two bytes arrive in different reads; comments, other fields
    and a leading byte order mark are dropped; several ``data`` lines are joined by LF. An event that is not
    ended by an empty line never comes out (WHATWG HTML, "server-sent events", 9.2.6).
    """

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max = max_event_bytes
        self._line: list[bytes] = []
        self._line_size = 0
        self._data: list[bytes] = []
        self._data_size = 0
        self._after_cr = False
        self._at_start = True

    def feed(self, read: bytes) -> list[bytes]:
        """The events this read completes. Raises UpstreamFailed when one outgrows the limit."""
        if not read:
            return []
        if (events := self._whole_events(read)) is not None:
            return events
        if self._after_cr and read[0] == _LF:
            read = read[1:]
        events = []
        # bytes.splitlines knows CR, LF and CRLF only, which is exactly the standard's set
        for line in read.splitlines(keepends=True):
            if line[-1] not in (_LF, _CR):
                self._hold(line)
            else:
                self._end_line(line.rstrip(b"\r\n"), events)
        self._after_cr = read.endswith(b"\r")
        return events

    def _whole_events(self, read: bytes) -> list[bytes] | None:
        """The short way for what nearly every read is: whole events of one line of data each, else None."""
        if (
            not (read.startswith(b"data: ") and read.endswith(b"\n\n"))
            or self._line
            or self._data
            or b"\r" in read
            or len(read) > self._max
        ):
            return None
        events = read[6:-2].split(b"\n\ndata: ")
        if any(b"\n" in event for event in events):
            return None
        self._after_cr = self._at_start = False
        return events

    def _hold(self, start: bytes) -> None:
        self._line.append(start)
        self._line_size += len(start)
        self._check(self._line_size + self._data_size)

    def _end_line(self, line: bytes, events: list[bytes]) -> None:
        if self._line:
            self._line.append(line)
            line = b"".join(self._line)
            self._line.clear()
            self._line_size = 0
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BOM)
        if not line:
            self._dispatch(events)
            return
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
            self._data_size += len(value) + 1
            self._check(self._data_size)

    def _dispatch(self, events: list[bytes]) -> None:
        if self._data:
            events.append(b"\n".join(self._data))
            self._data.clear()
            self._data_size = 0

    def _check(self, size: int) -> None:
        if size > self._max:
            raise UpstreamFailed("the answer model sent an event that is too large")


class SurrogateJoiner:
    """Joins UTF-16 halves that JSON escapes carried in different deltas; a half alone becomes U+FFFD."""

    def __init__(self) -> None:
        self._high = ""

    def push(self, text: str) -> str:
        """Whole code points only; a leading half at the end waits for the next text."""
        if not text or (not self._high and not _SURROGATE.search(text)):
            return text
        text, self._high = self._high + text, ""
        if "\ud800" <= text[-1] <= "\udbff":
            text, self._high = text[:-1], text[-1]
        return _whole(text)

    def flush(self) -> str:
        """What is left when no more text comes: U+FFFD or nothing."""
        rest, self._high = self._high, ""
        return _whole(rest)


def _whole(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
