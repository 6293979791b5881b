"""ChildEmbedder: an embedded model in a process that never holds our interpreter lock."""

import json
import math
from collections.abc import Sequence

import anyio

from gateway.adapters.children.child import AnswerTooLarge, Child, ChildEnded, ChildNotStarted
from gateway.adapters.children.embedding_loop import VECTORS
from gateway.adapters.embedded.choice import WORDLLAMA, EmbeddedModel, Side
from gateway.context import Deadline
from gateway.errors import DeadlineExceeded, EmbedderUnavailable
from gateway.ingest.vectors import unpack
from gateway.release.model import EmbeddingSpace
from gateway.retrieval.embedding import Vector

_ANSWER_BYTES = 256 * 1024 * 1024
# The child is one of many processes here; its libraries would each start a thread a core.
_ONE_THREAD = {
    "TOKENIZERS_PARALLELISM": "false",
    "RAYON_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


class ChildEmbedder:
    """An Embedder of texts of one side with one child, started on first use (about a second) and reused.

    Batches wait for each other. A cancel or a passed deadline kills the child, and so does a defect in
    it; the next batch gets a fresh one. A child for passages gives way to everything else.
    """

    def __init__(self, model: EmbeddedModel = WORDLLAMA, side: Side = Side.PASSAGE) -> None:
        self._space = model.space
        self._child = Child(
            "gateway.adapters.children.embedding_loop",
            (model.name, side),
            answer_bytes=_ANSWER_BYTES,
            environment=_ONE_THREAD,
        )
        self._lock = anyio.Lock()

    @property
    def space(self) -> EmbeddingSpace:
        return self._space

    @property
    def max_sensitivity(self) -> int:
        return 3  # nothing leaves this machine

    @property
    def pid(self) -> int | None:
        """The living child's process id."""
        return self._child.pid

    async def embed(self, texts: Sequence[str], deadline: Deadline) -> list[Vector]:
        """The very vectors of the model. The deadline covers waiting and the start of a child."""
        seconds = deadline.budget("embedding", math.inf)
        if not texts:
            return []
        body = json.dumps(list(texts)).encode()
        try:
            with anyio.fail_after(seconds):
                async with self._lock:
                    kind, payload = await self._child.ask(b"", body, math.inf)
        except TimeoutError:
            raise DeadlineExceeded("embedding") from None
        except (ChildNotStarted, ChildEnded, AnswerTooLarge):
            raise EmbedderUnavailable("the embedding process ended or could not be started") from None
        if kind != VECTORS or len(payload) != 4 * len(texts) * self._space.dimension:
            raise EmbedderUnavailable("the embedding process could not embed these texts")
        return unpack(payload, self._space.dimension)

    async def aclose(self) -> None:
        """Ends the child, also one at work; that batch raises EmbedderUnavailable."""
        await self._child.aclose()
