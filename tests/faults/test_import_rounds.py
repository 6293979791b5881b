"""Killed or frozen at random moments, an installation loses no document, doubles no passage, releases nothing
early, and keeps no row that no release owns.
"""

import contextlib
import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from gateway.adapters.embedded.embedder import BundledEmbedder
from gateway.adapters.milvus.client import Endpoint
from gateway.adapters.milvus.layout import server_layout
from gateway.adapters.milvus.lite import LiteChild
from gateway.adapters.milvus.store import MilvusStore
from gateway.adapters.openai.embedding import space_of
from gateway.errors import VectorStoreUnavailable
from tests.faults import import_rounds
from tests.faults.conftest import Note
from tests.faults.import_rounds import Ledger
from tests.harness.issuer import serving_issuer
from tests.harness.process import eventually
from tests.harness.sides import Servers, embedding_endpoint

if TYPE_CHECKING:
    from tests.harness.milvus_server import MilvusServer
    from tests.harness.postgres import PostgresServer
    from tests.harness.redis_server import RedisServer
    from tests.harness.s3 import S3Server

SHORT, FULL = 2, 100
SEED = 20
#: revisions are taken away about as soon as nothing can need them
SOON = {
    "GATEWAY_ROLLBACK_RELEASES": "1",
    "GATEWAY_ROLLBACK_WINDOW_S": "30",
    "GATEWAY_ANSWER_CACHE_TTL_S": "0",
    "GATEWAY_RECLAIM_POLL_S": "1",
}
#: every release there ever was, with the number of its documents that aren't ready
RELEASES = """
SELECT kb_revision, state, chunks, barrier, activated_at,
  (SELECT count(*) FROM release_documents JOIN document_versions
    ON document_versions.document_id = release_documents.document_id
    AND document_versions.version = release_documents.version
    WHERE release_documents.release_id = releases.release_id AND document_versions.state <> 'READY')
FROM releases
"""
#: states whose rows may be stored
_KEPT = {"ACTIVE", "RETIRED", "READY"}

counts = pytest.mark.parametrize("count", [SHORT, pytest.param(FULL, marks=pytest.mark.soak)])


@pytest.mark.fault("FLT-4")
@counts
async def test_serve_with_its_children(tmp_path: Path, count: int, evidence: Note) -> None:
    """On SQLite and Lite: the process itself, its store, its reader and its embedder of documents."""
    ledger = Ledger.seeded(SEED)
    async with import_rounds.serving(tmp_path, **SOON) as hit:
        hits = await import_rounds.run_rounds(hit, count, ledger)
        await import_rounds.settle(hit.gateway, ledger)
        data = hit.gateway.data_dir
        assert await hit.gateway.stop() == 0
    with contextlib.closing(sqlite3.connect(data / "catalog.db")) as connection:
        releases = connection.execute(RELEASES).fetchall()
    lite = LiteChild(data / "milvus")
    await lite.start()
    store = MilvusStore(lite.endpoint)
    try:
        stored = await store.revisions((await BundledEmbedder.load()).space)
    finally:
        await store.aclose()
        await lite.aclose()
    check_rows(releases, stored)
    assert set(stored) <= {revision for revision, *_ in releases}
    evidence(told("serve on SQLite", hits, ledger, releases))


@pytest.fixture(scope="module")
def side(
    postgres: "PostgresServer", milvus: "MilvusServer", redis: "RedisServer", s3: "S3Server"
) -> Iterator[Servers]:
    with serving_issuer() as issuer, embedding_endpoint() as embedding_url:
        yield Servers(postgres, milvus, redis, s3, issuer, embedding_url)


@pytest.mark.fault("FLT-5")
@pytest.mark.parametrize("count", [pytest.param(FULL, marks=pytest.mark.soak)])
async def test_three_workers(tmp_path: Path, count: int, side: Servers, evidence: Note) -> None:
    """On PostgreSQL and a Milvus server: whichever worker is at it, another one goes on."""
    ledger = Ledger.seeded(SEED)
    async with import_rounds.workers(tmp_path, side, **SOON) as hit:
        hits = await import_rounds.run_rounds(hit, count, ledger)
        await import_rounds.settle(hit.gateway, ledger)
        url = hit.env["GATEWAY_DATABASE_URL"]
        model, dimension = hit.env["GATEWAY_EMBEDDING_NAME"], int(hit.env["GATEWAY_EMBEDDING_DIMENSION"])
    connection = await asyncpg.connect(url.replace("+asyncpg", ""))
    try:
        releases = [tuple(row) for row in await connection.fetch(RELEASES)]
    finally:
        await connection.close()
    # 2.3.5 has acknowledged and stored some deletes that its reading side shows only once it loads again
    side.milvus.restart()
    endpoint = Endpoint(side.milvus.uri, "")
    store = MilvusStore(lambda: endpoint, server_layout)

    async def loaded() -> Mapping[str, int]:
        with contextlib.suppress(VectorStoreUnavailable):
            return await store.revisions(space_of(model, dimension))
        return {}

    try:
        stored = await eventually(loaded)
    finally:
        await store.aclose()
    check_rows(releases, stored)  # the collection holds other installations' revisions as well
    evidence(told("three workers on PostgreSQL", hits, ledger, releases))


def check_rows(releases: Sequence[Sequence[Any]], stored: Mapping[str, int]) -> None:
    """What may be read has exactly its rows and was looked at before; of all else nothing is stored."""
    for revision, state, chunks, barrier, activated_at, unready in releases:
        assert stored.get(revision, 0) == (chunks if state in _KEPT else 0), (revision, state)
        if activated_at is not None:
            assert (json.loads(barrier)["rows"], unready) == (chunks, 0), revision


def told(title: str, hits: Counter[str], ledger: Ledger, releases: Sequence[Sequence[Any]]) -> str:
    """The counts. That nothing was lost, doubled or left over has been asserted by now."""
    states = dict(sorted(Counter(state for _, state, *_ in releases).items()))
    faults = ", ".join(f"{count} {name}" for name, count in sorted(hits.items()))
    return (
        f"{title}: {hits.total()} rounds ({faults}); {len(ledger.texts)} documents, "
        f"{len(ledger.tasks)} tasks, {len(ledger.unsure)} uploads sent again; releases {states}; "
        "lost, doubled, early and orphaned: none"
    )
