"""The child's side of ChildParser: reads documents and answers with their passages.

Started as ``python -m gateway.adapters.children.build_loop CAP_SECONDS MEMORY_MB PARENT_PID``; it imports
neither the command line nor any adapter but its pipes, opens nothing, and knows no secret. A request's
head is JSON with the source and the media type, its body the bytes of the document.
"""

import json
import math
import os
import resource
import sys

from gateway.adapters.children.child_loop import Pipes, yield_to_questions
from gateway.errors import DocumentRejected
from gateway.ingest import chunkfile
from gateway.ingest.building import build_document

BUILT, REJECTED = b"B", b"R"
EXIT_NO_MEMORY = 70


def main() -> None:
    cap_s, memory_mb, parent = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])

    def answer(head: bytes, content: bytes) -> tuple[bytes, bytes]:
        request = json.loads(head)
        _bound_cpu(cap_s)
        return _answer(request["source"], request["media_type"], content)

    pipes = Pipes(parent)
    yield_to_questions()
    _bound_memory(memory_mb)
    pipes.serve(answer)


def _answer(source: str, media_type: str, content: bytes) -> tuple[bytes, bytes]:
    try:
        return BUILT, chunkfile.dump(build_document(source, media_type, content))
    except DocumentRejected as rejected:
        return REJECTED, json.dumps([rejected.reason, rejected.detail]).encode()
    except MemoryError:
        os._exit(EXIT_NO_MEMORY)  # no memory to say so, and none for the next document


def _bound_memory(memory_mb: int) -> None:
    """A hostile file may ask for gigabytes: this child is denied them before others are short of them."""
    if sys.platform == "linux":
        limit = memory_mb * 1024**2
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _bound_cpu(cap_s: float) -> None:
    """The parent watches the clock; this limit holds even if the parent is gone."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = math.ceil(used.ru_utime + used.ru_stime + cap_s) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.getrlimit(resource.RLIMIT_CPU)[1]))


if __name__ == "__main__":
    main()
