"""Token ids word by word are those of the whole text."""

import functools
import random
import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from gateway.adapters.embedded.tokens import WordTokens

TEXTS = [
    "The upload limit is 42 megabytes for every member of staff.",
    "",
    " ",
    "  two  blanks and  three   blanks ",
    " one before",
    "one behind ",
    "lines\nand\ttabs\r\nand\u00a0hard\u3000and wide blanks",
    "限额是 42 兆字节，每位员工都一样。 " * 20,
    "a\u2581 b \u2581c",
    "x <s> y </s> z<unk> w",
    "emoji 🙂 \u200b zero \x00 nul e\u0301 combined",
    "w" * 100 + " " + "v" * 32 + " " + "u" * 33,
    "限upload是10,000 字节 v限2 额、《额》“额”…—！",
    "㐀𠀀鿿～＀　",
    "一",
    "一<",
    "一 ",
    "一a 一",
]


@functools.cache
def tokenizer() -> Tokenizer:
    """The one that comes with the bundled embedder."""
    origin = find_spec("wordllama")
    assert origin is not None
    (found,) = Path(origin.origin or "").parent.glob("tokenizers/l2_supercat*.json")
    made = Tokenizer.from_file(str(found))
    made.no_padding()
    made.no_truncation()
    return made


def whole(text: str) -> list[int]:
    return list(tokenizer().encode(text, add_special_tokens=False).ids)


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_a_text_has_the_ids_that_the_tokenizer_gives_it(text: str) -> None:
    """The first time and the second, alone and beside others."""
    tokens = WordTokens(tokenizer())
    for _ in range(2):
        assert tokens([text]) == [whole(text)]
        assert tokens([*TEXTS, text]) == [*map(whole, TEXTS), whole(text)]


def test_texts_of_any_signs_have_them_too() -> None:
    """Drawn from blanks, marks and letters of several scripts."""
    signs = random.Random(7)
    tokens = WordTokens(tokenizer())
    texts = [
        "".join(signs.choices("aeTh  \n.,-_<>s/限额一。é\u2581🙂0", k=signs.randrange(40)))
        for _ in range(400)
    ]
    assert tokens(texts) == [*map(whole, texts)]


def test_no_token_reaches_over_a_blank() -> None:
    """What makes it right."""
    assert not [token for token in tokenizer().get_vocab() if "\u2581" in token.lstrip("\u2581")]


def test_no_token_has_a_han_character_beside_another_sign() -> None:
    """Nor one of their marks; what lets each of them be looked up alone."""
    alone = re.compile(r"[\u3000-\u303f\u3400-\u9fff\uff00-\uffef]")
    assert not [token for token in tokenizer().get_vocab() if len(token) > 1 and alone.search(token)]
