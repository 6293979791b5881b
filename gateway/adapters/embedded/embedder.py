"""The embedder that comes inside a wheel: nothing to install, no key, no network.

WordLlama (MIT) pools static token vectors; its weights derive from LLaMA 2 token embeddings.
"""

import importlib
import logging
from collections.abc import Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from anyio import to_thread
from numpy.typing import NDArray

from gateway.adapters.embedded.tokens import WordTokens
from gateway.context import Deadline
from gateway.errors import DeadlineExceeded, EmbedderUnavailable
from gateway.release.model import EmbeddingSpace, GateFit, RetrievalConfig
from gateway.retrieval.embedding import Vector
from gateway.retrieval.script import HAN, LATIN

SPACE = EmbeddingSpace(space_id="wordllama-256-v1", model="wordllama-l2-supercat", dimension=256)

_LINEAR = "linear-1-39e23998"
_NAMES = ("top_similarity", "sentence_coverage", "match", "rerank_score")


def _gate(*weights: float, bias: float, script: str = "", reranker: str = "") -> GateFit:
    """``weights`` in the order of _NAMES."""
    return GateFit(tuple(zip(_NAMES, weights, strict=False)), bias, 0.2, reranker, script)


#: fitted by ``python -m eval.gate`` for SPACE; the figures are in docs/decisions/0021
CALIBRATION = RetrievalConfig(
    version="wordllama-256-v1/gate-4",
    w_similarity=2.99,
    w_coverage=11.3,
    bias=5.55,
    min_coverage=0.2,
    gates=(
        _gate(4.5, 6.32, 15.05, bias=7.48),
        _gate(0.0, 6.7, 15.57, bias=4.57, script=HAN),
        _gate(11.35, 9.55, 4.78, bias=9.01, script=LATIN),
        _gate(0.0, 2.56, 16.35, 0.34, bias=10.03, reranker=_LINEAR),
        _gate(0.0, 4.75, 17.13, 0.23, bias=8.83, script=HAN, reranker=_LINEAR),
        _gate(3.36, 0.38, 0.81, 0.86, bias=13.35, script=LATIN, reranker=_LINEAR),
    ),
)

#: about a millisecond of work; below it a thread costs more than it saves
_INLINE_CHARACTERS = 2_500
#: texts a trip to the thread; a deadline or a cancel waits for one trip at most
_BATCH = 16


class BundledEmbedder:
    """Deterministic: a text's vector depends on that text alone, not on its batch.

    A text without a single token (only the empty string) gets the direction opposite to the average
    token: a unit vector, near nothing that has words in it.
    """

    def __init__(self, tokenizer: Any, table: NDArray[np.float32]) -> None:
        """``tokenizer`` is a tokenizers.Tokenizer without padding; ``table`` is (tokens, dimension)."""
        self._tokens = WordTokens(tokenizer)
        self._table = table
        mean = table.mean(axis=0, dtype=np.float64)
        self._nothing: NDArray[np.float32] = (-mean / np.linalg.norm(mean)).astype(np.float32)

    @classmethod
    async def load(cls) -> "BundledEmbedder":
        """Reads the weights in a thread (about a second). Raises EmbedderUnavailable."""
        return await to_thread.run_sync(cls.load_now)

    @classmethod
    def load_now(cls) -> "BundledEmbedder":
        """The same for callers without an event loop. Raises EmbedderUnavailable."""
        wordllama = _import_quietly("wordllama")
        try:
            # The plain load looks in a folder of another name and would then download.
            model = wordllama.WordLlama.load(
                cache_dir=Path(wordllama.__file__).parent, dim=SPACE.dimension, disable_download=True
            )
        except OSError as error:
            raise EmbedderUnavailable("the bundled model's files are missing") from error
        model.tokenizer.no_padding()
        return cls(model.tokenizer, model.embedding)

    @property
    def space(self) -> EmbeddingSpace:
        return SPACE

    @property
    def max_sensitivity(self) -> int:
        return 3  # nothing leaves this process

    async def embed(self, texts: Sequence[str], deadline: Deadline) -> list[Vector]:
        """Few short texts at once on the loop, everything else in a thread, a batch a trip."""
        vectors: list[Vector] = []
        remaining = iter(texts)
        inline = sum(map(len, texts)) <= _INLINE_CHARACTERS
        while batch := list(islice(remaining, _BATCH)):
            if deadline.remaining() <= 0:
                raise DeadlineExceeded("embedding")
            rows = self.vectors(batch) if inline else await to_thread.run_sync(self.vectors, batch)
            vectors.extend(tuple(row) for row in rows.tolist())
        return vectors

    def vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Unit rows, one a text; blocks."""
        tokens = self._tokens(texts)
        rows = np.tile(self._nothing, (len(texts), 1))
        worded = [place for place, ids in enumerate(tokens) if ids]
        if worded:
            for place, mean in zip(worded, self._means([tokens[place] for place in worded]), strict=True):
                length = np.sqrt(mean.dot(mean))
                if length >= 1e-6:
                    rows[place] = mean / length
        return rows

    def _means(self, tokens: Sequence[list[int]]) -> NDArray[np.float32]:
        """Of each list's token vectors; none is empty."""
        counts = np.array([*map(len, tokens)])
        starts = np.cumsum(counts) - counts
        rows = self._table.take([*chain.from_iterable(tokens)], axis=0)
        sums = np.empty((len(tokens), rows.shape[1]), dtype=np.float32)
        for own, first, count in zip(sums, starts.tolist(), counts.tolist(), strict=True):
            np.add.reduce(rows[first : first + count], axis=0, out=own)  # a quarter of reduceat's time
        return sums / counts.astype(np.float32)[:, np.newaxis]


def _import_quietly(name: str) -> Any:
    """Imports a library that configures the root logger on import, without letting it."""
    root, placeholder = logging.getLogger(), logging.NullHandler()
    root.addHandler(placeholder)
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise EmbedderUnavailable(f"{name} is not installed") from error
    finally:
        root.removeHandler(placeholder)
