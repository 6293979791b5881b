"""An endpoint that answers JSON with JSON: its address, its key and its pool, in plain aiohttp.

The SDK checks and copies what these calls have no use for; a chat's stream is another matter (``model``).
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import anyio
import httpx2

from gateway.adapters.openai.client import (
    CLOSE_S,
    KEEPALIVE_S,
    MAX_CONNECTIONS,
    PING_S,
    checked_key,
    checked_url,
)
from gateway.errors import ConfigurationError, Unavailable

#: all that its calls raise besides what their callers do
TRANSPORT_ERRORS: tuple[type[Exception], ...] = (aiohttp.ClientError, OSError)


class JsonEndpoint:
    """``part`` says whose it is, in errors. Raises ConfigurationError for a URL or key that can't be used."""

    def __init__(self, base_url: str, part: str, api_key: str | None) -> None:
        self._base = httpx2.URL(checked_url(base_url, part))
        if self._base.userinfo:
            raise ConfigurationError(
                f"{part}_base_url_invalid", f"the {part}'s base URL must not hold a password"
            )
        self._headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if api_key is not None:
            self._headers["Authorization"] = f"Bearer {checked_key(api_key, part)}"
        self._opened: aiohttp.ClientSession | None = None

    @asynccontextmanager
    async def post(
        self, path: str, body: bytes, waits: aiohttp.ClientTimeout
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """One call, closed when left; an empty path is the address itself. Raises TRANSPORT_ERRORS."""
        call = self._session().post(
            self._url(path),
            data=body,
            headers=self._headers,
            # a redirect would take the texts to another host
            allow_redirects=False,
            timeout=waits,
        )
        async with call as response:
            yield response

    async def ping(self, path: str = "models") -> bool:
        """Whether it answers within a second and doesn't refuse the key; for readiness."""
        try:
            async with self._session().get(
                self._url(path),
                headers=self._headers,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=PING_S),
            ) as response:
                # not every server lists its models, nor answers to GET
                return response.status < 300 or response.status in {404, 405}
        except TRANSPORT_ERRORS:
            return False

    async def aclose(self) -> None:
        """Closes the pool and every call in it."""
        if self._opened is not None:
            with anyio.move_on_after(CLOSE_S, shield=True):
                await self._opened.close()

    def _url(self, path: str) -> str:
        if not path:
            return str(self._base)
        return str(self._base.copy_with(path=f"{self._base.path.rstrip('/')}/{path}"))

    def _session(self) -> aiohttp.ClientSession:
        # it belongs to the loop it is made in
        if self._opened is None:
            self._opened = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=MAX_CONNECTIONS, keepalive_timeout=KEEPALIVE_S),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
            )
        return self._opened


async def read_at_most(response: aiohttp.ClientResponse, most: int, too_large: Unavailable) -> bytes:
    """The whole body, undecoded. Raises ``too_large`` once there are more than ``most`` bytes."""
    body = bytearray()
    async for part in response.content.iter_any():
        body += part
        if len(body) > most:
            raise too_large
    return bytes(body)
