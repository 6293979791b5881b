"""Connections to Milvus: where it is, how one call is bounded, and how its errors become ours."""

import asyncio
import logging
import math
import secrets
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread
import grpc
from pymilvus import AsyncMilvusClient, MilvusClient, MilvusException
from pymilvus.exceptions import ErrorCode

from gateway.adapters.milvus.layout import MilvusLayout, lite_layout
from gateway.context import Deadline
from gateway.errors import DeadlineExceeded, VectorStoreUnavailable

T = TypeVar("T")

STAGE = "retrieval"
# pymilvus logs a traceback for each failed call before it raises what is translated here.
logging.getLogger("pymilvus.decorators").setLevel(logging.CRITICAL)

_CONNECT_CAP_S = 10.0
_CLOSE_CAP_S = 2.0
# gRPC's own back-off grows to two minutes: a server that is back must be found sooner
_CHANNEL = {"grpc.initial_reconnect_backoff_ms": 200, "grpc.max_reconnect_backoff_ms": 1000}
_NO_ANSWER = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
_OF_EVERY_CALL = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server's address, and what proves our right to it. A new token is another endpoint."""

    uri: str
    token: str = field(default="", repr=False)


@contextmanager
def translated(deadline: Deadline | None = None) -> Iterator[None]:
    """Vendor errors become VectorStoreUnavailable, or DeadlineExceeded once the deadline has passed."""
    try:
        yield
    except (MilvusException, grpc.RpcError, TimeoutError, OSError) as error:
        if deadline is not None and (deadline.remaining() <= 0 or _ran_out(error)):
            raise DeadlineExceeded(STAGE) from error
        raise VectorStoreUnavailable() from error


def _ran_out(error: Exception) -> bool:
    """The wire's own deadline, which is ours, may be a moment ahead of our clock."""
    return isinstance(error, grpc.RpcError) and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def uninterrupted(call: Awaitable[T]) -> T:
    """Awaits a vendor's call so that a cancel is neither lost nor invented.

    pymilvus goes through ``asyncio.wait_for``, which on Python 3.11 swallows a cancel that arrives
    together with the result; and a gRPC channel that is closed raises CancelledError in tasks that
    nobody cancelled. Both show in ``Task.cancelling()``.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    try:
        result = await call
    except asyncio.CancelledError as error:
        if task is None or task.cancelling() > before:
            raise
        raise VectorStoreUnavailable() from error
    if task is not None and task.cancelling() > before:
        await anyio.lowlevel.checkpoint()
        raise asyncio.CancelledError
    return result


async def bounded(deadline: Deadline, call: Callable[[], Awaitable[T]]) -> T:
    """The call's result inside the deadline, by our own clock; the call ends on the wire with its task.

    Raises DeadlineExceeded("retrieval"), VectorStoreUnavailable.
    """
    left = deadline.budget(STAGE, math.inf)
    with anyio.move_on_after(left), translated(deadline):
        return await uninterrupted(call())
    raise DeadlineExceeded(STAGE)


def unanswered(error: MilvusException | grpc.RpcError) -> bool:
    """Whether there was no answer at all, not even a refusal."""
    return isinstance(error, grpc.RpcError) and error.code() in _NO_ANSWER


def concerns_every_call(error: MilvusException | grpc.RpcError) -> bool:
    """Whether any other call would fail now as well, whatever it asks."""
    if isinstance(error, grpc.RpcError):
        return error.code() in _OF_EVERY_CALL
    return bool(error.code == ErrorCode.RATE_LIMIT)


def denied(call: Callable[[], object]) -> bool:
    """Whether the server refuses this account the call; any other failure means that it doesn't."""
    try:
        call()
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.PERMISSION_DENIED:
            return True
        if unanswered(error):
            raise
    except MilvusException:
        pass
    return False


def admits_strangers(endpoint: Endpoint) -> bool:
    """Whether the server lets anybody in: it is asked with a name and a password that nobody has.

    Raises MilvusException when it answers neither yes nor no.
    """
    stranger = f"stranger_{secrets.token_hex(8)}:{secrets.token_hex(16)}"
    try:
        MilvusClient(endpoint.uri, token=stranger, timeout=_CONNECT_CAP_S, dedicated=True).close()
    except MilvusException as error:
        cause = error.__cause__
        if isinstance(cause, grpc.RpcError) and cause.code() is grpc.StatusCode.UNAUTHENTICATED:
            return False
        raise
    return True


async def _no_second_try(error: Exception) -> bool:
    raise error


def _no_second_try_either(error: Exception) -> bool:
    raise error


