"""Any OpenAI-compatible moderations API as a Moderator: bounded in time and size, and closed to doubt."""

import asyncio
import json
import math
import re

import aiohttp
import orjson

from gateway.adapters.openai.endpoint import TRANSPORT_ERRORS, JsonEndpoint, read_at_most
from gateway.answer.calls.moderation import Verdict
from gateway.context import Deadline
from gateway.errors import DeadlineExceeded, ModerationUnavailable

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
        self._endpoint = JsonEndpoint(base_url, "moderation", api_key)
        self._max_sensitivity = max_sensitivity
        self._connect_s = connect_cap_ms / 1000
        self._fields = {} if name is None else {"model": name}

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
        except TRANSPORT_ERRORS as error:
            if clock.expired():
                raise DeadlineExceeded("moderation") from None
            raise _broken(error) from None

    async def ping(self) -> bool:
        """Whether the endpoint answers within a second and doesn't refuse the key; for readiness."""
        return await self._endpoint.ping()

    async def aclose(self) -> None:
        """Closes the pool and every call in it."""
        await self._endpoint.aclose()

    async def _post(self, text: str) -> bytes:
        body = json.dumps({**self._fields, "input": text}).encode()
        for _ in range(_TRIES - 1):
            try:
                return await self._post_once(body)
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                pass
        return await self._post_once(body)

    async def _post_once(self, body: bytes) -> bytes:
        waits = aiohttp.ClientTimeout(total=None, connect=self._connect_s)
        async with self._endpoint.post("moderations", body, waits) as response:
            if response.status != 200:
                raise ModerationUnavailable(f"the moderator answered with HTTP status {response.status}")
            too_large = ModerationUnavailable("the moderator's answer is too large")
            return await read_at_most(response, _MOST_BYTES, too_large)


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
