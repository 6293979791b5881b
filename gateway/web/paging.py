"""Pages of a list: how many of it, and from where on.

A cursor is opaque to clients and no secret: it names the place of the last thing its holder has seen, in one
list of one tenant. Whoever brings it is asked for his rights like everybody.
"""

import base64
import binascii
from dataclasses import dataclass

import orjson

from gateway.errors import InvalidField
from gateway.retrieval.chunk import stable_hash

#: of lists that were once given whole, so also what a client gets that names no limit
MAX_LIMIT = 1000
_MAX_CURSOR_CHARS = 8192


def limit_of(given: str | None, default: int = MAX_LIMIT) -> int:
    """Raises InvalidField."""
    if given is None:
        return default
    digits = given.isascii() and given.isdigit() and len(given) <= len(str(MAX_LIMIT))
    if not digits or not 1 <= int(given) <= MAX_LIMIT:
        raise InvalidField(f"limit is a number from 1 to {MAX_LIMIT}")
    return int(given)


@dataclass(frozen=True, slots=True)
class Listing:
    """One list, such as the documents of a tenant's knowledge base, or of a tenant as a whole."""

    name: str
    tenant: str
    knowledge_base: str = ""

    def cursor(self, last: str) -> str:
        """What goes on behind ``last``."""
        return base64.urlsafe_b64encode(orjson.dumps([self._digest, last])).decode().rstrip("=")

    def place(self, cursor: str | None) -> str | None:
        """The last thing its holder has seen. Raises InvalidField for a cursor of no or of another list."""
        if cursor is None:
            return None
        match _read(cursor):
            case [self._digest, str(last)] if "\0" not in last:  # which no store can hold
                return last
        raise InvalidField("cursor is a next_cursor of the same list")

    @property
    def _digest(self) -> str:
        return stable_hash(self.name, self.tenant, self.knowledge_base)


def _read(cursor: str) -> object:
    if len(cursor) > _MAX_CURSOR_CHARS or not cursor.isascii():
        return None
    try:  # of deep nesting the standard library makes a RecursionError
        return orjson.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (binascii.Error, ValueError):
        return None
