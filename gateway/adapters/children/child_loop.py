"""The child's side of ``Child``: requests from stdin, answers to stdout, until stdin ends.

Standard library only; what a child computes with is imported by the module that it runs. A request is a
head and a body, an answer is a kind and its payload. Lengths come first and are big-endian.
"""

import ctypes
import os
import resource
import signal
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

REQUEST = struct.Struct("!IQ")  # bytes of the head, bytes of the body
ANSWER = struct.Struct("!cQ")  # kind, bytes of the payload
READY, FAILED = b"+", b"F"

_MEMORY_BYTES = 2 * 1024**3
_SET_PDEATHSIG = 1
#: of who works for an import; questions are answered at the normal one
_NICENESS = 10


def yield_to_questions() -> None:
    """From now on this process gets a core when nobody else wants it, and a tenth of one else."""
    os.nice(_NICENESS)


class Pipes:
    """The two pipes to the parent ``parent`` (its process id).

    Made first of all: from then on this process has limits, ends with its parent, tells of a defect by
    a FAILED answer, and whatever a library reads or prints stays out of the pipes.
    """

    def __init__(self, parent: int) -> None:
        _end_with(parent)
        _bound_memory()
        self._source, self._answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
        quiet = os.open(os.devnull, os.O_RDWR)
        os.dup2(quiet, 0)
        os.dup2(quiet, 1)
        sys.excepthook = self._report

    def serve(self, answer: Callable[[bytes, bytes], tuple[bytes, bytes]]) -> None:
        """Says READY, then gives ``answer(head, body)`` to each request."""
        _send(self._answers, READY, b"")
        while lengths := self._source.read(REQUEST.size):
            head_bytes, body_bytes = REQUEST.unpack(lengths)
            head = self._source.read(head_bytes)
            _send(self._answers, *answer(head, self._source.read(body_bytes)))

    def _report(self, kind: type[BaseException], _: BaseException, trace: TracebackType | None) -> None:
        """Says where a defect is, by class and line only: an exception's text may quote a document."""
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        where = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else "?"
        _send(self._answers, FAILED, f"{kind.__name__} in {where}".encode())


def _send(answers: BinaryIO, kind: bytes, payload: bytes) -> None:
    answers.write(ANSWER.pack(kind, len(payload)) + payload)
    answers.flush()


def _end_with(parent: int) -> None:
    """Linux kills this process with its parent; elsewhere the end of stdin ends it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            sys.exit(0)


def _bound_memory() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
