"""Numbers: what a spreadsheet shows for a stored number under its cell's format (ECMA-376, 18.8.30)."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from functools import lru_cache

#: formats that files name by number only
BUILT_IN = {
    1: "0", 2: "0.00", 3: "#,##0", 4: "#,##0.00", 9: "0%", 10: "0.00%",
    14: "yyyy-mm-dd", 15: "d-mmm-yy", 16: "d-mmm", 17: "mmm-yy", 18: "h:mm", 19: "h:mm:ss", 20: "h:mm",
    21: "h:mm:ss", 22: "yyyy-mm-dd h:mm", 37: "#,##0", 38: "#,##0", 39: "#,##0.00", 40: "#,##0.00",
    41: "#,##0", 42: "#,##0", 43: "#,##0.00", 44: "#,##0.00", 45: "mm:ss", 46: "[h]:mm:ss", 47: "mm:ss",
    **dict.fromkeys((27, 28, 29, 30, 31, 36, 50, 51, 52, 53, 54, 57, 58), "yyyy-mm-dd"),
    **dict.fromkeys((32, 33, 34, 35, 55, 56), "h:mm"),
}  # fmt: skip

_EPOCH, _EPOCH_1904 = datetime(1899, 12, 30), datetime(1904, 1, 1)
_LAST_DAY = 2_958_465  # the last day of the year 9999
_CODE_CHARS = 255  # Excel takes no longer ones
_TOKEN = re.compile(
    r'"([^"]*)"|\\(.)|\[\$([^\]-]*)[^\]]*\]|(\[h+\]|\[m+\]|\[s+\])|\[[^\]]*\]|[_*].|(.)', re.I | re.S
)


@dataclass(frozen=True, slots=True)
class _Format:
    """``parts`` are the letters of a date or time; a number has digits with text before and after."""

    parts: str = ""
    elapsed: bool = False
    digits: str = ""
    before: str = ""
    after: str = ""


def shown(value: float, code: str, *, since_1904: bool = False) -> str:
    """Dates as ``2026-01-31``, times as ``09:30``, amounts with their decimals, separators and signs."""
    form = _format(code)
    if form.parts and 0 <= value <= _LAST_DAY:
        return _moment(value, form, since_1904)
    if form.digits and abs(value) < 1e15:
        return _amount(value, form)
    return general(value)


def general(value: float) -> str:
    """Without a format: whole numbers whole, others with at most eleven digits."""
    if value == int(value) and abs(value) < 1e15:
        return str(int(value))
    text = f"{value:.11g}"
    return text.rstrip("0") if "." in text and "e" not in text else text


@lru_cache(maxsize=1024)
def _format(code: str) -> _Format:
    """Of a format's first section. An empty one, a fraction, or one that is too odd, means General."""
    letters, literal, digits, before = "", "", "", ""
    elapsed = False
    for match in _TOKEN.finditer(code[:_CODE_CHARS].partition(";")[0]):
        quoted, escaped, currency, spent, char = match.groups()
        text = quoted or escaped or currency or ""
        if spent:
            elapsed = True
            letters += spent[1].lower()
        elif char and char.lower() in "ymdhs":
            letters += char.lower()
        elif char and char in "0#?.,%":
            if char in "0#?" and literal.strip() and digits and "%" not in digits:
                return _Format()  # digits with signs between, like a telephone number
            if not digits:
                before, literal = literal, ""
            digits += char
        elif char and char in "/eE@" and not letters:
            return _Format()
        else:
            literal += text or (char if char and char in "$€£¥₹+-() " else "")
    if letters:
        return _Format(parts=letters, elapsed=elapsed)
    if not re.search(r"[0#?]", digits) or digits.count(".") > 1:
        return _Format()
    return _Format(digits=digits, before=before, after=literal)


def _moment(value: float, form: _Format, since_1904: bool) -> str:
    has_time = "h" in form.parts or "s" in form.parts
    has_day = "y" in form.parts or "d" in form.parts or ("m" in form.parts and not has_time)
    if form.elapsed or not has_day:
        return _clock(value, form)
    days = value + 1 if value < 60 and not since_1904 else value  # Excel's year 1900 has a 29 February
    moment = (_EPOCH_1904 if since_1904 else _EPOCH) + timedelta(seconds=round(days * 86_400))
    if "d" not in form.parts:
        return f"{moment:%Y}" if "m" not in form.parts else f"{moment:%Y-%m}"
    return f"{moment:%Y-%m-%d %H:%M}" if has_time else f"{moment:%Y-%m-%d}"


def _clock(value: float, form: _Format) -> str:
    minutes, seconds = divmod(round((value if form.elapsed else value % 1) * 86_400), 60)
    hours, minutes = divmod(minutes, 60)
    if "h" not in form.parts:
        return f"{hours * 60 + minutes:02}:{seconds:02}"
    return f"{hours:02}:{minutes:02}" + (f":{seconds:02}" if "s" in form.parts else "")


def _amount(value: float, form: _Format) -> str:
    whole, _, fraction = form.digits.replace("%", "").partition(".")
    number = Decimal(repr(value)) * (100 if "%" in form.digits else 1)
    scale = len(whole) - len(whole.rstrip(","))
    number /= Decimal(1000) ** scale
    places = len(re.findall(r"[0#?]", fraction))
    number = number.quantize(Decimal(1).scaleb(-places), rounding=ROUND_HALF_UP)
    separator = "," if "," in whole.rstrip(",") else ""
    text = f"{abs(number):{separator}.{places}f}"
    optional = len(fraction) - len(fraction.rstrip("#?"))
    for _ in range(min(optional, places)):
        text = text.removesuffix("0")
    text = text.rstrip(".") if places else text
    head, point, tail = text.partition(".")
    head = head.zfill(whole.count("0")) if not separator else head
    sign = "-" if number < 0 else ""
    return f"{sign}{form.before}{head}{point}{tail}{'%' if '%' in form.digits else ''}{form.after}".strip()
