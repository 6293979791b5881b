"""Any OpenAI-compatible chat API as an AnswerModel: bounded waits, exact text, closed when left."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TypeVar, cast

import aiohttp
import anyio
import httpx2
import openai

from gateway.adapters.openai.alarm import Alarm
from gateway.adapters.openai.chunk import ChunkReader
from gateway.adapters.openai.client import (
    CLOSE_S,
    KEEPALIVE_S,
    MAX_CONNECTIONS,
    PING_S,
    checked_key,
    checked_url,
    retry_after_ms,
)
from gateway.adapters.openai.cookieless import CookielessClient
from gateway.adapters.openai.patience import Patience
from gateway.adapters.openai.sse import SseDecoder
from gateway.answer.calls.fault import ModelRefused, ModelThrottled, ModelUnreached
from gateway.answer.model import ModelPiece
from gateway.answer.prompt import Prompt
from gateway.context import Deadline
from gateway.errors import DeadlineExceeded, UpstreamFailed

T = TypeVar("T")

_DRAIN_S = 0.05
#: only the transport's own errors tell: the layers above it make a timeout of connecting also of a connection
#: that breaks after the request has left
_NO_CONNECTION = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
#: request timeout, conflict, too early: the only ones below 500 besides 429 that may pass
_PASSING = frozenset({408, 409, 425})

# all that the transport raises: openai's adapter maps aiohttp's errors to httpx2's, but not every one of
# them; what can't be written or read as a header is a ValueError
_TRANSPORT_ERRORS: tuple[type[Exception], ...] = (
    openai.OpenAIError,
    httpx2.HTTPError,
    httpx2.StreamError,
    aiohttp.ClientError,
    OSError,
    ValueError,
)


class OpenAIModel:
    """An answer model behind ``POST {base_url}/chat/completions``.

    ``connect_cap_ms`` bounds getting a connection, ``first_token_cap_ms`` the time from the call to the first
    text, ``idle_cap_ms`` the gap between two texts; comments and empty deltas are no text. Only time spent
    waiting for the model counts, not the time in which nobody reads. A server that doesn't keep to the tokens
    asked for is hung up on: the answer then ends by its length. Raises ConfigurationError for a URL or key
    that can't be used.
    """

    def __init__(
        self,
        base_url: str,
        name: str,
        api_key: str | None,
        *,
        max_sensitivity: int,
        connect_cap_ms: int,
        first_token_cap_ms: int,
        idle_cap_ms: int,
    ) -> None:
        self._name = name
        self._max_sensitivity = max_sensitivity
        self._first_token_cap_ms = first_token_cap_ms
        self._idle_cap_ms = idle_cap_ms
        self._base_url = checked_url(base_url, "model")
        connect_s = connect_cap_ms / 1000
        self._client = openai.AsyncOpenAI(
            base_url=self._base_url,
            # the SDK insists on one; its header is left out
            api_key="none" if api_key is None else checked_key(api_key, "model"),
            max_retries=0,
            # reads are bounded by our own clocks, which comments don't reset
            timeout=httpx2.Timeout(None, connect=connect_s, pool=connect_s),
            http_client=CookielessClient(
                limits=httpx2.Limits(max_connections=MAX_CONNECTIONS, keepalive_expiry=KEEPALIVE_S)
            ),
        )
        # what the SDK would add from OPENAI_* variables belongs to another endpoint than this one
        self._headers: dict[str, str | openai.Omit] = {
            "OpenAI-Organization": openai.Omit(),
            "OpenAI-Project": openai.Omit(),
            "Accept-Encoding": "identity",
        }
        if api_key is None:
            self._headers["Authorization"] = openai.Omit()

    def __repr__(self) -> str:
        return f"OpenAIModel(name={self._name!r})"

    @property
    def name(self) -> str:
        return self._name

    @property
    def max_sensitivity(self) -> int:
        return self._max_sensitivity

    def stream(
        self, prompt: Prompt, deadline: Deadline
    ) -> AbstractAsyncContextManager[AsyncIterator[ModelPiece]]:
        """One call; see AnswerModel. DeadlineExceeded has stage ``first_token``, ``idle`` or ``total``."""
        patience = Patience(deadline, self._first_token_cap_ms, self._idle_cap_ms)
        return _Call(lambda: self._request(prompt), ChunkReader(prompt), patience)

    async def _request(self, prompt: Prompt) -> httpx2.Response:
        """The answer's head. The endpoint's own method would check and copy each message by its types, a
        quarter of what a call costs this process; this way in is the SDK's for what it has no method for.
        """
        answer = await self._client.post(
            "/chat/completions",
            cast_to=httpx2.Response,
            body={
                "messages": [{"role": m.role, "content": m.content} for m in prompt.messages],
                "model": self._name,
                "max_tokens": prompt.max_output_tokens,
                "stream": True,
                "stream_options": {"include_usage": True},
                "temperature": 0,
            },
            options={"headers": self._headers},
            stream=True,
            stream_cls=openai.AsyncStream[object],
        )
        return cast("httpx2.Response", answer)  # the overloads don't know it: this class comes back as it is

    async def ping(self) -> bool:
        """Whether ``GET {base_url}/models`` succeeds within a second; for readiness."""
        try:
            async with (
                asyncio.timeout(PING_S),
                self._client.models.with_streaming_response.list(extra_headers=self._headers),
            ):
                return True
        except _TRANSPORT_ERRORS:
            return False

    async def aclose(self) -> None:
        """Closes the pool and every call in it."""
        with anyio.move_on_after(CLOSE_S, shield=True):
            await self._client.close()


class _Call(AsyncIterator[ModelPiece]):
    """One call on the wire, and the pieces it brings.

    A class, not an async generator: a generator would suspend inside its own timeout, and when dropped would
    leave the upstream running until somebody finalises it.
    """

    def __init__(
        self, request: Callable[[], Awaitable[httpx2.Response]], chunks: ChunkReader, patience: Patience
    ) -> None:
        self._request = request
        self._chunks = chunks
        self._patience = patience
        self._alarm = Alarm()
        self._decoder = SseDecoder()
        self._answer: httpx2.Response | None = None
        self._reads: AsyncGenerator[bytes, None] | None = None
        self._ready: deque[ModelPiece] = deque()
        self._failure: UpstreamFailed | DeadlineExceeded | None = None
        self._over = False

    async def __aenter__(self) -> AsyncIterator[ModelPiece]:
        self._patience.resume()
        try:
            await self._bounded(self._open)
        except BaseException:
            await self._close()  # nobody else will: what isn't entered isn't left
            raise
        self._patience.pause()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None and self._over and self._failure is None and not self._chunks.overrun:
                await self._drain()
        finally:
            await self._close()

    async def __anext__(self) -> ModelPiece:
        self._patience.resume()
        try:
            while not self._ready and not self._over:
                self._take(await self._read())
        except BaseException:
            self._over = True
            raise
        finally:
            self._patience.pause()
        if self._ready:
            return self._ready.popleft()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        raise StopAsyncIteration

    async def _open(self) -> None:
        self._answer = await self._request()
        encoded = self._answer.headers.get("content-encoding", "identity") != "identity"
        # what isn't encoded, and none of it should be, needs no decoders in between
        self._reads = self._answer.aiter_bytes() if encoded else self._answer.aiter_raw()

    async def _read(self) -> bytes | None:
        """The next bytes; None at the end, or when an answer that is whole gets no tail."""
        try:
            return await self._bounded(self._next_bytes)
        except (UpstreamFailed, DeadlineExceeded):
            if not self._chunks.finished:
                raise
            return None

    async def _next_bytes(self) -> bytes | None:
        assert self._reads is not None, "entered before it is read"  # noqa: S101 - for the type checker
        return await anext(self._reads, None)

    async def _bounded(self, step: Callable[[], Awaitable[T]]) -> T:
        stage, seconds = self._patience.next_wait()
        self._alarm.on(seconds)
        try:
            return await step()
        except asyncio.CancelledError:
            if self._alarm.off():
                raise DeadlineExceeded(stage) from None
            raise
        except _TRANSPORT_ERRORS as error:
            if self._alarm.off():
                raise DeadlineExceeded(stage) from None
            raise _failure(error) from None
        finally:
            self._alarm.off()

    def _take(self, read: bytes | None) -> None:
        """Turns bytes into pieces; what came before a failure is delivered before it."""
        try:
            if read is None or not self._take_events(self._decoder.feed(read)):
                self._over = True
                self._ready.extend(self._chunks.end())
        except UpstreamFailed as failure:
            self._over = True
            self._failure = failure

    def _take_events(self, events: list[bytes]) -> bool:
        """False after the event that ends the stream."""
        for event in events:
            if event.strip() == b"[DONE]":
                return False
            finished = self._chunks.finished
            piece = self._chunks.read(event)
            if piece is not None:
                self._ready.append(piece)
                self._patience.text_came()
            if self._chunks.overrun:
                return False
            if self._chunks.finished and not finished:
                self._patience.answer_ended()
        return True

    async def _drain(self) -> None:
        """Reads past ``[DONE]`` to the end of the body, so that the connection can carry the next call."""
        try:
            async with asyncio.timeout(_DRAIN_S):
                while await self._next_bytes() is not None:
                    pass
        except _TRANSPORT_ERRORS:
            return

    async def _close(self) -> None:
        self._alarm.close()
        with anyio.move_on_after(CLOSE_S, shield=True), contextlib.suppress(*_TRANSPORT_ERRORS):
            if self._answer is not None:
                await self._answer.aclose()
            if self._reads is not None:
                await self._reads.aclose()


def _failure(error: Exception) -> UpstreamFailed:
    """Says what kind of failure it was, and nothing that the upstream wrote."""
    if isinstance(error, openai.APIStatusError):
        return _refusal(error.status_code, retry_after_ms(error.response.headers))
    if any(isinstance(cause, _NO_CONNECTION) for cause in _causes(error)):
        return ModelUnreached("no connection to the answer model")
    return UpstreamFailed("the connection to the answer model broke")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _refusal(status: int, wait_ms: int | None) -> UpstreamFailed:
    """A redirect is one too: it won't be followed the next time either."""
    says = f"the answer model answered with HTTP status {status}"
    if status in {429, 503}:
        return ModelThrottled(says, retry_after_ms=wait_ms)
    return UpstreamFailed(says) if status >= 500 or status in _PASSING else ModelRefused(says)
