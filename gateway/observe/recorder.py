"""The recorder: ended traces wait in a bounded queue and are stored in batches, beside the requests."""

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice

import anyio

from gateway.errors import GatewayError
from gateway.observe.logging import get_logger
from gateway.observe.tracelog import TraceRecord, TraceStore

#: traces in one short transaction
_BATCH = 50
#: between two of them: each write makes an embedded catalog forget what it remembers of the last reads
_PAUSE_S = 0.5
#: as long an ending process stores what it still has
_LAST_WORD_S = 2.0


class TraceRecorder:
    """Never makes a request wait: beyond ``size`` traces, and while the catalog is down, they are dropped.

    ``on_drop`` is told how many. ``size`` 0 keeps none.
    """

    def __init__(
        self, store: TraceStore, *, size: int, on_drop: Callable[[int], None], pause_s: float = _PAUSE_S
    ) -> None:
        self._store = store
        self._size = size
        self._on_drop = on_drop
        self._pause_s = pause_s
        self._queue: dict[str, TraceRecord] = {}
        self._storing: dict[str, TraceRecord] = {}
        self._turn = anyio.Lock()
        self._arrived = anyio.Event()
        self._log = get_logger("traces")

    def offer(self, record: TraceRecord) -> None:
        """Returns at once. While it waits, another record of the same trace takes its place."""
        if not self._size:
            return
        if len(self._queue) >= self._size and record.trace_id not in self._queue:
            self._on_drop(1)
            return
        self._queue[record.trace_id] = record
        self._arrived.set()

    def waiting(
        self, tenant: str, *, request_id: str | None = None, trace_id: str | None = None
    ) -> TraceRecord | None:
        """As ``TraceStore.trace``, among those that aren't stored yet."""
        waiting = chain(self._queue.values(), self._storing.values())
        return next(_named((one for one in waiting if one.tenant == tenant), request_id, trace_id), None)

    async def run(self) -> None:
        """Until cancelled; then what waits is stored, for a bounded time."""
        try:
            while True:
                await self._arrived.wait()
                await self._store_batch()
                await anyio.sleep(self._pause_s)
        finally:
            with anyio.move_on_after(_LAST_WORD_S, shield=True):
                await self.flush()

    async def flush(self) -> None:
        """Stores everything that waits now, and ends no sooner than what is being stored already."""
        for _ in range(1 + math.ceil((len(self._storing) + len(self._queue)) / _BATCH)):
            await self._store_batch()

    async def _store_batch(self) -> None:
        async with self._turn:
            batch = {trace_id: self._queue.pop(trace_id) for trace_id in [*islice(self._queue, _BATCH)]}
            if not self._queue:
                self._arrived = anyio.Event()
            if batch:
                await self._stored(batch)

    async def _stored(self, batch: dict[str, TraceRecord]) -> None:
        self._storing = batch
        try:
            await self._store.append_traces(list(batch.values()))
        except GatewayError as error:
            self._on_drop(len(batch))
            self._log.warning("traces.lost", code=error.code, count=len(batch))
        except BaseException:  # storing one twice changes nothing
            self._queue = batch | self._queue
            self._arrived.set()
            raise
        finally:
            self._storing = {}


def _named(
    records: Iterable[TraceRecord], request_id: str | None, trace_id: str | None
) -> Iterator[TraceRecord]:
    for record in records:
        if record.request_id == request_id or record.trace_id == trace_id:
            yield record
