"""Follow-ups: a question that leans on the one before it, told as one that stands alone. By rules, no model.

Where a rule isn't sure, a question stands alone. Only words that the asker wrote himself are carried, and
they are no evidence: each word that the follow-up itself names must be in a passage.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from gateway.retrieval.chunk import Chunk, embedded_text
from gateway.retrieval.keyterms import key_terms
from gateway.retrieval.terms import terms_of

#: Han runs apart from words of letters
_WORD = re.compile(r"[\u3400-\u9fff]+|[^\W_\u3400-\u9fff]+(?:[._\-'’][^\W_\u3400-\u9fff]+)*")
_HAN = re.compile(r"[\u3400-\u9fff]")
_SHORTENED = re.compile(r"\b(?:ca|wo|sha)n['’]t\b|n['’]t\b|['’](?:s|re|ve|ll|d|m)\b", re.IGNORECASE)

_GOES_ON = frozenset("and or but also then so ok okay".split())
_ABOUT = re.compile(r"^(?:(?:and|or|but|so|then|also|ok|okay)\W+){0,2}(?:what|how)\s+about\b", re.IGNORECASE)
#: whatever has one of these is a clause of its own
_CLAUSE = frozenset(
    "what which who whom whose when where why how is are was were do does did can could will would should may"
    " must has have tell explain show list describe give find define compare".split()
)
_BEARERS = frozenset("it they them he him she".split())
_OWNERS = frozenset("its their theirs".split())
#: these also stand before nouns and clauses
_POINTERS = frozenset("this that these those ones same".split())
_MARKERS = _GOES_ON | _BEARERS | _OWNERS | _POINTERS | _CLAUSE | {"about", "one"}
_ONE_OF_THEM = re.compile(r"\b(?:which|this|that|the|other|another|new|old)\s+one\b", re.IGNORECASE)
#: "how long does it take to …", "is it allowed in …", "what time is it" lean on nothing
_EMPTY_IT = re.compile(r"\bit\b|\bis\s+this\b", re.IGNORECASE)
_GOES_ON_WITH = re.compile(r"\b(?:to|that|for|if|when|while|in|on|at|with|without)\b", re.IGNORECASE)
_NOW_AND_HERE = re.compile(
    r"\b(?:time|day|date)\s+is\s+it\b|\b(?:this|these)\s+(?:year|month|week|quarter|day|days|company|firm|office"
    r"|building|team|site|page|document|service|system|product|handbook|country)\b",
    re.IGNORECASE,
)

_ZH_GOES_ON = re.compile(r"^(?:请问)?(?:那么?(?![个些里边儿时种样])|还有|另外|以及)")
_ZH_POINTS = re.compile(
    r"^(?:请问)?(?:那么?)?(?:它们?|他们|她们|前者|后者|上述|其中"
    r"|(?:这[个种些]|那[个种些])(?!月|周|星期|季度|学期|年|公司|系统|网站|部门))"
)
_ZH_NAMED_ALONE = re.compile(r"^该[\u3400-\u9fff]{1,4}$")
#: with one of these it is a whole question, whatever particle ends it
_ZH_ASKS = re.compile(
    r"什么|啥|几|多[少久大长高远快重宽深早晚]|怎|如何|哪|谁|是否|能否|可否|何|还是|有没有|吗|([\u3400-\u9fff])不\1"
)
_ZH_POINTER = re.compile(r"其中|(?<!其)它们?|[他她]们?|前者|后者|上述|这[个种些]|那[个种些]|^该")
_ZH_ASKING = re.compile(
    r"(?:一?共?有|需要|应该?|可以|能够?|要|会|为)?"
    r"(?:请问|怎么办|怎么样?|怎样|什么|如何|哪[些个里]?|是否|多[少久大长高]|谁|几)"
    r"(?:[天个次日名位间家台件页份种条元岁]|小时|分钟|年(?![假度])|月(?!薪))?"
    r"|可以|[吗呢吧的是了么？?。！!，,；;]"
)

#: whoever writes more says enough, or is read for nothing
_MOST_CHARS = 200
_MOST_OWN = 3
_MOST_OWN_BEARING = 2
_MOST_OWN_POINTING = 1
_ZH_MOST_CHARS = 12
_ZH_MOST_AFTER = 6
_MOST_CARRIED = 12


def leans(question: str) -> bool:
    """Whether it names something, but not what it asks about that."""
    text = question.strip()
    if len(text) > _MOST_CHARS or not telling_words(text):
        return False
    return _leans_zh(text) if _HAN.search(text) else _leans_en(text)


def stands_alone(question: str) -> bool:
    """Whether another may lean on it. "Ok?" neither stands nor leans."""
    return not leans(question) and bool(telling_words(question))


def told_with(question: str, before: str) -> str:
    """The question with the telling words of ``before``, one that stands alone; '' when there are none."""
    carried = _carried_zh(question, before) if _HAN.search(before) else _carried(question, before)
    if not carried:
        return ""
    told = " ".join(carried[:_MOST_CARRIED])
    return f"{question}（{told}）" if _HAN.search(question) else f"{question} ({told})"


def names(passage: Chunk, question: str) -> bool:
    """Whether it has every telling word of the follow-up itself."""
    text = embedded_text(passage.title, passage.section, passage.content)
    terms = frozenset(terms_of(text))
    return all(has_word(word, terms, text) for word in telling_words(question))


def _leans_en(text: str) -> bool:
    words = _words(text)
    own = len(telling_words(text))
    if _ABOUT.search(text) or (words[0].lower() in _GOES_ON and _CLAUSE.isdisjoint(map(str.lower, words))):
        return own <= _MOST_OWN
    if _NOW_AND_HERE.search(text) or _empty_it(text):
        return False
    if own <= _MOST_OWN_BEARING and _bears(words):
        return True
    points = not _POINTERS.isdisjoint(map(str.lower, words)) or _ONE_OF_THEM.search(text) is not None
    return points and own <= _MOST_OWN_POINTING


def _bears(words: Sequence[str]) -> bool:
    """Whether a pronoun stands for what isn't named before it: "Who approves them?", not "Do interns have
    their own desks?", and not "the IT department".
    """
    own = 0
    for word in words:
        lower = word.lower()
        if lower in _BEARERS | _OWNERS and word != "IT":
            return own <= (lower in _BEARERS)
        own += _tells(word)
    return False


def _empty_it(text: str) -> bool:
    found = _EMPTY_IT.search(text)
    return found is not None and _GOES_ON_WITH.search(text, found.end()) is not None


def _leans_zh(text: str) -> bool:
    text = text.rstrip("？?。！! ")
    if len(text) > _ZH_MOST_CHARS or re.search(r"[，。？！,?!；;]", text):
        return False
    asks = _ZH_ASKS.search(text) is not None
    if not asks and (text.endswith("呢") or _ZH_NAMED_ALONE.match(text)):
        return True
    if _ZH_POINTS.match(text):
        return True
    begun = _ZH_GOES_ON.match(text)
    if begun is None or len(text) - begun.end() > _ZH_MOST_AFTER:
        return False
    return not asks or "那" in begun.group()


def _words(text: str) -> list[str]:
    return [match.group() for match in _WORD.finditer(_SHORTENED.sub(" ", text))]


def telling_words(text: str) -> list[str]:
    """The telling words: Han runs and words of letters, without markers of any kind."""
    if _HAN.search(text):
        text = _ZH_ASKING.sub(" ", _ZH_POINTER.sub(" ", _ZH_GOES_ON.sub("", text)))
    return [word for word in _words(text) if _tells(word)]


def _tells(word: str) -> bool:
    return (word == "IT" or word.lower() not in _MARKERS) and (word == "IT" or bool(terms_of(word)))


def has_word(word: str, terms: frozenset[str], text: str) -> bool:
    """Every character of a Han run in some pair of it; of a word its parts, and a code whole."""
    if _HAN.match(word):
        if len(word) == 1:
            return word in text
        there = [word[i : i + 2] in text for i in range(len(word) - 1)]
        return all(before or after for before, after in zip([False, *there], [*there, False], strict=True))
    whole = terms_of(word)
    parts = whole if any(char.isdigit() for char in word) else whole[1:] or whole
    return terms.issuperset(parts)


def _carried(question: str, before: str) -> list[str]:
    """Not what the follow-up puts something else in the place of: a code, or "parental" of "parental leave"
    where it names another leave.
    """
    own = frozenset(term for word in telling_words(question) for term in terms_of(word))
    codes = frozenset(key_terms(before).codes) if key_terms(question).codes else frozenset()
    words = _words(before)
    heads = {second for first, second in _stem_pairs(_words(question)) if first and second}
    replaced = {first for first, second in _stem_pairs(words) if second in heads}
    return [
        word
        for word in dict.fromkeys(words)
        if _tells(word)
        and word not in codes
        and terms_of(word) not in replaced
        and own.isdisjoint(terms_of(word))
    ]


def _stem_pairs(words: Sequence[str]) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Neighbours, as their terms; none for what doesn't tell."""
    return pairwise(terms_of(word) if _tells(word) else () for word in words)


def _carried_zh(question: str, before: str) -> list[str]:
    """A run that ends as one of the follow-up does gives it its place: 病假 to 婚假."""
    own = telling_words(question)
    ends = {word[-1] for word in own if _HAN.match(word)}
    return [word for word in dict.fromkeys(telling_words(before)) if word not in own and word[-1] not in ends]
