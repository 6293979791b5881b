"""The embeddings adapter against the scripted model server, over real sockets."""

import asyncio
import contextlib
import json
import logging
import math
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import anyio
import pytest

from gateway.access.classes import Acl
from gateway.adapters.embedded.calibration import load_calibration
from gateway.adapters.embedded.embedder import SPACE
from gateway.adapters.memory.catalog import MemoryCatalog
from gateway.adapters.memory.objects import MemoryObjects
from gateway.adapters.memory.vectors import MemoryVectors
from gateway.adapters.openai.embedding import OpenAIEmbedder, space_of
from gateway.cli import app
from gateway.context import Deadline
from gateway.errors import (
    ConfigurationError,
    DeadlineExceeded,
    EmbedderUnavailable,
    EmbeddingSpaceMismatch,
)
from gateway.ingest.task import TaskState
from gateway.retrieval.embedding import Vector
from loadtest.model_stub import ModelStub, serve_stub
from loadtest.stub_embedding import vectors as bundled_vectors
from tests.integration.import_world import Clock, ImportWorld

NAME = "stub-embedder"
SECRET = "sk-very-secret"
LONG_MS = 60_000
TEXTS = ["how are refunds paid?", "退款多久到账 😀", "rockets burn oxygen"]


def embedder_at(base_url: str, name: str = NAME, api_key: str | None = SECRET, **more: Any) -> OpenAIEmbedder:
    fields: dict[str, Any] = {"max_sensitivity": 1, "connect_cap_ms": 5000, "dimension": 256, **more}
    return OpenAIEmbedder(base_url, name, api_key, **fields)


@asynccontextmanager
async def embedding(base_url: str, name: str = NAME, **more: Any) -> AsyncIterator[OpenAIEmbedder]:
    embedder = embedder_at(base_url, name, **more)
    try:
        yield embedder
    finally:
        await embedder.aclose()


@asynccontextmanager
async def scripted(**script: Any) -> AsyncIterator[tuple[ModelStub, OpenAIEmbedder]]:
    """A server that plays this for NAME, and an embedder in front of it."""
    async with serve_stub() as stub, embedding(stub.base_url) as embedder:
        stub.script_model(NAME, **script)
        yield stub, embedder


async def embed(embedder: OpenAIEmbedder, texts: list[str] = TEXTS, ms: float = LONG_MS) -> list[Vector]:
    with anyio.fail_after(20):
        return await embedder.embed(texts, Deadline.after(ms))


async def closed(stub: ModelStub, calls: int = 1) -> None:
    """Returns when the server has seen the end of that many calls."""
    with anyio.fail_after(5):
        await stub.until(lambda s: sum(call.closed_at is not None for call in s.calls) >= calls)


@pytest.mark.parametrize("script", [{}, {"vectors": "reordered"}, {"vectors": "long"}])
async def test_vectors_come_in_the_order_of_their_texts_and_with_unit_length(script: dict[str, Any]) -> None:
    """By their index, however the server sorts them and however long it makes them."""
    wanted = await bundled_vectors(TEXTS)
    async with scripted(**script) as (_, embedder):
        found = await embed(embedder)
    for vector, row in zip(found, wanted, strict=True):
        assert vector == pytest.approx(row, abs=1e-6)
        assert math.hypot(*vector) == pytest.approx(1, abs=1e-5)


async def test_packed_vectors_are_the_same_to_the_bit() -> None:
    """Base64, which some servers send unasked; and unit vectors aren't touched."""
    async with scripted(base64=True) as (_, embedder):
        assert await embed(embedder) == [tuple(row) for row in await bundled_vectors(TEXTS)]


async def test_many_texts_go_in_batches_and_large_answers_come_back_whole() -> None:
    """A call takes at most ``batch`` texts, since servers limit it."""
    texts = [f"text number {number}" for number in range(70)]
    async with serve_stub() as stub, embedding(stub.base_url, batch=32) as embedder:
        found = await embed(embedder, texts)
        assert [len(call.user_message.splitlines()) for call in stub.calls] == [32, 32, 6]
        assert stub.accepted == 1
    assert found == [tuple(row) for row in await bundled_vectors(texts)]


@pytest.mark.parametrize(
    ("fault", "packed"),
    [
        *((fault, True) for fault in ("nan", "infinity", "zero")),
        *((fault, False) for fault in ("nan", "infinity", "zero", "words")),
        *((fault, False) for fault in ("fewer", "more", "duplicated", "unnumbered")),
        *((fault, False) for fault in ("garbage", "huge", "cut")),
    ],
)
async def test_what_is_no_vector_for_each_text_is_unavailable(fault: str, packed: bool) -> None:
    """Whatever is wrong with it: nothing of it is used, and the server isn't asked again."""
    async with scripted(vectors=fault, base64=packed) as (stub, embedder):
        with pytest.raises(EmbedderUnavailable) as failed:
            await embed(embedder)
        await closed(stub)
        assert len(stub.calls) == 1
        assert failed.value.detail
        stub.script_model(NAME)
        assert len(await embed(embedder)) == len(TEXTS)


