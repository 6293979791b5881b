"""Segments: where a text may be cut, whatever its pieces were."""

import random

import pytest

from gateway.answer.calls.segments import Segments

TEXTS = [
    "It is 42. And 3.5 of it. Ask!\nA new line\n\n and the rest",
    "限额是 42 兆字节。第二句！还有？没有句号",
    "word " * 300,
    "x" * 1000,
    " \n \n. . .",
    "",
]


def cut(text: str, sizes: list[int], longest: int = 40) -> list[str]:
    """Fed in pieces of these sizes, over and over."""
    segments, found, at, turn = Segments(longest), [], 0, 0
    while at < len(text):
        size = sizes[turn % len(sizes)]
        found += segments.feed(text[at : at + size])
        at, turn = at + size, turn + 1
    return [*found, segments.flush()]


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: repr(text[:12]))
@pytest.mark.parametrize("seed", range(6))
def test_joined_they_are_the_text_and_none_is_too_long(text: str, seed: int) -> None:
    """However the text came."""
    rng = random.Random(seed)
    found = cut(text, [rng.randint(1, 3 if seed % 2 else 90) for _ in range(50)])
    assert "".join(found) == text
    assert all(found[:-1]), "an empty segment would be judged for nothing"
    assert all(len(segment) <= 40 for segment in found)


def test_they_end_with_sentences_and_lines() -> None:
    """A full stop inside a number is none; the last one waits for what follows it."""
    assert cut("It is 42. And 3.5 of it. Ask!\nMore", [1]) == [
        "It is 42.",
        " And 3.5 of it.",
        " Ask!\n",
        "More",
    ]
    assert cut("限额是 42。第二句！还有", [1]) == ["限额是 42。", "第二句！", "还有"]
    segments = Segments(40)
    assert segments.feed("It is 42.") == []
    assert segments.feed(" And") == ["It is 42."]


def test_a_long_sentence_is_cut_between_words() -> None:
    """Or anywhere, where there is no space."""
    assert cut("one two three four", [1], longest=9) == ["one two ", "three ", "four"]
    assert cut("abcdefghij", [1], longest=4) == ["abcd", "efgh", "ij"]
