"""Amounts: numbers with their units, so that 5 GB is never taken for 5 MB."""

import re

from gateway.answer.support.numerals import in_digits
from gateway.answer.support.units import UNIT_OF

_AMOUNT = re.compile(
    r"(?:(?P<money>[$€£¥￥])\s*)?(?P<number>[0-9]+(?:[.,:][0-9]+)*)"
    r"(?:[ \t\-]*(?P<unit>[%€$£¥￥]|[A-Za-zµ]+|[\u3400-\u9fff]{1,2}))?"
)


def amounts(text: str) -> frozenset[tuple[str, str]]:
    """Every number, also one in words, as (digits, unit); the unit is '' where none that is known follows."""
    return frozenset(
        (found["number"].replace(",", ""), _unit(found["money"], found["unit"] or ""))
        for found in _AMOUNT.finditer(in_digits(text))
    )


def numbers(text: str) -> frozenset[str]:
    """Those that stand there in digits: a question's "which two" asks for two things and names no amount."""
    return frozenset(found["number"].replace(",", "") for found in _AMOUNT.finditer(text))


def same_amounts(sentence: str, quote: str) -> bool:
    """Whether each number of the sentence stands in the quote, with the same unit where both have one."""
    stated = amounts(quote)
    known = {number for number, _ in stated}
    bare = {number for number, unit in stated if not unit}
    return all(
        number in known if not unit else (number, unit) in stated or number in bare
        for number, unit in amounts(sentence)
    )


def _unit(money: str | None, word: str) -> str:
    if money:
        return UNIT_OF[money]
    lower = word.lower()
    return UNIT_OF.get(lower) or UNIT_OF.get(word[:1] if "\u3400" <= word[:1] <= "\u9fff" else lower, "")
