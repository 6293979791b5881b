"""Any OpenAI-compatible embeddings API as an Embedder: bounded waits and sizes, unit vectors in order."""

import asyncio
import hashlib
import json
import math
import random
import re
from collections.abc import Sequence
from dataclasses import replace

import aiohttp
import anyio
from anyio import to_thread

from gateway.adapters.embedded.embedder import SPACE
from gateway.adapters.openai.client import retry_after_ms
from gateway.adapters.openai.endpoint import TRANSPORT_ERRORS, JsonEndpoint, read_at_most
from gateway.adapters.openai.vectors import read_vectors
from gateway.context import Deadline
from gateway.errors import DeadlineExceeded, EmbedderUnavailable
from gateway.release.model import EmbeddingSpace
from gateway.retrieval.embedding import Vector

#: of an answer, a text: 8192 numbers, the most a space may have, at their longest in JSON
_BYTES_A_TEXT = 8192 * 32
_BYTES_AROUND = 1024 * 1024
#: about a millisecond to read; questions are answered on this loop
_INLINE_BYTES = 64 * 1024
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0


def space_of(name: str, dimension: int) -> EmbeddingSpace:
    """The space of an endpoint's model; the same name and dimension are the same space, at any address.

    The id reads like the name, and its digest keeps names apart that read alike. An endpoint that serves
    the bundled model makes vectors of the bundled space.
    """
    if (name, dimension) == (SPACE.model, SPACE.dimension):
        return SPACE
    readable = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40].strip("-") or "model"
    unnamed = EmbeddingSpace("", name, dimension)
    parts = json.dumps([name, dimension, unnamed.text_form])
    digest = hashlib.sha256(parts.encode()).hexdigest()[:12]
    return replace(unnamed, space_id=f"{readable}-{dimension}-{digest}")


class _Passing(EmbedderUnavailable):
    """What another try may not meet: too many requests, a fault of the server's, a broken connection."""


class OpenAIEmbedder:
    """An embedder behind ``POST {base_url}/embeddings``.

    ``connect_cap_ms`` bounds getting a connection, the deadline everything. ``batch`` texts go into one
    call. ``retries`` is how often a call that failed in passing is tried again, inside the deadline and not
    before the server's Retry-After: 0 where somebody waits for the answer. ``send_dimension`` asks the model
    to cut its vectors; most servers refuse models that can't. Raises ConfigurationError for a URL or key
    that can't be used.
    """

    def __init__(
        self,
        base_url: str,
        name: str,
        api_key: str | None,
        dimension: int,
        *,
        max_sensitivity: int,
        connect_cap_ms: int,
        batch: int = 32,
        retries: int = 0,
        send_dimension: bool = False,
    ) -> None:
        self._endpoint = JsonEndpoint(base_url, "embedding", api_key)
        self._space = space_of(name, dimension)
        self._max_sensitivity = max_sensitivity
        self._connect_s = connect_cap_ms / 1000
        self._batch = batch
        self._retries = retries
        self._fields: dict[str, object] = {"model": name}
        if send_dimension:
            self._fields["dimensions"] = dimension
        #: calls made again so far
        self.retried = 0

    def __repr__(self) -> str:
        return f"OpenAIEmbedder(name={self._space.model!r}, dimension={self._space.dimension})"

    @property
    def space(self) -> EmbeddingSpace:
        return self._space

    @property
    def max_sensitivity(self) -> int:
        return self._max_sensitivity

    async def embed(self, texts: Sequence[str], deadline: Deadline) -> list[Vector]:
        """See Embedder; also raises EmbeddingSpaceMismatch when the vectors have another dimension."""
        vectors: list[Vector] = []
        for start in range(0, len(texts), self._batch):
            vectors += await self._embed_batch(texts[start : start + self._batch], deadline)
        return vectors

    async def ping(self) -> bool:
        """Whether the endpoint answers within a second and doesn't refuse the key; for readiness."""
        return await self._endpoint.ping()

    async def aclose(self) -> None:
        """Closes the pool and every call in it; nothing can be embedded afterwards."""
        await self._endpoint.aclose()

    async def _embed_batch(self, texts: Sequence[str], deadline: Deadline) -> list[Vector]:
        tries = 0
        while True:
            try:
                return await self._call(texts, deadline)
            except _Passing as error:
                pause_s = _pause_s(tries, error.retry_after_ms)
                if tries == self._retries or pause_s >= deadline.remaining():
                    raise
            tries += 1
            self.retried += 1
            await anyio.sleep(pause_s)

    async def _call(self, texts: Sequence[str], deadline: Deadline) -> list[Vector]:
        seconds = deadline.budget("embedding", math.inf)
        clock = asyncio.timeout(seconds)
        try:
            async with clock:
                body = await self._post(texts, seconds)
                if len(body) <= _INLINE_BYTES:
                    return read_vectors(body, len(texts), self._space.dimension)
                return await to_thread.run_sync(read_vectors, body, len(texts), self._space.dimension)
        except TRANSPORT_ERRORS as error:
            # the transport's clock may strike before ours
            if clock.expired() or deadline.remaining() <= 0:
                raise DeadlineExceeded("embedding") from None
            raise _broken(error) from None

    async def _post(self, texts: Sequence[str], seconds: float) -> bytes:
        body = json.dumps({**self._fields, "input": list(texts)}).encode()
        waits = aiohttp.ClientTimeout(total=seconds, connect=min(seconds, self._connect_s))
        async with self._endpoint.post("embeddings", body, waits) as response:
            if response.status != 200:
                raise _refused(response)
            most = _BYTES_AROUND + _BYTES_A_TEXT * len(texts)
            return await read_at_most(response, most, _too_large())


def _too_large() -> EmbedderUnavailable:
    return EmbedderUnavailable("the embedding endpoint's answer is too large")


def _refused(response: aiohttp.ClientResponse) -> EmbedderUnavailable:
    """Says what kind of failure it was, and nothing that the endpoint wrote."""
    status = response.status
    if status == 429 or status >= 500:
        return _Passing(
            f"the embedding endpoint answered with HTTP status {status}",
            retry_after_ms=retry_after_ms({k.lower(): v for k, v in response.headers.items()}),
        )
    if status in {401, 403}:
        return EmbedderUnavailable(
            f"the embedding endpoint refuses the configured key (HTTP status {status})"
        )
    if status == 404:
        return EmbedderUnavailable("the embedding endpoint knows no such path or model (HTTP status 404)")
    return EmbedderUnavailable(f"the embedding endpoint answered with HTTP status {status}")


def _broken(error: Exception) -> EmbedderUnavailable:
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return _Passing("no connection to the embedding endpoint in time")
    if isinstance(error, aiohttp.ClientConnectorError):
        return _Passing("no connection to the embedding endpoint")
    return _Passing("the connection to the embedding endpoint broke")


def _pause_s(tries: int, asked_ms: int | None) -> float:
    """Doubles from try to try, spread so that callers don't come back together; never less than asked."""
    longest_s = min(_LONGEST_PAUSE_S, math.ldexp(_FIRST_PAUSE_S, tries))
    own_s = random.uniform(longest_s / 2, longest_s)  # noqa: S311 - no secret
    return max(own_s, (asked_ms or 0) / 1000)
