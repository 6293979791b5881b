"""Declining: a model that says in words of its own, not by the marker, that the passages hold no answer."""

import re

from gateway.answer.support.sentences import split_sentences

#: whoever says more than this says something besides
_SENTENCES, _CHARS = 2, 400
_MARKER = re.compile(r"[ \t]*\[[0-9]{1,3}\]")
_APOLOGY = r"(?:(?:i['’]m\s+|i\s+am\s+)?sorry|unfortunately)[,;]?\s+(?:but\s+)?"
_SOURCES = (
    r"(?:(?:provided|given|available|above|these|the)\s+)*"
    r"(?:passages?|evidence|sources?|context|documents?|excerpts?|texts?|information)"
    r"(?:\s+(?:provided|given|above|available))?"
)
_VERBS = r"(?:contain|include|mention|provide|answer|say|state|specify|have|give|address|cover|support)"
_FOUND = r"(?:answered|found|mentioned|stated|given|provided|contained|determined|specified)"
_DECLINES = re.compile(
    rf"(?:{_APOLOGY})?(?:"
    rf"{_SOURCES}\s+(?:do\s+not|does\s+not|don['’]t|doesn['’]t)\s+(?:\w+ly\s+)?{_VERBS}\b"
    r"|(?:i|we)\s+(?:cannot|can['’]t|could\s+not|couldn['’]t|am\s+unable\s+to)\s+(?:find|answer|determine)\b"
    r"|there\s+is\s+(?:no|not\s+enough|insufficient)\s+(?:\w+\s+)?(?:information|answer|evidence)\b"
    r"|(?:i|we)\s+(?:do\s+not|don['’]t)\s+(?:have\s+(?:enough\s+)?information|know)\b"
    rf"|(?:this|the\s+(?:answer|question|information))\s+(?:is\s+not|cannot\s+be)\s+(?:\w+ly\s+)?{_FOUND}\b"
    r")",
    re.IGNORECASE,
)
_DECLINES_HAN = re.compile(
    r"(?:很?抱歉|对不起)?[，,]?(?:根据|在|从)?(?:所|以上|上述|现有|提供|给出|给定|已有|的|这些)*"
    r"(?:(?:资料|文档|文段|段落|材料|上下文|信息|来源|内容)(?:中|里)?|我)[，,]?(?:均|都|并|也)?"
    r"(?:(?:没有|未|没)(?:提到|提及|说明|包含|给出|找到|相关|关于|答案|涉及|记载|提供)"
    r"|不包含|无法(?:回答|确定|找到|得知|判断)|找不到|不知道)"
)
_GOES_ON = re.compile(r"\b(?:but|however|although|though|except|only)\b|但|不过|然而|只", re.IGNORECASE)


def declines(answer: str) -> bool:
    """Whether the whole answer says that there is none: one or two sentences without a "but". With a citation
    every one of them has to say so; without, one is enough.
    """
    plain = _MARKER.sub("", answer).strip()
    if len(plain) > _CHARS:
        return False
    sentences = split_sentences(plain)
    if not 0 < len(sentences) <= _SENTENCES or any(map(_goes_on, sentences)):
        return False
    every = all if plain != answer.strip() else any
    return every(map(_says_none, sentences))


def _says_none(sentence: str) -> bool:
    return bool(_DECLINES.match(sentence) or _DECLINES_HAN.match(sentence))


def _goes_on(sentence: str) -> bool:
    return bool(_GOES_ON.search(re.sub(rf"^{_APOLOGY}", "", sentence, flags=re.IGNORECASE)))
