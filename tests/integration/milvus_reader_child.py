"""Another process's questions: for each revision named on stdin, how many rows each route finds at once."""

import asyncio
import json
import sys

from gateway.adapters.milvus.client import Endpoint
from gateway.adapters.milvus.layout import server_layout
from gateway.adapters.milvus.store import MilvusStore
from tests.contract.vector_world import query, seen, soon


async def answer(uri: str) -> None:
    """One line of JSON for each line read; the first says that it is connected."""
    store = MilvusStore(lambda: Endpoint(uri), server_layout, may_create=False)
    await store.ping(soon())
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while line := await asyncio.to_thread(sys.stdin.readline):
        revision, chunk_ids = json.loads(line)
        found = await seen(store, query(revision=revision), chunk_ids)
        sys.stdout.write(json.dumps([len(ids) for ids in found]) + "\n")
        sys.stdout.flush()
    await store.aclose()


if __name__ == "__main__":
    asyncio.run(answer(sys.argv[1]))
