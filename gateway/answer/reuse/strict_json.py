"""The members of one JSON object from a store, each taken once and of exactly its type."""

import math
from typing import Self

from gateway.answer.cache import Damaged


class Members:
    """Every method raises Damaged for what is missing or of another type."""

    def __init__(self, content: object) -> None:
        if not isinstance(content, dict):
            raise Damaged
        self._left = dict(content)

    def text(self, name: str) -> str:
        found = self._take(name)
        if not isinstance(found, str):
            raise Damaged
        return found

    def texts(self, name: str) -> tuple[str, ...]:
        found = self.items(name)
        texts = tuple(item for item in found if isinstance(item, str))
        if len(texts) != len(found):
            raise Damaged
        return texts

    def whole(self, name: str, *, least: int = 0) -> int:
        """A boolean is no number, though Python takes it for one."""
        found = self._take(name)
        if type(found) is not int or found < least:
            raise Damaged
        return found

    def number(self, name: str) -> float:
        """A finite one."""
        found = self._take(name)
        if not isinstance(found, int | float) or isinstance(found, bool) or not math.isfinite(found):
            raise Damaged
        return float(found)

    def flag(self, name: str) -> bool:
        found = self._take(name)
        if not isinstance(found, bool):
            raise Damaged
        return found

    def items(self, name: str) -> list[object]:
        found = self._take(name)
        if not isinstance(found, list):
            raise Damaged
        return found

    def inner(self, name: str) -> Self:
        return type(self)(self._take(name))

    def inners(self, name: str) -> list[Self]:
        return [type(self)(item) for item in self.items(name)]

    def is_none(self, name: str) -> bool:
        """Takes it only if it is."""
        if name not in self._left or self._left[name] is not None:
            return False
        del self._left[name]
        return True

    def end(self) -> None:
        """Nothing else is there."""
        if self._left:
            raise Damaged

    def _take(self, name: str) -> object:
        if name not in self._left:
            raise Damaged
        return self._left.pop(name)
