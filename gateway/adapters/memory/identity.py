"""The in-memory twin of identity: credentials and who brings them, in a table."""

import time
from collections.abc import Callable, Mapping

from gateway.access.principal import Principal
from gateway.errors import TokenExpired, TokenInvalid


class MemoryIdentities:
    """IdentityVerifier over a table of whole credentials; ``clock`` gives seconds since the epoch."""

    def __init__(self, known: Mapping[str, Principal], clock: Callable[[], float] = time.time) -> None:
        self._known = known
        self._clock = clock

    async def verify(self, bearer: str) -> Principal:
        principal = self._known.get(bearer)
        if principal is None:
            raise TokenInvalid()
        if principal.expires_at <= self._clock():
            raise TokenExpired()
        return principal
