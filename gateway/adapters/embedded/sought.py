"""Sought: the amount, time or name that a question asks for, and whether a sentence has one."""

import re
from collections.abc import Callable

from gateway.answer.support.amounts import amounts

_AMOUNT_ASKED = re.compile(
    r"\bhow (?:many|much|long|far|old|large|big|tall|high|fast|deep|wide|heavy|often)\b"
    r"|\b(?:what|which) (?:percent\w*|number|proportion|amount|share|fraction|age|population|temperature"
    r"|size|rate|distance)\b"
    r"|多少|(?<![许很更最])多[久大长高远]|多重(?![身签])|几(?!乎)",
    re.IGNORECASE,
)
_TIME_ASKED = re.compile(
    r"\bwhen (?:did|do|does|is|was|are|were|has|have|had|will|can|could|must|should|may)\b"
    r"|\b(?:what|which) (?:year|date|day|month|decade|century|time|era|period)\b"
    r"|(?<!任)(?:何时|[哪何]一?[年月日天])|什么时[候间]",
    re.IGNORECASE,
)
_NAME_ASKED = re.compile(
    r"\b(?:who(?:m|se)?|where)\b"
    r"|\b(?:what|which) (?:(?:\w+ )?(?:name|city|country|state|place|river|region)"
    r"|person|people|man|woman|king|queen|president|scientist|author|artist|leader|general|company|team|group)\b",
    re.IGNORECASE,
)
_TIME = re.compile(
    r"\b(?:1\d{3}|20\d\d)s?\b|\b(?:in|by|since|until|before|after|around) \d{3}\b"
    r"|\bcentur(?:y|ies)\b|\b(?:decade|today|midnight|noon)s?\b|\d:\d\d|\d ?[ap]m\b"
    r"|(?-i:\b(?:BCE?|AD|CE)\b)"  # "an ad" is no year, and below "it may" no month
    r"|(?-i:\b(?:January|February|March|April|May|June|July)\b)"
    r"|(?-i:\b(?:August|September|October|November|December)\b)"
    r"|\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b"
    r"|\b(?:seconds|minutes?|hours?|days?|weeks?|months?)\b"
    r"|世纪|年代|(?<![0-9〇一二三四五六七八九十])[0-9〇一二三四五六七八九十]+(?:年|月|日|天|周|小时|分钟)|(?:星期|周)[一二三四五六日]",
    re.IGNORECASE,
)
#: a capital that no sentence and no quotation begins with
_NAME = re.compile(r"(?<![.!?] )(?<!^)(?<![\"“])\b[A-Z][a-z]+\b")


def sought_by(question: str) -> Callable[[str], bool]:
    """Whether a text has an amount, a time or a name, whichever is asked for, that the question itself
    doesn't name. False of every text where none of them is asked for; names are told in Latin script alone.
    """
    if _TIME_ASKED.search(question):
        return _another(_TIME, question)
    if _AMOUNT_ASKED.search(question):
        named = _numbers(question)
        return lambda text: not _numbers(text) <= named
    if _NAME_ASKED.search(question):
        return _another(_NAME, question)
    return lambda _: False


def _another(pattern: re.Pattern[str], question: str) -> Callable[[str], bool]:
    named = question.lower()
    return lambda text: any(found[0].lower() not in named for found in pattern.finditer(text))


def _numbers(text: str) -> frozenset[str]:
    return frozenset(number for number, _ in amounts(text))