def client_arguments(endpoint: Endpoint) -> dict[str, Any]:
    """How every client of an endpoint is made, also the ones that a framework makes."""
    return {
        "uri": endpoint.uri,
        "token": endpoint.token,
        "timeout": _CONNECT_CAP_S,
        "dedicated": True,
        "grpc_options": _CHANNEL,
    }


def retry_nothing(reader: AsyncMilvusClient, writer: MilvusClient) -> None:
    """Of two clients that are connected: their first error counts.

    With a timeout pymilvus retries until it is over, whatever retry_times says, and reconnects on its own.
    This hook is asked before each retry; raising ends the loop with the first error.
    """
    reader._handler._on_rpc_error = _no_second_try
    writer._handler._on_rpc_error = _no_second_try_either


async def _open_writer(endpoint: Endpoint) -> MilvusClient:
    """Connects in a thread, as the constructor blocks; one that comes too late is closed right there."""
    turn = threading.Lock()
    abandoned = False

    def connect() -> MilvusClient:
        client = MilvusClient(**client_arguments(endpoint))
        with turn:
            if abandoned:
                client.close()
            made.append(client)
        return client

    made: list[MilvusClient] = []
    try:
        return await anyio.to_thread.run_sync(connect, abandon_on_cancel=True)
    except asyncio.CancelledError:
        with turn:
            abandoned = True
            for client in made:
                client.close()
        raise


class Connection:
    """Two clients of one endpoint: one for the event loop's reads, one for writes in threads."""

    def __init__(self, endpoint: Endpoint, reader: AsyncMilvusClient, writer: MilvusClient) -> None:
        self.endpoint = endpoint
        self.reader = reader
        self.writer = writer
        self.version = ""
        self.layout: MilvusLayout
        self.closed = False
        #: (collection, revision) pairs seen to be there through this connection
        self.revisions: set[tuple[str, str]] = set()

    @classmethod
    async def open(
        cls, endpoint: Endpoint, layout_for: Callable[[str], MilvusLayout] = lite_layout
    ) -> "Connection":
        """Connects both clients and asks for the version, once.

        Raises VectorStoreUnavailable, also when the server refuses the token.
        """
        with translated():
            writer = await _open_writer(endpoint)
            reader = AsyncMilvusClient(**client_arguments(endpoint))
            connection = cls(endpoint, reader, writer)
            try:
                await uninterrupted(reader.__aenter__())
                retry_nothing(reader, writer)
                version = await uninterrupted(reader.get_server_version(timeout=_CONNECT_CAP_S))
                connection.version = str(version)
                connection.layout = layout_for(connection.version)
            except BaseException:
                await connection.aclose()
                raise
        return connection

    async def aclose(self) -> None:
        """Closes both clients; shielded and bounded, as it runs in cleanups."""
        self.closed = True
        with anyio.move_on_after(_CLOSE_CAP_S, shield=True):
            await self.reader.close()
            await anyio.to_thread.run_sync(self.writer.close, abandon_on_cancel=True)


class Connector:
    """The one connection of a store, replaced when ``endpoint`` names another server.

    ``endpoint`` is asked before each call and raises VectorStoreUnavailable while there is none.
    """

    def __init__(self, endpoint: Callable[[], Endpoint], layout_for: Callable[[str], MilvusLayout]) -> None:
        self._endpoint = endpoint
        self._layout_for = layout_for
        self._connection: Connection | None = None
        self._opening: asyncio.Task[Connection] | None = None

    async def connected(self) -> Connection:
        """Raises VectorStoreUnavailable."""
        endpoint = self._endpoint()
        if self._connection is not None and self._connection.endpoint == endpoint:
            return self._connection
        if self._opening is None or self._opening.done():
            # A task of its own: connecting may take longer than one caller's deadline, and the next
            # caller should find it done.
            self._opening = asyncio.create_task(self._open(endpoint))
            self._opening.add_done_callback(lambda task: task.cancelled() or task.exception())
        connection = await uninterrupted(asyncio.shield(self._opening))
        if connection.endpoint != endpoint:
            raise VectorStoreUnavailable()
        return connection

    @property
    def layout(self) -> MilvusLayout | None:
        """Of the server connected to; None while there is none."""
        return self._connection.layout if self._connection else None

    def forget(self, collection: str, kb_revision: str) -> None:
        """The revision is about to be dropped: the next read looks again."""
        if self._connection is not None:
            self._connection.revisions.discard((collection, kb_revision))

    async def aclose(self) -> None:
        if self._opening is not None:
            _, late = await asyncio.wait([self._opening], timeout=_CLOSE_CAP_S)
            for opening in late:
                opening.cancel()
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.aclose()

    async def _open(self, endpoint: Endpoint) -> Connection:
        stale, self._connection = self._connection, None
        if stale is not None:
            await stale.aclose()
        self._connection = await Connection.open(endpoint, self._layout_for)
        return self._connection