@pytest.mark.parametrize("packed", [False, True])
async def test_another_dimension_is_another_space(packed: bool) -> None:
    """No vector is cut or filled up."""
    async with scripted(vectors="wrong_dimension", base64=packed) as (_, embedder):
        with pytest.raises(EmbeddingSpaceMismatch, match="255 numbers, configured are 256"):
            await embed(embedder)


@pytest.mark.parametrize(
    ("status", "retry_after", "wait_ms", "says"),
    [
        (429, "2", 2000, "429"),
        (503, "0.5", 500, "503"),
        (429, "soon", None, "429"),
        (500, None, None, "500"),
        (400, None, None, "400"),
        (401, None, None, "refuses the configured key"),
        (403, None, None, "refuses the configured key"),
        (404, None, None, "no such path or model"),
    ],
)
async def test_a_refusal_is_unavailable_with_its_waiting_time(
    status: int, retry_after: str | None, wait_ms: int | None, says: str
) -> None:
    """An operator sees what to mend, and neither the server's words nor the key."""
    body = {"error": {"message": f"private words {SECRET}"}}
    async with scripted(error_before={"status": status, "body": body, "retry_after": retry_after}) as (
        stub,
        embedder,
    ):
        with pytest.raises(EmbedderUnavailable) as failed:
            await embed(embedder)
        assert (len(stub.calls), embedder.retried) == (1, 0)
    assert says in failed.value.detail
    assert failed.value.retry_after_ms == wait_ms
    assert "private" not in str(failed.value)
    assert SECRET not in f"{failed.value!r} {failed.value.detail}"


async def test_a_redirect_is_not_followed() -> None:
    """The texts go to the configured endpoint or nowhere."""
    async with serve_stub() as elsewhere:
        location = f"{elsewhere.base_url}/embeddings"
        async with scripted(error_before={"status": 307, "location": location}) as (_, embedder):
            with pytest.raises(EmbedderUnavailable, match="307"):
                await embed(embedder)
        assert elsewhere.calls == []


@pytest.mark.parametrize("script", [{"header_delay_ms": LONG_MS}, {"vectors": "slow_body"}])
async def test_a_slow_answer_ends_with_the_deadline(script: dict[str, Any]) -> None:
    """Before the headers and inside the body; the call is closed, and the next one works."""
    async with scripted(**script) as (stub, embedder):
        with pytest.raises(DeadlineExceeded) as expired:
            await embed(embedder, ms=300)
        await closed(stub)
        assert (expired.value.stage, stub.calls[0].reason) == ("embedding", "client_gone")
        stub.script_model(NAME)
        assert len(await embed(embedder)) == len(TEXTS)


async def test_without_time_left_nothing_is_sent() -> None:
    """Not even a connection is made."""
    async with scripted() as (stub, embedder):
        with pytest.raises(DeadlineExceeded):
            await embed(embedder, ms=0)
        assert stub.accepted == 0


@pytest.mark.parametrize(
    "script", [{"header_delay_ms": LONG_MS}, {"vectors": "slow_body"}, {"vectors": "huge"}]
)
@pytest.mark.parametrize("by", ["task", "scope"])
async def test_a_cancel_closes_the_call_on_the_wire(script: dict[str, Any], by: str) -> None:
    """Before the headers, in the middle of the body, and while too much of it comes."""
    scope = anyio.CancelScope()

    async def asker() -> None:
        with scope:
            await embed(embedder)

    async with scripted(**script) as (stub, embedder):
        task = asyncio.create_task(asker())
        with anyio.fail_after(10):
            await stub.until(lambda s: len(s.calls) == 1)
        if by == "task":
            task.cancel()
        else:
            scope.cancel()
        await closed(stub)
        await asyncio.wait([task], timeout=5)
        assert task.done()
        assert stub.calls[0].reason == "client_gone"


async def test_after_100_cancels_at_once_the_pool_is_usable() -> None:
    """Every call is closed, and as many new ones run."""
    async with scripted(header_delay_ms=LONG_MS) as (stub, embedder):
        tasks = [asyncio.create_task(embed(embedder, ["a"])) for _ in range(100)]
        with anyio.fail_after(15):
            await stub.until(lambda s: len(s.calls) == 100)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=5)
        await closed(stub, 100)
        assert {call.reason for call in stub.calls} == {"client_gone"}
        stub.script_model(NAME)
        found = await asyncio.gather(*(embed(embedder, ["a"]) for _ in range(100)))
        assert all(rows == found[0] for rows in found)


