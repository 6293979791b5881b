"""Numerals: numbers that are written in words, in the digits that say the same. English and Chinese."""

import re

from gateway.answer.support.units import HAN_UNITS, UNIT_OF

_ONES = "one two three four five six seven eight nine".split()
_TEENS = "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_VALUES = {
    **{word: value for value, word in enumerate([*_ONES, *_TEENS], start=1)},
    **{word: 10 * tens for tens, word in enumerate(_TENS, start=2)},
}
_ONE = "|".join(_ONES)
_BELOW_100 = rf"(?:(?:{'|'.join(_TENS)})(?:[ -](?:{_ONE}))?|{'|'.join(_TEENS)}|{_ONE})"
_WORDS = re.compile(
    rf"\b(?:(?P<hundreds>a|{_ONE}) hundred(?:(?: and)? (?P<rest>{_BELOW_100}))?|(?P<small>{_BELOW_100}))\b",
    re.IGNORECASE,
)
#: "one" is a number before a unit; elsewhere it stands for a noun
_MEASURED = re.compile(
    r"[ -](?:(?:working|business|calendar|full|whole|single) )?(?:"
    + "|".join(name for name in UNIT_OF if name.isascii() and name.isalpha() and len(name) > 2)
    + r")\b",
    re.IGNORECASE,
)

_HAN_DIGITS = {**{digit: value for value, digit in enumerate("零一二三四五六七八九")}, "〇": 0, "两": 2}
_HAN_TIMES = {"十": 10, "百": 100, "千": 1000}
_HAN_UNIT = f"(?:{'|'.join(sorted(HAN_UNITS - {'分', '时'}, key=len, reverse=True))})"
_HAN_COUNTED = f"(?:{_HAN_UNIT}|[时个名人次位份条项台种家倍])"
_NUMERAL = "〇零一二三四五六七八九十百千"
#: longer runs are no numbers; 一 is an article before what isn't a unit
_HAN = re.compile(
    r"百分之(?P<share>[一二两三四五六七八九十百]{1,6})"
    rf"|(?<![{_NUMERAL}统唯单万哪每某另同这那任])一(?={_HAN_UNIT})"
    rf"|(?<![{_NUMERAL}])(?:[一二两三四五六七八九十][{_NUMERAL}]{{1,8}}|[二两三四五六七八九十])(?={_HAN_COUNTED})"
    rf"|(?<![上下前后大多])半(?=个?{_HAN_UNIT})"
)
_AND_A_HALF = re.compile(rf"(?<![0-9])([0-9]{{1,4}})(个?{_HAN_UNIT})半")


def in_digits(text: str) -> str:
    """``five days`` as ``5 days``, ``twenty-five`` as ``25``, 两年半 as 2.5年; "one of them" stays."""
    text = _WORDS.sub(_english, text)
    return text if text.isascii() else _AND_A_HALF.sub(r"\1.5\2", _HAN.sub(_han, text))


def _english(found: re.Match[str]) -> str:
    small = found["small"]
    if small and small.lower() == "one" and not _MEASURED.match(found.string, found.end()):
        return found.group()
    hundreds = found["hundreds"]
    value = 0 if hundreds is None else 100 * _VALUES.get(hundreds.lower(), 1)
    parts = re.split(r"[ -]", (small or found["rest"] or "").lower())
    return str(value + sum(_VALUES[part] for part in parts if part))


def _han(found: re.Match[str]) -> str:
    if found["share"]:
        return f"{_han_value(found['share'])}%"
    if found.group() == "半":
        return "0.5"
    value = _han_value(found.group())
    return found.group() if value is None else str(value)


def _han_value(numeral: str) -> int | None:
    """None for 三四天: three or four."""
    if _HAN_TIMES.keys().isdisjoint(numeral):
        years = len(numeral) == 4 or len(numeral) == 1
        return int("".join(str(_HAN_DIGITS[digit]) for digit in numeral)) if years else None
    total = digit = 0
    for sign in numeral:
        if sign in _HAN_TIMES:
            total, digit = total + (digit or 1) * _HAN_TIMES[sign], 0
        else:
            digit = _HAN_DIGITS[sign]
    return total + digit
