"""Amounts: numbers with their units, so that 5 GB is never taken for 5 MB."""

import re

_AMOUNT = re.compile(
    r"(?P<money>[$€£¥￥])?\s*(?P<number>[0-9]+(?:[.,:][0-9]+)*)"
    r"(?:[ \t\-]*(?P<unit>[%€$£¥￥]|[A-Za-zµ]+|[\u3400-\u9fff]{1,2}))?"
)
_SPELLINGS = (
    "% percent",
    "ms millisecond milliseconds 毫秒",
    "s sec secs second seconds 秒",
    "min mins minute minutes 分 分钟",
    "h hr hrs hour hours 时 小时",
    "d day days 天 日",
    "week weeks 周",
    "month months 月 个月",
    "year years 年",
    "b byte bytes",
    "kb kilobyte kilobytes",
    "mb megabyte megabytes",
    "gb gigabyte gigabytes",
    "tb terabyte terabytes",
    "m metre metres meter meters 米",
    "km kilometre kilometres kilometer kilometers 公里",
    "cm centimetre centimetres centimeter centimeters 厘米",
    "mm millimetre millimetres millimeter millimeters 毫米",
    "g gram grams 克",
    "kg kilogram kilograms 公斤",
    "eur euro euros €",
    "usd dollar dollars $ 美元",
    "gbp pound pounds £",
    "cny rmb yuan ¥ ￥ 元",
    "thousand thousands",
    "million millions",
    "billion billions",
    "万",
    "亿",
)
_UNIT_OF = {spelling: names.split()[0] for names in _SPELLINGS for spelling in names.split()}


def amounts(text: str) -> frozenset[tuple[str, str]]:
    """Every number as (digits, unit); the unit is '' where none that is known stands at it."""
    return frozenset(
        (found["number"].replace(",", ""), _unit(found["money"], found["unit"] or ""))
        for found in _AMOUNT.finditer(text)
    )


def same_amounts(sentence: str, quote: str) -> bool:
    """Whether each number of the sentence stands in the quote, with the same unit where both have one."""
    stated = amounts(quote)
    numbers = {number for number, _ in stated}
    bare = {number for number, unit in stated if not unit}
    return all(
        number in numbers if not unit else (number, unit) in stated or number in bare
        for number, unit in amounts(sentence)
    )


def _unit(money: str | None, word: str) -> str:
    if money:
        return _UNIT_OF[money]
    lower = word.lower()
    return _UNIT_OF.get(lower) or _UNIT_OF.get(word[:1] if "\u3400" <= word[:1] <= "\u9fff" else lower, "")