async def test_an_endpoint_that_cannot_be_reached_is_unavailable() -> None:
    """Nobody listens; or a listener whose queue is full, which only the connect cap ends."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        async with embedding(f"http://127.0.0.1:{port}/v1") as embedder:
            with pytest.raises(EmbedderUnavailable, match="no connection"):
                await embed(embedder)
            assert await embedder.ping() is False
        unused.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        with contextlib.ExitStack() as stack:
            for filler in fillers:
                stack.enter_context(filler)
                filler.setblocking(False)
                filler.connect_ex(("127.0.0.1", port))
            async with embedding(f"http://127.0.0.1:{port}/v1", connect_cap_ms=200) as embedder:
                with pytest.raises(EmbedderUnavailable, match="in time"):
                    await embed(embedder)


@pytest.mark.parametrize(
    "failure", [{"error_before": {"status": 429, "retry_after": "0.01"}}, {"vectors": "cut"}]
)
async def test_an_import_tries_again_what_failed_in_passing(failure: dict[str, Any]) -> None:
    """Too many requests or a broken connection; every further try is counted."""
    async with serve_stub() as stub, embedding(stub.base_url, retries=3) as embedder:
        stub.script_model(NAME, **failure)
        async with anyio.create_task_group() as group:

            async def mend() -> None:
                await stub.until(lambda s: len(s.calls) == 2)
                stub.script_model(NAME)

            group.start_soon(mend)
            assert len(await embed(embedder)) == len(TEXTS)
        assert embedder.retried == len(stub.calls) - 1 == 2


async def test_an_import_gives_up_after_its_tries() -> None:
    """With the last failure."""
    async with serve_stub() as stub, embedding(stub.base_url, retries=2) as embedder:
        stub.script_model(NAME, error_before={"status": 503})
        with pytest.raises(EmbedderUnavailable):
            await embed(embedder)
        assert (len(stub.calls), embedder.retried) == (3, 2)


@pytest.mark.parametrize(
    "failure",
    [
        {"error_before": {"status": 401}},
        {"error_before": {"status": 400}},
        {"vectors": "nan"},
        {"error_before": {"status": 429, "retry_after": "3600"}},
    ],
)
async def test_what_does_not_pass_in_time_is_not_tried_again(failure: dict[str, Any]) -> None:
    """A refused key stays refused, and nobody sleeps past the deadline for a server's Retry-After."""
    async with serve_stub() as stub, embedding(stub.base_url, retries=3) as embedder:
        stub.script_model(NAME, **failure)
        with pytest.raises(EmbedderUnavailable):
            await embed(embedder)
        assert (len(stub.calls), embedder.retried) == (1, 0)


@pytest.mark.parametrize("asked", [False, True])
async def test_the_dimension_is_sent_only_when_that_is_wanted(asked: bool) -> None:
    """Most servers refuse the field for models that can't cut their vectors."""
    dimension = 64 if asked else 256
    async with (
        serve_stub() as stub,
        embedding(stub.base_url, dimension=dimension, send_dimension=asked) as embedder,
    ):
        assert {len(vector) for vector in await embed(embedder)} == {dimension}
        assert stub.calls[0].asked == (["dimensions"] if asked else []) + ["input", "model"]


@pytest.mark.parametrize(("key", "header"), [(SECRET, f"Bearer {SECRET}"), (None, None)])
async def test_only_the_configured_key_is_sent_and_nothing_is_logged(
    key: str | None, header: str | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A key in the SDK's own variable belongs to another endpoint; logs show neither key nor text."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-somebody-else")
    with caplog.at_level(logging.DEBUG):
        async with serve_stub() as stub, embedding(stub.base_url, api_key=key) as embedder:
            await embed(embedder)
            assert await embedder.ping() is True
            assert stub.calls[0].authorization == header
            assert repr(embedder) == "OpenAIEmbedder(name='stub-embedder', dimension=256)"
    assert [record for record in caplog.records if record.name.startswith("aiohttp")] == []
    assert TEXTS[0] not in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    ("base_url", "key"),
    [
        *((url, None) for url in ("", "ftp://host/v1", "http://", "http://name:password@host/v1")),
        *(("http://host/v1", key) for key in ("a\nb", "", "schlüssel")),
    ],
)
def test_a_url_or_key_that_cannot_work_is_refused(base_url: str, key: str | None) -> None:
    """At the start, not in the first question; and the message doesn't show it."""
    with pytest.raises(ConfigurationError) as refused:
        embedder_at(base_url, api_key=key)
    assert "password@" not in refused.value.detail


