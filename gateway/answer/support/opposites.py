"""Opposites: words that turn a statement round when one of them stands where the other stood."""

import re

_PAIRS = (
    "increase/decrease increases/decreases increased/decreased increasing/decreasing rise/fall rises/falls"
    " rose/fell raise/lower raised/lowered higher/lower more/less more/fewer most/least highest/lowest"
    " largest/smallest maximum/minimum upper/lower first/last before/after earlier/later earliest/latest"
    " start/end starts/ends started/ended begin/end begins/ends began/ended above/below over/under"
    " inside/outside internal/external include/exclude includes/excludes included/excluded with/without"
    " allowed/forbidden allowed/prohibited permitted/forbidden permitted/prohibited allow/forbid"
    " enable/disable enabled/disabled on/off open/closed opens/closes always/never accept/reject"
    " accepted/rejected approved/rejected success/failure succeeds/fails succeeded/failed legal/illegal"
    " valid/invalid required/optional mandatory/optional public/private old/new oldest/newest"
    " longest/shortest best/worst better/worse north/south east/west northern/southern"
    " eastern/western left/right won/lost win/lose bought/sold buy/sell import/export ascending/descending"
    " encrypt/decrypt"
).split()
_HAN_PAIRS = (
    "增加/减少 提高/降低 上升/下降 高于/低于 大于/小于 多于/少于 超过/低于 之前/之后 以前/以后 以上/以下"
    " 最大/最小 最高/最低 最早/最晚 最多/最少 第一/最后 开始/结束 允许/禁止 可以/禁止 包括/不包括"
    " 启用/停用 启用/禁用 打开/关闭 同意/拒绝 通过/拒绝 成功/失败 必须/可选 公开/保密"
    " 内部/外部 东部/西部 南部/北部"
).split()
_WORD = re.compile(r"[a-z]+")


def _table(pairs: list[str]) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for one, other in (pair.split("/") for pair in pairs):
        found[one] = found.get(one, frozenset()) | {other}
        found[other] = found.get(other, frozenset()) | {one}
    return found


_OPPOSITES = _table(_PAIRS)
_HAN_OPPOSITES = _table(_HAN_PAIRS)


def turned_round(sentence: str, quote: str) -> bool:
    """Whether the sentence has a word of which the quote has only the opposite."""
    said, stands = set(_WORD.findall(sentence.lower())), set(_WORD.findall(quote.lower()))
    if any(not _OPPOSITES[word].isdisjoint(stands) for word in (said - stands).intersection(_OPPOSITES)):
        return True
    return any(
        word in sentence and word not in quote and any(other in quote for other in others)
        for word, others in _HAN_OPPOSITES.items()
    )
