"""Follow-ups: a question that leans on the one before it, told as one that stands alone. By rules, no model.

Only words that the asker wrote himself are carried, and they are no evidence: what the follow-up itself names
must still be in a passage.
"""

import re
from collections.abc import Iterable

from gateway.retrieval.chunk import Chunk, embedded_text
from gateway.retrieval.keyterms import key_terms
from gateway.retrieval.terms import terms_of

_WORD = re.compile(r"[^\W_]+(?:[._\-'’][^\W_]+)*")
_HAN = re.compile(r"[\u3400-\u9fff]")
_GOES_ON = frozenset("and or but also then so ok okay".split())
_ABOUT = re.compile(r"\b(?:what|how)\s+about\b", re.IGNORECASE)
#: whatever has one of these is a clause of its own
_CLAUSE = frozenset(
    "what which who whom whose when where why how is are was were do does did can could will would should may"
    " must has have".split()
)
_PRONOUNS = frozenset("it its they them their theirs he him she".split())
#: these also stand before nouns and clauses
_POINTERS = frozenset("this that these those one ones same".split())
#: "how long does it take to …", "is it allowed to …" lean on nothing
_EMPTY_IT = re.compile(
    r"\bit\s+(?:take|takes|cost|costs|possible|allowed|ok|okay|necessary|required|permitted|true)\b"
    r".*\b(?:to|that|for|if)\b",
    re.IGNORECASE,
)
_ZH_WHAT_OF = re.compile(r"^(?:那么?|还有|另外|以及)?[^，。？！,?!]{1,15}呢[？?]*$")
_ZH_THEN = re.compile(r"^(?:那么?|还有|另外).{1,12}$")
_ZH_POINTS = re.compile(r"[它其该]|他们|她们|上述|这种|这个|那个|前者|后者")
_ZH_ASKING = re.compile(
    r"请问|什么|怎么样?|如何|哪[些个里]|是否|多少|多久|为什么|可以|几[天个次年月]|[吗呢吧的是了么？?。！!，,]"
)
_MOST_OWN = 4
_MOST_OWN_POINTING = 1
_ZH_MOST_CHARS = 16
_MOST_CARRIED = 12


def leans(question: str) -> bool:
    """Whether it says too little by itself."""
    text = question.strip()
    if not terms_of(_without_markers(text)):
        return True
    return _leans_zh(text) if _HAN.search(text) else _leans_en(text)


def standing_alone(question: str, before: str) -> str:
    """The question with the telling words of the one before it; '' when there are none."""
    carried = _carried_zh(before) if _HAN.search(before) else _carried(question, before)
    if not carried:
        return ""
    return f"{question}（{carried}）" if _HAN.search(question) else f"{question} ({carried})"


def names_only(question: str, passages: Iterable[Chunk]) -> bool:
    """Whether one passage has every telling word of the follow-up itself."""
    own = frozenset(terms_of(_without_markers(question)))
    texts = (embedded_text(chunk.title, chunk.section, chunk.content) for chunk in passages)
    return any(own <= frozenset(terms_of(text)) for text in texts)


def _leans_en(text: str) -> bool:
    words = [word.lower() for word in _WORD.findall(text)]
    own = [word for word in _WORD.findall(_without_markers(text)) if terms_of(word)]
    if _ABOUT.search(text) or (words[0] in _GOES_ON and _CLAUSE.isdisjoint(words)):
        return len(own) <= _MOST_OWN
    if not _PRONOUNS.isdisjoint(words) and not _EMPTY_IT.search(text):
        return len(own) <= _MOST_OWN
    return not _POINTERS.isdisjoint(words) and len(own) <= _MOST_OWN_POINTING


def _leans_zh(text: str) -> bool:
    if _ZH_WHAT_OF.match(text) or _ZH_THEN.match(text):
        return True
    return _ZH_POINTS.search(text) is not None and len(text) <= _ZH_MOST_CHARS


def _without_markers(text: str) -> str:
    """What it names itself."""
    if _HAN.search(text):
        rest = re.sub(r"^(?:那么?|还有|另外|以及)", "", text)
        return _ZH_ASKING.sub(" ", _ZH_POINTS.sub(" ", rest))
    return " ".join(word for word in _WORD.findall(_ABOUT.sub(" ", text)) if not _is_marker(word))


def _is_marker(word: str) -> bool:
    return word.lower() in _GOES_ON | _PRONOUNS | _POINTERS | _CLAUSE


def _carried(question: str, before: str) -> str:
    """A code of the follow-up takes the place of one before it."""
    own = frozenset(terms_of(question))
    codes = frozenset(key_terms(before).codes) if key_terms(question).codes else frozenset()
    words = dict.fromkeys(
        word for word in _WORD.findall(before) if word not in codes and not _is_marker(word)
    )
    telling = [word for word in words if terms_of(word) and own.isdisjoint(terms_of(word))]
    return " ".join(telling[:_MOST_CARRIED])


def _carried_zh(before: str) -> str:
    return " ".join(_ZH_ASKING.sub(" ", before).split()[:_MOST_CARRIED])
