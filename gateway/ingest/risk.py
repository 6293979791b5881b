"""Risk in a text: phrases that read like orders to a model, and characters that nobody sees.

A pre-screen, no defence: whoever wants to get past a list of phrases does. What keeps a document from giving
orders is how prompts are built; the markers make a person look, and let a policy keep the passage back.
"""

import re
import unicodedata
from collections.abc import Iterable
from urllib.parse import unquote

from gateway.ingest.document import Passage
from gateway.retrieval.risk import INJECTION_LIKE

# A word of each group, in this order, with at most a few words between: long enough to read like an order,
# short enough that the search takes time in proportion to the text.
_GAP = r"(?:\s+\S{1,20}){0,3}?\s+"
_FORGET = r"(?:ignore|disregard|forget|override|bypass)"
_EARLIER = r"(?:previous|prior|above|earlier|preceding|existing|system)"
_ORDERS = r"(?:instructions?|prompts?|rules|guidelines|directions|commands)"
_ENGLISH = (
    rf"\b{_FORGET}{_GAP}{_EARLIER}{_GAP.replace('{0,3}', '{0,2}')}?{_ORDERS}\b",
    rf"\b{_FORGET}\s+(?:all|everything|your)\s+(?:of\s+)?(?:the\s+|your\s+)?(?:instructions?|rules|above|guidelines)\b",
    r"\b(?:reveal|print|show|repeat|output)\s+(?:me\s+)?(?:your|the)\s+(?:system|hidden|initial)\s+(?:prompt|instructions?|message)\b",
    r"\byou\s+are\s+now\s+(?:in\s+)?(?:a\s+|an\s+)?(?:dan\b|developer\s+mode|jailbroken|unrestricted|no\s+longer\s+bound)",
    r"\bpretend\s+(?:that\s+)?you\s+(?:have|are\s+under)\s+no\s+(?:rules|restrictions|guidelines|limits)\b",
    r"\b(?:do\s+not|don't|never)\s+(?:tell|inform|mention\s+(?:this|it)\s+to)\s+the\s+user\b",
    r"\bnew\s+(?:system\s+)?instructions?\s*:",
    r"<\|(?:im_start|im_end|system|assistant|endoftext)\|>",
    r"\[/?inst\]|<</?sys>>",
    r"(?:^|\n)\s*#{2,}\s*(?:system|assistant)\s*:",
)
_CHINESE = (
    r"(?:忽略|无视|無視|忘记|忘記|忘掉|不要理会|不要遵守|绕过)[^。！？\n]{0,12}"
    r"(?:指令|指示|提示词|提示詞|规则|規則|设定|設定|系统提示|要求|命令)",
    r"(?:显示|输出|透露|泄露|告诉我|打印)[^。！？\n]{0,8}(?:系统提示|系统指令|提示词|提示詞)",
    r"(?:从现在起|从现在开始|現在起|现在)[，,]?你(?:是|将扮演|不再)[^。！？\n]{0,16}"
    r"(?:不受|没有|無|无)[^。！？\n]{0,6}(?:限制|约束|規則|规则)",
    r"(?:不要|别|切勿)(?:告诉|告知|提醒|让)(?:用户|使用者)",
)
_PHRASES = re.compile("|".join((*_ENGLISH, *_CHINESE)), re.IGNORECASE)

# Tags and bidirectional controls hide text from a reader; variation selectors can carry any bytes.
_HIDDEN = re.compile("[\u202a-\u202e\u2066-\u2069\U000e0001-\U000e007f\U000e0100-\U000e01ef]")
# A few zero-width characters are how Persian, Indic scripts and emoji are written; a run of them isn't.
_ZERO_WIDTH_RUN = re.compile("[\u200b-\u200d\u2060-\u2064\ufeff]{3,}")
_ZERO_WIDTH = re.compile("[\u200b-\u200d\u2060-\u2064\ufeff\u00ad]")
# What stands between the words of a file's name.
_JOINED_WORDS = re.compile(r"[\s_./\\+-]+")
_FLAG = re.compile("\U0001f3f4[\U000e0061-\U000e007a\U000e0030-\U000e0039]{1,6}\U000e007f")


def detected_risk(source: str, title: str, passages: Iterable[Passage]) -> tuple[str, ...]:
    """The markers earned by what a model reads of a document: its source, its title, its passages. Pure, and
    linear in their length.
    """
    name = _JOINED_WORDS.sub(" ", unquote(source))
    texts = (
        source,
        name,
        title,
        *(text for passage in passages for text in (passage.section, passage.content)),
    )
    return (INJECTION_LIKE,) if any(map(_is_injection_like, texts)) else ()


def _is_injection_like(text: str) -> bool:
    without_flags = _FLAG.sub("", text)  # England, Scotland and Wales are written with tags
    if _HIDDEN.search(without_flags) or _ZERO_WIDTH_RUN.search(without_flags):
        return True
    return _PHRASES.search(unicodedata.normalize("NFKC", _ZERO_WIDTH.sub("", text))) is not None
