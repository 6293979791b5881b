"""The scripted model server, over real sockets, in this process and in its own."""

import asyncio
import base64
import json
import signal
import struct
import sys
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from loadtest.model_stub import ModelStub, serve_stub
from loadtest.stub_script import Behaviour, json_text, tokens_of

EVIDENCE = (
    "<<EVIDENCE ab>>\npassage 1 (title: T (x); version: 1)\nRefunds take 7 days. More.\n\n"
    "passage 2 (title: U)\n退款需要七天。以后再说。\n<<END ab>>\n\nQuestion: how long?"
)


def ask(content: str, **more: Any) -> dict[str, Any]:
    return {"model": "stub", "messages": [{"role": "user", "content": content}], **more}


async def post(stub: ModelStub, path: str, body: Any) -> httpx2.Response:
    async with httpx2.AsyncClient(base_url=stub.url) as client:
        return await client.post(path, json=body)


async def test_the_default_reply_quotes_and_cites_the_first_passage() -> None:
    """Also when the title has parentheses."""
    async with serve_stub() as stub:
        reply = (await post(stub, "/v1/chat/completions", ask(EVIDENCE))).json()
    assert reply["choices"][0]["message"]["content"] == "Refunds take 7 days. [1]"
    assert stub.calls[0].reason == "finished"


def test_every_passage_can_be_echoed() -> None:
    """With its number; the tokens joined are the reply."""
    tokens = tokens_of(Behaviour(echo_citations=True), EVIDENCE)
    assert "".join(tokens) == "Refunds take 7 days. [1] 退款需要七天。 [2]"
    assert len(tokens) > 10


async def test_a_marker_in_the_message_changes_one_call() -> None:
    """And a behaviour by model name changes that model only."""
    async with serve_stub(reply="default") as stub:
        await post(stub, "/_script?model=other", {"reply": "by name"})
        replies = [
            await post(stub, "/v1/chat/completions", body)
            for body in (
                ask('x @@stub{"reply": "marked"}@@'),
                ask("x"),
                {**ask("x"), "model": "other"},
                ask('x @@stub{"repyl": 1}@@'),
            )
        ]
    said = [reply.json()["choices"][0]["message"]["content"] for reply in replies[:3]]
    assert said == ["marked", "default", "by name"]
    assert replies[3].status_code == 400


async def test_the_stream_has_usage_when_asked_and_ends_with_done() -> None:
    """As OpenAI's does."""
    async with serve_stub(tokens=["a", "b"], usage_counts=[3, 2]) as stub:
        body = ask("x", stream=True, stream_options={"include_usage": True})
        text = (await post(stub, "/v1/chat/completions", body)).text
    events = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert events[-1] == "[DONE]"
    assert json.loads(events[-2])["usage"] == {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    assert json.loads(events[-3])["choices"][0]["finish_reason"] == "stop"


def test_a_split_surrogate_pair_is_two_literals() -> None:
    """Joined as JSON they are the token again."""
    literals = list(json_text('a"😀b', Behaviour(split_surrogates=True)))
    assert literals == ['"a\\"\\ud83d"', '"\\ude00b"']


@pytest.mark.parametrize("script", [{"header_delay_ms": 60_000}, {"first_token_ms": 60_000}])
async def test_a_client_that_leaves_is_noticed_while_the_model_is_silent(script: dict[str, Any]) -> None:
    """Before the headers and before the first token."""
    async with serve_stub(**script) as stub:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(stub.url.rpartition(":")[2]))
        payload = json.dumps(ask("x", stream=True)).encode()
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(payload)
        )
        writer.write(payload)
        with anyio.fail_after(5):
            await stub.until(lambda s: len(s.calls) == 1)
            writer.close()
            await writer.wait_closed()
            await stub.until(lambda s: s.calls[0].closed_at is not None)
        assert stub.calls[0].reason == "client_gone"
        assert stub.calls[0].tokens == 0
    assert reader is not None


async def test_a_deaf_model_goes_on_and_the_log_says_so() -> None:
    """tokens_after_close counts what is wasted."""
    async with serve_stub(tokens=["a"] * 5, gate_after_tokens=2, ignore_close=True) as stub:
        async with (
            httpx2.AsyncClient(base_url=stub.url) as client,
            client.stream("POST", "/v1/chat/completions", json=ask("x", stream=True)),
        ):
            with anyio.fail_after(5):
                await stub.until(lambda s: s.calls[0].tokens == 2)
        with anyio.fail_after(5):
            await stub.until(lambda s: s.calls[0].closed_at is not None)
            stub.open_gate()
            await stub.until(lambda s: s.calls[0].tokens == 5)
        assert (stub.calls[0].reason, stub.calls[0].tokens_after_close) == ("client_gone", 3)


async def test_an_endless_body_ends_when_its_client_has_left() -> None:
    """Also when it is written without a pause: the stub's loop must hear of the end."""
    async with serve_stub() as stub:
        stub.script_model("stub-embedder", vectors="huge")
        body = json.dumps({"model": "stub-embedder", "input": ["x"]}).encode()
        head = b"POST /v1/embeddings HTTP/1.1\r\nhost: stub\r\ncontent-type: application/json\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", int(stub.url.rpartition(":")[2]))
        with anyio.fail_after(10):
            writer.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)
            await reader.readexactly(1_000_000)
            writer.transport.abort()
            await stub.until(lambda s: s.calls[0].closed_at is not None)
        assert stub.calls[0].reason == "client_gone"


async def test_embeddings_are_the_bundled_embedders() -> None:
    """As floats, and as base64 the way the SDK asks for them."""
    async with serve_stub() as stub:
        body = {"model": "stub-embedder", "input": ["refund", "退款"]}
        floats = (await post(stub, "/v1/embeddings", body)).json()["data"]
        packed = (await post(stub, "/v1/embeddings", {**body, "encoding_format": "base64"})).json()["data"]
    rows = [row["embedding"] for row in floats]
    assert [sum(x * x for x in row) for row in rows] == pytest.approx([1.0, 1.0], abs=1e-4)
    raw = base64.b64decode(packed[1]["embedding"])
    assert struct.unpack(f"<{len(raw) // 4}f", raw) == pytest.approx(rows[1], abs=1e-6)


async def test_the_server_runs_alone_and_stops_on_sigterm(tmp_path: Path) -> None:
    """With a ready file, a log over HTTP that can wait, and scripts."""
    ready = tmp_path / "ready.json"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "loadtest.model_stub",
        "--ready-file",
        str(ready),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        with anyio.fail_after(20):
            base_url = json.loads(await process.stdout.readline())["base_url"]
            url = base_url.removesuffix("/v1")
            async with httpx2.AsyncClient(base_url=url) as client:
                assert (await client.post("/_script", json={"reply": "scripted"})).status_code == 200
                assert (await client.post("/_script", json={"no_such": 1})).status_code == 400
                await client.post("/v1/chat/completions", json=ask("x"))
                log = (await client.get("/_log", params={"closed": 1})).json()
                assert [(call["kind"], call["reason"]) for call in log] == [("chat", "finished")]
                assert (await client.get("/v1/models")).json()["data"][0]["id"] == "stub"
                assert (await client.get("/healthz")).status_code == 200
                assert (await client.get("/nowhere")).status_code == 404
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0
        assert json.loads(ready.read_text())["base_url"] == base_url
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
