"""Units: the names that one unit of an amount goes by."""

_SPELLINGS = (
    "% percent",
    "ms millisecond milliseconds 毫秒",
    "s sec secs second seconds 秒",
    "min mins minute minutes 分 分钟",
    "h hr hrs hour hours 时 小时",
    "d day days 天 日",
    "week weeks 周",
    "month months 月 个月",
    "year years 年",
    "b byte bytes",
    "kb kilobyte kilobytes",
    "mb megabyte megabytes",
    "gb gigabyte gigabytes",
    "tb terabyte terabytes",
    "m metre metres meter meters 米",
    "km kilometre kilometres kilometer kilometers 公里",
    "cm centimetre centimetres centimeter centimeters 厘米",
    "mm millimetre millimetres millimeter millimeters 毫米",
    "g gram grams 克",
    "kg kilogram kilograms 公斤",
    "eur euro euros €",
    "usd dollar dollars $ 美元",
    "gbp pound pounds £",
    "cny rmb yuan ¥ ￥ 元",
    "thousand thousands",
    "million millions",
    "billion billions",
    "万",
    "亿",
)
#: by each name the first one of its unit
UNIT_OF = {spelling: names.split()[0] for names in _SPELLINGS for spelling in names.split()}
HAN_UNITS = frozenset(name for name in UNIT_OF if "\u3400" <= name[0] <= "\u9fff")
