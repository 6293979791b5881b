"""The child's side of ChildParser: reads documents from stdin and answers on stdout, until stdin ends.

Started as ``python -m gateway.adapters.build_loop CAP_SECONDS PARENT_PID``; it imports neither the
command line nor any adapter, opens nothing, and knows no secret. A request is a JSON head and the bytes
of the document; an answer is a kind and its payload. Lengths come first and are big-endian.
"""

import ctypes
import json
import math
import os
import resource
import signal
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from gateway.errors import DocumentRejected
from gateway.ingest import chunkfile
from gateway.ingest.building import build_document

REQUEST = struct.Struct("!IQ")  # bytes of the head, bytes of the document
ANSWER = struct.Struct("!cQ")  # kind, bytes of the payload
READY, BUILT, REJECTED, FAILED = b"+", b"B", b"R", b"F"
EXIT_NO_MEMORY = 70

_MEMORY_BYTES = 2 * 1024**3
_SET_PDEATHSIG = 1


def main() -> None:
    cap_s, parent = float(sys.argv[1]), int(sys.argv[2])
    _end_with(parent)
    _bound_memory()
    source, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    quiet = os.open(os.devnull, os.O_RDWR)
    os.dup2(quiet, 0)  # whatever a library reads or prints must not reach the pipes
    os.dup2(quiet, 1)
    sys.excepthook = _reporter(answers)
    _send(answers, READY, b"")
    while head := source.read(REQUEST.size):
        head_bytes, content_bytes = REQUEST.unpack(head)
        request = json.loads(source.read(head_bytes))
        content = source.read(content_bytes)
        _bound_cpu(cap_s)
        _send(answers, *_answer(request["source"], request["media_type"], content))


def _answer(source: str, media_type: str, content: bytes) -> tuple[bytes, bytes]:
    try:
        return BUILT, chunkfile.dump(build_document(source, media_type, content))
    except DocumentRejected as rejected:
        return REJECTED, json.dumps([rejected.reason, rejected.detail]).encode()
    except MemoryError:
        os._exit(EXIT_NO_MEMORY)  # no memory to say so, and none for the next document


def _send(answers: BinaryIO, kind: bytes, payload: bytes) -> None:
    answers.write(ANSWER.pack(kind, len(payload)) + payload)
    answers.flush()


def _end_with(parent: int) -> None:
    """Linux kills this process with its parent; elsewhere the end of stdin and the CPU limit end it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            sys.exit(0)


def _bound_memory() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))


def _bound_cpu(cap_s: float) -> None:
    """The parent watches the clock; this limit holds even if the parent is gone."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = math.ceil(used.ru_utime + used.ru_stime + cap_s) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def _reporter(
    answers: BinaryIO,
) -> Callable[[type[BaseException], BaseException, TracebackType | None], None]:
    """Says where a defect is, by class and line only: an exception's text may quote the document."""

    def report(kind: type[BaseException], _: BaseException, trace: TracebackType | None) -> None:
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        where = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else "?"
        _send(answers, FAILED, f"{kind.__name__} in {where}".encode())

    return report


if __name__ == "__main__":
    main()
