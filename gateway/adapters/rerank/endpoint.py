"""Any Cohere-, Jina- or TEI-style /rerank endpoint as a Reranker: one call, bounded in time and size."""

import asyncio
import json
import math
from collections.abc import Sequence
from typing import Literal

import aiohttp
from anyio import to_thread

from gateway.adapters.openai.endpoint import TRANSPORT_ERRORS, JsonEndpoint, read_at_most
from gateway.adapters.rerank.results import read_scores
from gateway.context import Deadline
from gateway.errors import DeadlineExceeded, RerankerUnavailable
from gateway.retrieval.candidate import Candidate
from gateway.retrieval.chunk import Chunk, embedded_text
from gateway.retrieval.lexicon import TermStatistics
from gateway.retrieval.rerank import RerankRefused

#: how the passages of one call are named: ``documents`` and ``top_n``, or TEI's ``texts``
RerankApi = Literal["cohere", "tei"]

#: the text of a passage as the endpoint sees it; another form would be another version
_TEXT_FORM = "title-breadcrumb-content/1"
_BYTES_AROUND = 1024 * 1024
#: about a millisecond to read; questions are answered on this loop
_INLINE_BYTES = 64 * 1024
#: what is wrong with one call and not with the endpoint: too long, or not to its taste
_THIS_CALLS = frozenset({400, 413, 414, 422})


class RerankEndpoint:
    """A reranker behind ``POST {url}``.

    ``connect_cap_ms`` bounds getting a connection, the deadline everything; a call is never repeated. Raises
    ConfigurationError for a URL or key that can't be used.
    """

    def __init__(
        self,
        url: str,
        name: str,
        api_key: str | None,
        *,
        max_sensitivity: int,
        connect_cap_ms: int,
        api: RerankApi = "cohere",
    ) -> None:
        self._endpoint = JsonEndpoint(url, "reranker", api_key)
        self._name = name
        self._max_sensitivity = max_sensitivity
        self._connect_s = connect_cap_ms / 1000
        self._api = api

    def __repr__(self) -> str:
        return f"RerankEndpoint(name={self._name!r})"

    @property
    def version(self) -> str:
        """The same model makes the same numbers of the same texts, at any address."""
        return f"endpoint/{self._name}/{_TEXT_FORM}"

    @property
    def max_sensitivity(self) -> int:
        return self._max_sensitivity

    @property
    def in_process(self) -> bool:
        return False

    async def scores(
        self,
        question: str,
        candidates: Sequence[Candidate],
        statistics: TermStatistics,
        deadline: Deadline,
    ) -> list[float]:
        """See Reranker. The statistics stay here."""
        return await self.ranked(question, [_text(candidate.chunk) for candidate in candidates], deadline)

    async def ranked(self, question: str, texts: Sequence[str], deadline: Deadline) -> list[float]:
        """The same for plain texts. Raises RerankerUnavailable, DeadlineExceeded."""
        seconds = deadline.budget("rerank", math.inf)
        if not texts:
            return []
        clock = asyncio.timeout(seconds)
        try:
            async with clock:
                body = await self._post(question, texts, seconds)
                if len(body) <= _INLINE_BYTES:
                    return read_scores(body, len(texts))
                return await to_thread.run_sync(read_scores, body, len(texts))
        except TRANSPORT_ERRORS as error:
            # the transport's clock may strike before ours
            if clock.expired() or deadline.remaining() <= 0:
                raise DeadlineExceeded("rerank") from None
            raise _broken(error) from None

    async def ping(self) -> bool:
        """Whether something answers there within a second and doesn't refuse the key; ranks nothing."""
        return await self._endpoint.ping("")

    async def aclose(self) -> None:
        """Closes the pool and every call in it."""
        await self._endpoint.aclose()

    async def _post(self, question: str, texts: Sequence[str], seconds: float) -> bytes:
        body = json.dumps(self._fields(question, texts)).encode()
        waits = aiohttp.ClientTimeout(total=seconds, connect=min(seconds, self._connect_s))
        async with self._endpoint.post("", body, waits) as response:
            if response.status != 200:
                raise _refused(response)
            # some send the passages back
            return await read_at_most(response, _BYTES_AROUND + 2 * len(body), _too_large())

    def _fields(self, question: str, texts: Sequence[str]) -> dict[str, object]:
        if self._api == "tei":
            return {"query": question, "texts": list(texts), "truncate": True}
        return {"model": self._name, "query": question, "documents": list(texts), "top_n": len(texts)}


def _text(chunk: Chunk) -> str:
    return embedded_text(chunk.title, chunk.section, chunk.content)


def _too_large() -> RerankerUnavailable:
    return RerankerUnavailable("the rerank endpoint's answer is too large")


def _refused(response: aiohttp.ClientResponse) -> RerankerUnavailable:
    """Says what kind of failure it was, and nothing that the endpoint wrote."""
    status = response.status
    if status in {401, 403}:
        return RerankerUnavailable(f"the rerank endpoint refuses the configured key (HTTP status {status})")
    if status == 404:
        return RerankerUnavailable("the rerank endpoint knows no such path or model (HTTP status 404)")
    says = f"the rerank endpoint answered with HTTP status {status}"
    if status in _THIS_CALLS:
        return RerankRefused(says)
    return RerankerUnavailable(says)


def _broken(error: Exception) -> RerankerUnavailable:
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return RerankerUnavailable("no connection to the rerank endpoint in time")
    if isinstance(error, aiohttp.ClientConnectorError):
        return RerankerUnavailable("no connection to the rerank endpoint")
    return RerankerUnavailable("the connection to the rerank endpoint broke")
