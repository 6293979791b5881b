"""The child's side of ChildEmbedder: the bundled model, one batch of texts after another.

Started as ``python -m gateway.adapters.children.embedding_loop PARENT_PID``. A request's body is a JSON
list of texts; the answer is their vectors as little-endian float32, one after another.
"""

import json
import os
import sys

from gateway.adapters.children.child_loop import Pipes
from gateway.adapters.embedded.embedder import BundledEmbedder

VECTORS = b"V"

#: questions are answered at the normal one
_NICENESS = 10


def main() -> None:
    pipes = Pipes(int(sys.argv[1]))
    os.nice(_NICENESS)
    embedder = BundledEmbedder.load_now()

    def answer(_: bytes, body: bytes) -> tuple[bytes, bytes]:
        return VECTORS, embedder.vectors(json.loads(body)).astype("<f4", copy=False).tobytes()

    pipes.serve(answer)


if __name__ == "__main__":
    main()
