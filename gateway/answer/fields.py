"""Fields of an object that came from outside: none but known names, each of one JSON type."""

from collections.abc import Collection, Mapping
from typing import TypeVar

from gateway.errors import InvalidField, UnknownField

_T = TypeVar("_T")


def check_fields(given: Collection[str], allowed: Collection[str]) -> None:
    """Raises UnknownField for the first name that doesn't exist here."""
    unknown = next((name for name in given if name not in allowed), None)
    if unknown is not None:
        printable = "".join(c for c in unknown[:60] if c.isprintable())
        raise UnknownField(f"{printable!r} is not a field of this request")


def field(body: Mapping[str, object], name: str, kind: type[_T]) -> _T | None:
    """An optional field of one JSON type; null counts as absent. Raises InvalidField."""
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise InvalidField(f"{name} has the wrong type")
    return value
