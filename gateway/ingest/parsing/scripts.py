"""Scripts: in which undeclared encoding some bytes read like a language, if that is clear.

Wrong characters are worse than no document: what could be two encodings is none. A language's most
frequent characters tell: in the right encoding they make up a third of a text and more, in a wrong
one a few hundredths.
"""

import re
from dataclasses import dataclass
from itertools import islice

_SAMPLE_CHARS = 20_000


@dataclass(frozen=True, slots=True)
class _Script:
    """A codec and the characters that a text in its language can't do without."""

    codec: str
    frequent: frozenset[str]


_SIMPLIFIED = frozenset(
    "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年过发后作里用道行所然家种事成方"
    "多经么去法学如都同现当没动面起看定天分还进好小部其些主样理心本前开但因只从想日者意无此间请如果或与及数据服务文件，。、；：！？（）《》"
)
_TRADITIONAL = frozenset(
    "的一是不了在人有我他這個們中來上大為和國地到以說時要就出會可也你對生能而子那得於著下自之年過發後作裡用道行所然家種事成方"
    "多經麼去法學如都同現當沒動面起看定天分還進好小部其些主樣理心本前開但因只從想日者意無此間請如果或與及數據服務文件，。、；：！？（）《》「」"
)
_JAPANESE = (
    frozenset(map(chr, range(0x3041, 0x3094))) | frozenset(map(chr, range(0x30A1, 0x30FD))) | {"、", "。"}
)
_KOREAN = frozenset(
    "이다는에의을가고하지로사을를은도한기어자아서리나시대스인라부정보해일면수그안니있할게주제으전소상여과구것들오장"
    "문만공무우모동적방치비경세성신내모업용미원유요계관조실행위생중되된않때없같"
)
_SCRIPTS = (
    _Script("gb18030", _SIMPLIFIED),
    _Script("big5", _TRADITIONAL),
    _Script("cp932", _JAPANESE),
    _Script("euc_jp", _JAPANESE),
    _Script("cp949", _KOREAN),
)
#: first bytes of a codec's symbols and of its first level, the characters that schools teach
_EVERYDAY = (
    ("gb18030", frozenset(range(0xA1, 0xAA)) | frozenset(range(0xB0, 0xD8))),
    ("big5", frozenset(range(0xA1, 0xC7))),
)
_CLEAR_SHARE = 0.2
_LIKELY_SHARE = 0.1
#: how far the second-best reading must stay behind
_CLEAR_LEAD = 2

_TYPOGRAPHY = frozenset("€‘’“”„«»‹›–—…•·§°©®™±²³½¼¾£¥¡¿\u00a0")
_WESTERN = {
    "German": "äöüßÄÖÜé",
    "French": "àâæçéèêëîïôœùûüÿÀÂÆÇÉÈÊËÎÏÔŒÙÛÜ",
    "Spanish": "áéíñóúüÁÉÍÑÓÚÜºª",
    "Portuguese": "áâãàçéêíóôõúüÁÂÃÀÇÉÊÍÓÔÕÚºª",
    "Italian": "àèéìîòùÀÈÉÌÒÙºª",
    "Nordic": "åäöæøéÅÄÖÆØÉ",
    "Dutch": "éëïöüèáóÉË",
}
#: the Central European encoding has Romanian and Hungarian letters in these places
_ALSO_ROMANIAN = frozenset("ãÃõÕ")
_PORTUGUESE_WORD = re.compile(r"\b(?:que|uma|não|são|você|para|dos|das|pelo|pela)\b", re.IGNORECASE)
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_STRAY = re.compile(r"[A-Za-z][^\x00-\x7f](?![^\x00-\x7f])")
_BETWEEN_LETTERS = re.compile(r"[^\W\d_][\u00a1-\u00bf\u0080-\u009f][^\W\d_]")


def read_as_usual_text(content: bytes) -> str | None:
    """The text, when one East Asian or the Western encoding is clearly right; else None."""
    western = _tried(content, "cp1252")
    if western is not None and _reads_western(western):
        return western
    readings = [
        (_share(text, script), script.codec, text)
        for script in _SCRIPTS
        if (text := _read(content, script.codec))
    ]
    readings.sort(reverse=True)
    if readings and readings[0][0] >= _CLEAR_SHARE:
        clear = len(readings) == 1 or readings[0][0] >= _CLEAR_LEAD * readings[1][0]
        return readings[0][2] if clear else None
    likely = {codec for share, codec, _ in readings if share >= _LIKELY_SHARE}
    return _everyday_chinese(content, likely)


def read_as_utf16(content: bytes) -> str | None:
    """UTF-16 without a byte order mark, in the byte order in which it reads like text; else None."""
    if len(content) % 2:
        return None
    readings = [text for codec in ("utf-16-le", "utf-16-be") if (text := _tried(content, codec)) is not None]
    good = [text for text in readings if _plain_share(text) >= _CLEAR_SHARE]
    return good[0] if len(good) == 1 else None


def _read(content: bytes, codec: str) -> str | None:
    """None too when its characters stand alone inside Latin words: no East Asian text looks like that."""
    text = _tried(content, codec)
    if text is None or len(_STRAY.findall(text)) * 2 > len(_foreign(text)):
        return None
    return text


def _tried(content: bytes, codec: str) -> str | None:
    try:
        return content.decode(codec)
    except UnicodeDecodeError:
        return None


def _foreign(text: str) -> list[str]:
    return [match.group() for match in islice(_NOT_ASCII.finditer(text), _SAMPLE_CHARS)]


def _share(text: str, script: _Script) -> float:
    foreign = _foreign(text)
    return sum(char in script.frequent for char in foreign) / max(1, len(foreign))


def _plain_share(text: str) -> float:
    """How much of it is ASCII or frequent in some script; 0 with characters that no text holds."""
    sample = text[:_SAMPLE_CHARS]
    if any((char < " " and char not in "\t\n\r\f") or "\ue000" <= char <= "\uf8ff" for char in sample):
        return 0.0
    known = sum(char < "\x7f" or any(char in script.frequent for script in _SCRIPTS) for char in sample)
    return known / max(1, len(sample))


def _reads_western(text: str) -> bool:
    """Mostly ASCII, and its other letters all occur in one language."""
    foreign = _foreign(text)
    letters = {char for char in foreign if char not in _TYPOGRAPHY}
    ascii_letters = sum(char.isascii() and char.isalpha() for char in text[: 4 * _SAMPLE_CHARS])
    if not foreign or len(foreign) * 2 > ascii_letters or _BETWEEN_LETTERS.search(text):
        return False
    if letters & _ALSO_ROMANIAN and not _PORTUGUESE_WORD.search(text):
        return False
    return any(letters <= set(alphabet) for alphabet in _WESTERN.values())


def _everyday_chinese(content: bytes, likely: set[str]) -> str | None:
    """A list of names or terms may do without frequent characters, not without everyday ones.

    None when another codec than the one that fits is ``likely``.
    """
    readings = [
        text
        for codec, leads in _EVERYDAY
        if likely <= {codec} and (text := _read(content, codec)) and _is_everyday(text, codec, leads)
    ]
    return readings[0] if len(readings) == 1 else None


def _is_everyday(text: str, codec: str, leads: frozenset[int]) -> bool:
    coded = "gb2312" if codec == "gb18030" else codec  # GB 18030 has rare characters behind the same leads
    foreign = _foreign(text)
    everyday = sum(char.encode(coded, "replace")[0] in leads for char in foreign)
    return everyday * 10 >= len(foreign) * 8
