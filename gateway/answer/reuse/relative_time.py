"""Relative time: whether a question is asked about a moment that moves on with the clock.

An answer to one may be wrong an hour later though no document has changed. Words decide, in English and
Chinese, rather once too often than not: that costs a call. So no fixed terms are let off: the words don't
tell whether "the current account" is a kind of account, or the one that is current now.
"""

import re
import unicodedata

_WEEKDAY = "(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_MONTH = (
    "(?:january|february|march|april|may|june|july|august|september|october|november|december"
    "|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)"
)
_SPAN = (
    "(?:(?:second|minute|min|hour|day|night|week|weekend|fortnight|month|quarter|year|season|semester|term"
    "|decade)s?|century|centuries)"
)
_PART = (
    rf"(?:{_SPAN}|mornings?|afternoons?|evenings?|spring|summer|autumn|fall|winter|christmas|easter"
    rf"|{_WEEKDAY}|{_MONTH}|mon|tues?|wed|thu(?:rs?)?|fri|sat|sun)"
)
_KIND = r"(?:(?:business|working|calendar|fiscal|financial|school|academic|full|whole|entire)\s+)?"
_COUNT = (
    r"(?:\d+|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|fifteen|twenty|thirty|sixty"
    r"|ninety|(?:a\s+)?few|several|some|a\s+couple(?:\s+of)?|a\s+dozen|half\s+an?)"
)
#: whole words: "nowhere" and ``current_user`` say nothing of now
_EN = re.compile(
    r"\b(?:now|nowadays|today|tonight|tomorrow|yesterday|current|currently|presently|at\s+present"
    r"|present[\s-]day|ongoing|upcoming|recent|recently|lately|latest|newest|soon|shortly|ago|already|yet|still"
    r"|any\s?more|(?:any|no)\s+longer|overdue|outdated|next(?!\s+to\b)|these\s+days|the\s+other\s+day"
    r"|(?:so|thus)\s+far|(?:up[\s-])?to[\s-]date|out[\s-]of[\s-]date|as\s+we\s+speak|for\s+the\s+time\s+being"
    r"|(?:at|for|in|by)\s+(?:the|this)\s+(?:very\s+)?(?:moment|minute|instant|time|point|stage)"
    rf"|(?:this|last|past|previous|prior|coming|following)\s+(?:{_COUNT}\s+)?{_KIND}{_PART}"
    r"|(?:this|last|past|previous)\s+(?:time|release|version|update|edition|change|meeting)"
    rf"|in\s+(?:the\s+|about\s+|another\s+)?{_COUNT}\s+(?:more\s+)?{_KIND}{_SPAN}"
    rf"|in\s+an?\s+{_SPAN}['’]s?\s+time|{_SPAN}\s+(?:left|remaining|remain|to\s+go|until|till|since|from\s+now)"
    rf"|(?:end|beginning|start|rest|remainder|middle)\s+of\s+(?:the|this)\s+{_KIND}{_SPAN}"
    r"|how\s+(?:soon|old)|how\s+long\s+(?:(?:is|will)\s+it\s+)?(?:until|till|before|since|ago|has|have|is\s+left)"
    rf"|what\s+(?:time|day|date|month|year)\s+(?:is\s+(?:it|this)|do\s+we)|{_WEEKDAY})\b"
)

#: its last characters are enough; without an end a long number would be read from each of its places on
_ZH_COUNT = "(?:[0-9〇零一二两兩三四五六七八九十百几幾数數半]{1,4}|多少)"
_ZH_SPAN = "(?:个|個)?(?:秒|分钟|分鐘|小时|小時|钟头|鐘頭|天|日|周|週|星期|礼拜|禮拜|月|季度|年|学期|學期)"
_ZH_SPAN_NAMED = "(?:一?(?:个|個)?(?:周|週|星期|礼拜|禮拜|月|季|年|学期|學期|财年|財年))"
_ZH = re.compile(
    "今[天日晚早晨夜年儿兒后後春夏秋冬次]|[昨明前后後][天日晚早晨夜年儿兒]|去年|当[前今下]|當[前今下]|目前|眼[下前]|如今"
    "|(?<![发發实實体體表呈出])[现現][在今行有任时時阶階]|此[刻时時]|这会儿|這會兒|刚[才刚]|剛[才剛]|方才"
    "|近[期日来來况況年]|最近|最新|最[后後]一次|[至迄距]今|(?<!基)本日"
    f"|[本这這上下]{_ZH_SPAN_NAMED}|[上下这這]一?[次回届屆]|[上下]一[期班轮輪]"
    "|[这這](?:些|几|幾|两|兩|阵|陣|段)(?:天|日子|时间|時間|年|个?月|個月|子)"
    "|[前过過](?:些|几|幾|两|兩|一段|一阵|一陣)(?:天|日子|时间|時間|年|周|週|个?月|個月|子)"
    "|(?<![每一二两兩三四五六七八九十几幾个個0-9])(?:周|週|星期|礼拜|禮拜)[一二三四五六日天末](?!次)"
    f"|[月年季周週][底末初]|{_ZH_COUNT}{_ZH_SPAN}(?:之|以)?[前后後]|多久(?:之|以)?前"
    f"|[再还還][有剩要差过過](?:多|{_ZH_COUNT})|仍|[还還][在能可会會没沒未]|依[然旧舊]|已[经經]|正在|即[将將]|[将將]要"
    "|[马馬]上|不久|日前|[暂暫][时時且]|[几幾][点點号號]了"
)


def about_now(question: str) -> bool:
    """Whether a word of it points at the present, or counts from it."""
    text = unicodedata.normalize("NFKC", question).casefold()
    return _EN.search(text) is not None or _ZH.search(text) is not None
