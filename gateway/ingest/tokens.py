"""Tokens: whether a passage has more of them than an embedder is meant to see.

Counted with the tokenizer of the bundled embedder (Llama 2, 32,000 pieces). For an outside embedder
that is the stated estimate: other vocabularies are larger, so their counts are mostly lower.
"""

import functools
import importlib.util
import string
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from gateway.ingest.splitting import estimate_tokens

_TOKENIZER_FILE = Path("tokenizers", "l2_supercat_tokenizer_config.json")
# Measured over 3,400 passages (prose in English, German, Chinese, Japanese, Korean, Russian and Thai,
# Python, JavaScript, C, JSON, tables, logs): the count divided by the estimate is 0.9 to 2.4, high
# where digits, capitals and letters beyond ASCII are. Divided by this bound it is at most 0.97, in
# odd C headers 1.09.
_PER_ESTIMATE = 1.4
_PER_DENSE_BYTE = 0.8
_DENSE_BYTES = bytes(range(128, 256)) + (string.digits + string.ascii_uppercase + "_").encode()


def count_tokens(text: str) -> int:
    """As the bundled embedder counts; a quarter of a millisecond for a passage."""
    # One by one: a batch would start a thread a core, each with a stack from the child's memory limit.
    return len(_tokenizer().encode(text, add_special_tokens=False).ids)


def most_tokens(texts: Sequence[str], maximum: int) -> int:
    """The highest count among those texts that may have more than ``maximum``; 0 when none may."""
    return max((count_tokens(text) for text in texts if _may_exceed(text, maximum)), default=0)


def _may_exceed(text: str, maximum: int) -> bool:
    content = text.encode()
    dense = len(content) - len(content.translate(None, _DENSE_BYTES))
    return _PER_ESTIMATE * estimate_tokens(text) + _PER_DENSE_BYTE * dense > maximum


@functools.cache
def _tokenizer() -> Tokenizer:
    """Loaded when first needed (a fifth of a second), without the package around it."""
    package = importlib.util.find_spec("wordllama")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("wordllama is not installed")
    tokenizer = Tokenizer.from_file(str(Path(package.origin).parent / _TOKENIZER_FILE))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer
