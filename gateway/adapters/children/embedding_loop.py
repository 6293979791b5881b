"""The child's side of ChildEmbedder: one embedded model, one batch of texts after another.

Started as ``python -m gateway.adapters.children.embedding_loop MODEL SIDE PARENT_PID``. A request's body is
a JSON list of texts; the answer is their vectors as little-endian float32, one after another.
"""

import json
import sys

from gateway.adapters.children.child_loop import Pipes, yield_to_questions
from gateway.adapters.embedded.choice import Side, load_encoder

VECTORS = b"V"


def main() -> None:
    name, side, parent = sys.argv[1], Side(sys.argv[2]), int(sys.argv[3])
    pipes = Pipes(parent)
    if side is Side.PASSAGE:
        yield_to_questions()
    encoder = load_encoder(name, side)

    def answer(_: bytes, body: bytes) -> tuple[bytes, bytes]:
        return VECTORS, encoder.vectors(json.loads(body)).astype("<f4", copy=False).tobytes()

    pipes.serve(answer)


if __name__ == "__main__":
    main()