def test_a_space_is_named_after_its_model_and_no_two_share_a_name() -> None:
    """Nor a collection; not when names read alike, nor when only the dimension differs."""
    names = [
        "BAAI/bge-m3",
        "baai-bge-m3",
        "BAAI_bge_m3",
        "bge m3",
        "模型",
        "模型二",
        "",
        "a" * 300,
        "a" * 301,
    ]
    spaces = [space_of(name, dimension) for name in names for dimension in (256, 1024)]
    assert len({space.space_id for space in spaces}) == len(spaces)
    assert len({space.collection.lower() for space in spaces}) == len(spaces)
    assert spaces[1].space_id.startswith("baai-bge-m3-1024-")
    assert spaces[1].collection == f"chunks_{spaces[1].space_id.replace('-', '_')}"
    assert all(len(space.space_id) < 80 for space in spaces)
    assert (spaces[0].model, spaces[0].dimension) == ("BAAI/bge-m3", 256)


def test_a_space_id_never_changes() -> None:
    """It names collections, vector files and releases that are already there."""
    assert space_of("BAAI/bge-m3", 1024).space_id == "baai-bge-m3-1024-15fc4257d3b0"


async def test_an_endpoint_that_serves_the_bundled_model_makes_the_bundled_space() -> None:
    """So that a deployment can move its embedder out of the process without a new index."""
    async with serve_stub() as stub, embedding(stub.base_url, SPACE.model) as embedder:
        assert embedder.space == SPACE
        assert await embed(embedder) == [tuple(row) for row in await bundled_vectors(TEXTS)]
    assert space_of(SPACE.model, 128) != SPACE


async def test_the_calibration_command_fits_the_models_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Embedder and reranker of the settings, with their keys, into a file that a process of that space starts
    with: thresholds for the reranker's order, and for the one that counts when it is skipped.
    """
    topics = ["refund money customer", "rocket oxygen engine", "bread flour oven", "violin string bow"]
    labelled = {
        "passages": [{"id": i, "title": t.split()[0], "text": f"All of {t}."} for i, t in enumerate(topics)],
        "questions": [
            {"question": f"What has {word} to do with it?", "passage": i, "answerable": True}
            for i, topic in enumerate(topics)
            for word in topic.split()
        ],
    }
    (tmp_path / "toy.json").write_text(json.dumps(labelled), encoding="utf-8")
    fit = tmp_path / "fit"
    async with serve_stub() as stub:
        in_force = {
            "EMBEDDING_BASE_URL": stub.base_url,
            "EMBEDDING_NAME": NAME,
            "EMBEDDING_DIMENSION": "256",
            "EMBEDDING_API_KEY": SECRET,
            "RERANK_URL": f"{stub.base_url}/rerank",
            "RERANK_NAME": "judge",
            "RERANK_API_KEY": SECRET,
        }
        for name, value in in_force.items():
            monkeypatch.setenv(f"GATEWAY_{name}", value)
        options = ["eval", "--data", str(tmp_path), "--calibrate", str(fit)]
        await asyncio.to_thread(app, options, standalone_mode=False)
        assert {call.authorization for call in stub.calls} == {f"Bearer {SECRET}"}
    printed = json.loads(capsys.readouterr().out)
    written = load_calibration(fit, space_of(NAME, 256))
    assert json.loads(json.dumps(asdict(written))) == printed["written"]
    assert printed["space"] == space_of(NAME, 256).space_id
    assert [gate.reranker for gate in written.gates] == ["", "endpoint/judge/title-breadcrumb-content/1"]


async def test_text_too_sensitive_for_the_endpoint_never_reaches_it() -> None:
    """The document fails with a reason, the others are imported; nothing of it is in the server's log."""
    clock = Clock()
    world = ImportWorld(MemoryCatalog(clock), MemoryVectors(), MemoryObjects(), clock, real=False)
    acl = Acl.parse(["group:staff"], [])
    async with serve_stub() as stub, embedding(stub.base_url, max_sensitivity=1) as embedder:
        worker = world.worker(embedder=embedder)
        secret = await world.accept({"plan": "The merger is secret."}, acl=acl, sensitivity=2, activate=False)
        failed = await world.work(secret, worker)
        open_one = await world.accept({"menu": "Lunch is at noon."}, acl=acl, sensitivity=1, activate=False)
        imported = await world.work(open_one, worker)
        said = [call.user_message for call in stub.calls]
    assert (failed.state, imported.state) == (TaskState.FAILED, TaskState.SUCCEEDED)
    (document,) = failed.documents
    assert document.error is not None
    assert document.error.startswith("too_sensitive: ")
    assert len(said) == 1
    assert "Lunch" in said[0]
