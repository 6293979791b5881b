"""Any OpenAI-compatible moderations API as a Moderator: bounded in time and size, and closed to doubt."""

import asyncio
import json
import math
import re

import aiohttp
import anyio
import httpx2
import orjson

from gateway.adapters.openai.client import (
    CLOSE_S,
    KEEPALIVE_S,
    MAX_CONNECTIONS,
    PING_S,
    checked_key,
    checked_url,
)
from gateway.answer.moderation import Verdict
from gateway.context import Deadline
from gateway.errors import ConfigurationError, DeadlineExceeded, ModerationUnavailable

_TRANSPORT_ERRORS: tuple[type[Exception], ...] = (aiohttp.ClientError, OSError)
_MOST_BYTES = 256 * 1024
#: what goes into the trace; a server may name its categories as it likes
_CATEGORY = re.compile(r"[a-z][a-z0-9_/-]{0,40}", re.IGNORECASE)
_MOST_CATEGORIES = 20
#: a connection that was kept may turn out to be dead: then the check is made once more
_TRIES = 2


class OpenAIModerator:
    """A moderator behind ``POST {base_url}/moderations``.

    ``name`` None leaves the choice of the model to the server. ``connect_cap_ms`` bounds getting a
    connection, the deadline everything. Raises ConfigurationError for a URL or key that can't be used.
    """

    def __init__(
        self,
        base_url: str,
        name: str | None,
        api_key: str | None,
        *,
        max_sensitivity: int,
        connect_cap_ms: int,
    ) -> None:
        self._base = httpx2.URL(checked_url(base_url, "moderation"))
        if self._base.userinfo:
            raise ConfigurationError(
                "moderation_base_url_invalid", "the moderation's base URL must not hold a password"
            )
        self._max_sensitivity = max_sensitivity
        self._connect_s = connect_cap_ms / 1000
        self._headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if api_key is not None:
            self._headers["Authorization"] = f"Bearer {checked_key(api_key, 'moderation')}"
        self._fields = {} if name is None else {"model": name}
        self._opened: aiohttp.ClientSession | None = None

    def __repr__(self) -> str:
        return f"OpenAIModerator(name={self._fields.get('model')!r})"

    @property
    def max_sensitivity(self) -> int:
        return self._max_sensitivity

    async def check(self, text: str, deadline: Deadline) -> Verdict:
        """See Moderator; whatever isn't a clear word is ModerationUnavailable."""
        clock = asyncio.timeout(deadline.budget("moderation", math.inf))
        try:
            async with clock:
                return _verdict(await self._post(text))
        except _TRANSPORT_ERRORS as error:
            if clock.expired():
                raise DeadlineExceeded("moderation") from None
            raise _broken(error) from None

    async def ping(self) -> bool:
        """Whether the endpoint answers within a second and doesn't refuse the key; for readiness."""
        try:
            async with (
                asyncio.timeout(PING_S),
                self._session().get(
                    self._url("models"), headers=self._headers, allow_redirects=False
                ) as response,
            ):
                return response.status < 300 or response.status in {404, 405}
        except _TRANSPORT_ERRORS:
            return False

    async def aclose(self) -> None:
        """Closes the pool and every call in it."""
        if self._opened is not None:
            with anyio.move_on_after(CLOSE_S, shield=True):
                await self._opened.close()

    async def _post(self, text: str) -> bytes:
        body = json.dumps({**self._fields, "input": text}).encode()
        for _ in range(_TRIES - 1):
            try:
                return await self._post_once(body)
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                pass
        return await self._post_once(body)

    async def _post_once(self, body: bytes) -> bytes:
        call = self._session().post(
            self._url("moderations"),
            data=body,
            headers=self._headers,
            # a redirect would take the text to another host
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=None, connect=self._connect_s),
        )
        async with call as response:
            if response.status != 200:
                raise ModerationUnavailable(f"the moderator answered with HTTP status {response.status}")
            return await _read(response)

    def _url(self, path: str) -> str:
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


async def _read(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for part in response.content.iter_any():
        body += part
        if len(body) > _MOST_BYTES:
            raise ModerationUnavailable("the moderator's answer is too large")
    return bytes(body)


def _verdict(body: bytes) -> Verdict:
    """Of ``{"results": [{"flagged": bool, "categories": {name: bool}}]}``, which has one result a text."""
    try:
        (result,) = orjson.loads(body)["results"]
        flagged, categories = result["flagged"], result.get("categories") or {}
        found = [name for name, hit in categories.items() if hit is True and _CATEGORY.fullmatch(name)]
    except (orjson.JSONDecodeError, LookupError, TypeError, ValueError, AttributeError):
        raise ModerationUnavailable("the moderator sent an answer of an unknown shape") from None
    if not isinstance(flagged, bool):
        raise ModerationUnavailable("the moderator sent an answer of an unknown shape")
    return Verdict(flagged, tuple(sorted(found)[:_MOST_CATEGORIES]))


def _broken(error: Exception) -> ModerationUnavailable:
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return ModerationUnavailable("no connection to the moderator")
    return ModerationUnavailable("the connection to the moderator broke")
