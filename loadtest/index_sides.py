"""What the index check runs against: a Milvus server, its own or one at an address, and a Lite child."""

import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import psutil
from pymilvus import MilvusClient

from gateway.adapters.milvus.client import Endpoint
from gateway.adapters.milvus.layout import MilvusLayout, server_layout
from gateway.adapters.milvus.lite import LiteChild
from gateway.adapters.milvus.store import MilvusStore
from loadtest.index_data import Corpus

#: how the server is asked to index vectors, the production way first
INDEXES = ("HNSW", "FLAT", "IVF_FLAT")
#: Milvus' own advice is 4 * sqrt(rows) lists a segment; 100k rows are one to two segments
_IVF_LISTS = 1024
_IVF_PROBES = 64
_ROWS_A_WRITE = 2_000
#: a million rows take a busy machine tens of minutes
_INDEX_PATIENCE_S, _PATIENCE_A_ROW_S = 300.0, 0.005
_LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class Side:
    """A store under check, ``index`` that of its vectors. ``pid`` and ``folder`` are None for a server that
    somebody else runs.
    """

    name: str
    store: MilvusStore
    uri: str
    pid: int | None
    folder: Path | None
    index: str = "FLAT"

    def usage(self) -> dict[str, float]:
        """Resident memory of its process and size of its data, in MB."""
        found: dict[str, float] = {}
        if self.pid is not None:
            found["rss_mb"] = round(psutil.Process(self.pid).memory_info().rss / 1e6, 1)
        if self.folder is not None:
            sizes = (path.stat().st_blocks * 512 for path in self.folder.rglob("*") if path.is_file())
            found["disk_mb"] = round(sum(sizes) / 1e6, 1)
        return found

    def cpu_s(self) -> float:
        """Of its process so far; 0 when that isn't ours."""
        if self.pid is None:
            return 0.0
        times = psutil.Process(self.pid).cpu_times()
        return times.user + times.system


@contextlib.asynccontextmanager
async def server_side(
    folder: Path, uri: str | None, index: str = INDEXES[0], *, search_batch: int = 16
) -> AsyncIterator[Side]:
    """A server at ``uri``, else one of the package ``milvus`` that ends with this; ``folder`` is empty."""
    with contextlib.ExitStack() as stack:
        pid = None
        if uri is None:
            from tests.harness.milvus_server import milvus_server

            server = stack.enter_context(milvus_server(folder))
            uri, pid = server.uri, server.pid
        store = MilvusStore(
            lambda: Endpoint(uri), lambda version: indexed_layout(version, index), search_batch=search_batch
        )
        try:
            yield Side("server", store, uri, pid, folder if pid else None, index)
        finally:
            await store.aclose()


def indexed_layout(version: str, index: str) -> MilvusLayout:
    """The production layout, but for the index of the vectors."""
    layout = server_layout(version)
    if index == layout.dense_index:
        return layout
    build, search = ({}, {}) if index == "FLAT" else ({"nlist": _IVF_LISTS}, {"nprobe": _IVF_PROBES})
    return replace(layout, dense_index=index, dense_build=build, dense_search=search)


@contextlib.asynccontextmanager
async def lite_side(folder: Path, *, search_batch: int = 16) -> AsyncIterator[Side]:
    """A Lite child as the embedded deployment has it."""
    child = LiteChild(folder)
    await child.start()
    try:
        store = MilvusStore(child.endpoint, search_batch=search_batch)
        try:
            yield Side("lite", store, child.endpoint().uri, child.pid, folder)
        finally:
            await store.aclose()
    finally:
        await child.aclose()


async def written(side: Side, corpus: Corpus) -> dict[str, Any]:
    """Writes and seals every revision through the store; how long each part of it took, in seconds."""
    before = side.usage()
    await side.store.prepare(corpus.space)
    making_s = writing_s = sealing_s = 0.0
    for revision, numbers in corpus.revisions():
        for start in range(0, len(numbers), _ROWS_A_WRITE):
            marks = [time.monotonic()]
            rows = corpus.rows(numbers[start : start + _ROWS_A_WRITE])
            marks.append(time.monotonic())
            await side.store.write(corpus.space, revision, rows)
            marks.append(time.monotonic())
            making_s += marks[1] - marks[0]
            writing_s += marks[2] - marks[1]
        began = time.monotonic()
        await side.store.seal(corpus.space, revision)
        sealing_s += time.monotonic() - began
    indexing_s = await anyio.to_thread.run_sync(_indexed, side, corpus)
    return {
        "rows": corpus.size,
        "making_s": round(making_s, 1),
        "writing_s": round(writing_s, 1),
        "rows_per_s": round(corpus.size / writing_s),
        "sealing_s": round(sealing_s, 1),
        "then_indexing_s": round(indexing_s, 1),
        "before": before,
        "after": side.usage(),
    }


def _unindexed(index: Mapping[str, Any]) -> bool:
    """Segments that were joined stay pending for ever in 2.3.5, long after all rows are indexed."""
    pending, rows = (int(index.get(name, 0)) for name in ("pending_index_rows", "total_rows"))
    return pending > 0 and int(index.get("indexed_rows", 0)) < rows


def _indexed(side: Side, corpus: Corpus) -> float:
    """Waits until every flushed row is in its index; how many seconds that took."""
    if side.name != "server":
        return 0.0
    began, patience_s = time.monotonic(), _INDEX_PATIENCE_S + corpus.size * _PATIENCE_A_ROW_S
    client = MilvusClient(side.uri, dedicated=True)
    try:
        while _unindexed(client.describe_index(corpus.space.collection, "vector")):
            if time.monotonic() - began > patience_s:
                raise TimeoutError("the server doesn't finish its index")
            time.sleep(_LOOK_S)
    finally:
        client.close()
    return time.monotonic() - began
