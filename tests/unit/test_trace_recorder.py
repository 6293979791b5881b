"""The recorder of traces: never in a request's way, bounded, and nothing is lost that could be kept."""

from collections.abc import Sequence

import anyio

from gateway.adapters.memory.catalog import MemoryCatalog
from gateway.errors import CatalogUnavailable
from gateway.observe.recorder import TraceRecorder
from gateway.observe.tracelog import TraceRecord

PATIENCE_S = 30


def record(number: int, tenant: str = "acme") -> TraceRecord:
    name = f"{number}"
    return TraceRecord(
        name, f"r{name}", 0.0, tenant, "ann", "search", "kb", "handbook", "rel", 1, "c", "q", "", "weak"
    )


class Store(MemoryCatalog):
    """Tells when something is stored; waits at a gate, and fails while it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []
        self.asked, self.stored, self.gate = anyio.Event(), anyio.Event(), anyio.Event()
        self.gate.set()
        self.down = False

    async def append_traces(self, records: Sequence[TraceRecord]) -> None:
        self.asked.set()
        await self.gate.wait()
        if self.down:
            raise CatalogUnavailable
        await super().append_traces(records)
        self.batches.append(len(records))
        self.stored.set()


def recorder(store: Store, dropped: list[int], size: int = 3) -> TraceRecorder:
    return TraceRecorder(store, size=size, on_drop=dropped.append, pause_s=0)


async def test_what_is_offered_is_stored_in_batches() -> None:
    """Beside whoever offers it."""
    store = Store()
    traces = recorder(store, [], size=1000)
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(traces.run)
            for number in range(3):
                traces.offer(record(number))
            await store.stored.wait()
            tasks.cancel_scope.cancel()
    assert store.batches == [3]
    assert await store.trace("acme", trace_id="2") == record(2)


async def test_beyond_its_size_traces_are_dropped_and_counted() -> None:
    """Whoever offers one never waits; size 0 keeps none and drops none."""
    dropped: list[int] = []
    traces = recorder(Store(), dropped)
    for number in range(5):
        traces.offer(record(number))
    assert dropped == [1, 1]
    assert traces.waiting("acme", trace_id="2") == record(2)
    assert traces.waiting("acme", trace_id="3") is None
    nothing = recorder(Store(), dropped, size=0)
    nothing.offer(record(9))
    assert nothing.waiting("acme", trace_id="9") is None
    assert dropped == [1, 1]


async def test_a_trace_that_waits_is_found_by_its_own_tenant_only() -> None:
    """By either id, also while it is being stored."""
    store = Store()
    store.gate = anyio.Event()
    traces = recorder(store, [])
    traces.offer(record(1))
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(traces.flush)
            await store.asked.wait()
            assert traces.waiting("acme", request_id="r1") == record(1)
            assert traces.waiting("acme", trace_id="1") == record(1)
            assert traces.waiting("acme", request_id="1") is None
            assert traces.waiting("globex", request_id="r1") is None
            store.gate.set()
    assert traces.waiting("acme", request_id="r1") is None


async def test_an_ending_process_stores_what_waits() -> None:
    """Also what it was just storing when it was told to end."""
    store = Store()
    store.gate = anyio.Event()
    traces = recorder(store, [], size=200)
    for number in range(120):
        traces.offer(record(number))
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(traces.run)
            await store.asked.wait()
            tasks.cancel_scope.cancel()
            store.gate.set()
    assert store.batches == [50, 50, 20]
    assert await store.trace("acme", trace_id="119") is not None


async def test_what_a_catalog_that_is_down_can_not_take_is_dropped_and_counted() -> None:
    """The next ones are stored again."""
    store, dropped = Store(), list[int]()
    traces = recorder(store, dropped)
    store.down = True
    traces.offer(record(1))
    traces.offer(record(2))
    await traces.flush()
    store.down = False
    traces.offer(record(3))
    await traces.flush()
    assert dropped == [2]
    assert [await store.trace("acme", trace_id=f"{n}") is not None for n in (1, 2, 3)] == [False, False, True]


async def test_a_flush_waits_for_what_is_being_stored() -> None:
    """Also when nothing else waits: whoever erases would else be before it."""
    store = Store()
    store.gate = anyio.Event()
    traces = recorder(store, [])
    traces.offer(record(1))
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(traces.run)
            await store.asked.wait()
            with anyio.move_on_after(0.01) as impatient:
                await traces.flush()
            assert impatient.cancelled_caught
            store.gate.set()
            await traces.flush()
            assert store.batches == [1]
            tasks.cancel_scope.cancel()


async def test_a_cancel_beside_a_flush_loses_nothing_and_stores_nothing_twice() -> None:
    """Neither what the cancelled one was storing nor what came meanwhile."""
    store = Store()
    store.gate = anyio.Event()
    traces = recorder(store, [])
    traces.offer(record(1))
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as running, anyio.create_task_group() as flushing:
            running.start_soon(traces.run)
            await store.asked.wait()
            traces.offer(record(2))
            flushing.start_soon(traces.flush)
            await anyio.wait_all_tasks_blocked()
            assert traces.waiting("acme", trace_id="1") == record(1)
            running.cancel_scope.cancel()
            store.gate.set()
    assert [await store.trace("acme", trace_id=f"{n}") for n in (1, 2)] == [record(1), record(2)]
    assert sum(store.batches) == 2
