"""Server-sent events of one answer, told apart at little cost: only what isn't a delta is read as JSON."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

_DELTA = b"event: delta\n"
_END = b"\n\n"


class Events:
    """Bytes in, ``(name, data)`` out, however the bytes were split. Comments are passed over."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, content: bytes) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The data of a delta is left out."""
        *blocks, self._rest = (self._rest + content).split(_END)
        for block in blocks:
            if block.startswith(_DELTA):
                yield "delta", {}
            elif block.startswith(b"event: "):
                yield _read(block)


def _read(block: bytes) -> tuple[str, Mapping[str, Any]]:
    fields = dict(line.split(b": ", 1) for line in block.split(b"\n") if b": " in line)
    return fields[b"event"].decode(), json.loads(fields[b"data"])
