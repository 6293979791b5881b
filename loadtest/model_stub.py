"""A scripted OpenAI-compatible model server: says what it is told, fails as told, and logs who left when.

``python -m loadtest.model_stub --port 0 --ready-file F`` runs it alone, ``serve_stub()`` inside a test.
POST /_script sets the default behaviour (``?model=NAME``: that of one model name); a ``@@stub{…}@@`` in the
user's message changes one call. GET /_log gives the calls (``?closed=N&timeout_ms=T`` waits for N closed
ones, ``?started=N`` for N begun); POST /_gate opens the gate; POST /_reset forgets log, scripts and gate.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from loadtest.stub_answer import Answer, Call
from loadtest.stub_embedding import Embedding, texts_of
from loadtest.stub_http import Exchange, StubServer
from loadtest.stub_moderation import Moderation, text_of
from loadtest.stub_rerank import Reranked, passages_of
from loadtest.stub_script import Behaviour, ScriptedError, marked_script

MODEL_NAMES = ("stub", "stub-embedder", "wordllama-l2-supercat")


class ModelStub:
    """The server's state, shared by its calls. ``base_url`` ends in ``/v1``."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.behaviour = Behaviour()
        self.by_model: dict[str, Behaviour] = {}
        self._throttled: Counter[str] = Counter()
        self._gate = asyncio.Event()
        self._changed = asyncio.Event()
        self._server: StubServer | None = None

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.port}"

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

    @property
    def accepted(self) -> int:
        """Connections accepted so far."""
        assert self._server is not None
        return self._server.accepted

    def script(self, **script: Any) -> None:
        """Sets the default behaviour; what isn't named is as in ``Behaviour()``."""
        self.behaviour = Behaviour().changed(script)
        self._throttled.clear()

    def script_model(self, name: str, **script: Any) -> None:
        """The behaviour of one model name, in every API; the default touches chat only."""
        self.by_model[name] = Behaviour().changed(script)
        del self._throttled[name]

    def open_gate(self) -> None:
        self._gate.set()

    async def until(self, condition: Callable[["ModelStub"], bool]) -> None:
        """Returns once the condition holds; looks at every change of the log."""
        while not condition(self):
            self._changed.clear()
            await self._changed.wait()

    def note(self) -> None:
        """Tells those in ``until`` that the log has changed."""
        self._changed.set()

    async def start(self, port: int = 0) -> None:
        self._server = await StubServer.listen(self._answer, port)

    async def close(self) -> None:
        if self._server is not None:
            await self._server.close()

    async def _answer(self, exchange: Exchange) -> None:
        url = urlsplit(exchange.target)
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        try:
            match exchange.method, url.path:
                case "POST", "/v1/chat/completions":
                    await self._chat(exchange)
                case "POST", "/v1/embeddings":
                    await self._embeddings(exchange)
                case "POST", "/v1/moderations":
                    await self._moderations(exchange)
                case "POST", "/v1/rerank":
                    await self._rerank(exchange)
                case _, "/v1/rerank":
                    exchange.answer_json(405, {"error": {"message": "POST only", "code": "bad_method"}})
                case "GET", "/v1/models":
                    models = [{"id": name, "object": "model", "owned_by": "stub"} for name in MODEL_NAMES]
                    exchange.answer_json(200, {"object": "list", "data": models})
                case "GET", "/healthz":
                    exchange.answer_json(200, {"status": "ok"})
                case _:
                    await self._control(exchange, url.path, query)
        except ValueError as error:
            exchange.answer_json(400, {"error": {"message": str(error), "code": "bad_stub_request"}})

    async def _control(self, exchange: Exchange, path: str, query: dict[str, str]) -> None:
        match exchange.method, path:
            case "GET", "/_log":
                await self._wait_for_log(query)
                exchange.answer_json(200, [asdict(call) for call in self.calls])
            case "POST", "/_script":
                script = json.loads(exchange.body)
                if "model" in query:
                    self.script_model(query["model"], **script)
                else:
                    self.script(**script)
                exchange.answer_json(200, {})
            case "POST", "/_gate":
                self.open_gate()
                exchange.answer_json(200, {})
            case "POST", "/_reset":
                self.calls, self.by_model = [], {}
                self.script()
                self._gate.clear()
                exchange.answer_json(200, {})
            case _:
                exchange.answer_json(404, {"error": {"message": "no such path", "code": "not_found"}})

    async def _wait_for_log(self, query: dict[str, str]) -> None:
        started, closed = int(query.get("started", 0)), int(query.get("closed", 0))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(float(query.get("timeout_ms", 5000)) / 1000):
                await self.until(
                    lambda stub: (
                        len(stub.calls) >= started
                        and sum(call.closed_at is not None for call in stub.calls) >= closed
                    )
                )

    def _begin(self, kind: str, exchange: Exchange, request: dict[str, Any]) -> Call:
        call = Call(len(self.calls) + 1, kind, str(request.get("model", "")), time.monotonic())
        call.authorization = exchange.headers.get("authorization")
        call.asked = sorted(request)

        def gone() -> None:
            call.closed("client_gone")
            self.note()

        exchange.on_gone = gone
        self.calls.append(call)
        self.note()
        return call

    async def _chat(self, exchange: Exchange) -> None:
        request = _request(exchange)
        message = _user_message(request)
        call = self._begin("chat", exchange, request)
        call.user_message = message
        behaviour = self.by_model.get(call.model, self.behaviour).changed(marked_script(message))
        behaviour = self._throttling(call.model, behaviour)
        exchange.ignore_close = behaviour.ignore_close
        answer = Answer(exchange, call, behaviour, request, note=self.note, gate=self._gate.wait)
        try:
            reason = await (answer.stream() if request.get("stream") else answer.whole())
            call.closed(reason)
        finally:
            self.note()

    async def _embeddings(self, exchange: Exchange) -> None:
        request = _request(exchange)
        call = self._begin("embeddings", exchange, request)
        call.user_message = "\n".join(texts_of(request))
        behaviour = self._throttling(call.model, self.by_model.get(call.model, Behaviour()))
        exchange.ignore_close = behaviour.ignore_close
        try:
            call.closed(await Embedding(exchange, call, behaviour, request, gate=self._gate.wait).answer())
        finally:
            self.note()

    async def _moderations(self, exchange: Exchange) -> None:
        request = _request(exchange)
        call = self._begin("moderations", exchange, request)
        call.user_message = text_of(request)
        behaviour = self._throttling(call.model, self.by_model.get(call.model, Behaviour()))
        try:
            call.closed(await Moderation(exchange, call, behaviour, gate=self._gate.wait).answer())
        finally:
            self.note()

    async def _rerank(self, exchange: Exchange) -> None:
        request = _request(exchange)
        call = self._begin("rerank", exchange, request)
        question, passages = passages_of(request)
        call.user_message = "\n".join((question, *passages))
        behaviour = self._throttling(call.model, self.by_model.get(call.model, Behaviour()))
        try:
            call.closed(await Reranked(exchange, call, behaviour, request, gate=self._gate.wait).answer())
        finally:
            self.note()

    def _throttling(self, model: str, behaviour: Behaviour) -> Behaviour:
        """The behaviour of one more call: an error while there are still calls to throttle."""
        if self._throttled[model] >= behaviour.throttle:
            return behaviour
        self._throttled[model] += 1
        return replace(behaviour, error_before=ScriptedError(429, retry_after=behaviour.throttle_retry_after))


def _request(exchange: Exchange) -> dict[str, Any]:
    request = json.loads(exchange.body)
    if not isinstance(request, dict):
        raise ValueError("the body is a JSON object")
    return request


def _user_message(request: dict[str, Any]) -> str:
    for message in reversed(request.get("messages") or []):
        if message.get("role") == "user":
            content = message.get("content")
            return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    return ""


@contextlib.asynccontextmanager
async def serve_stub(**script: Any) -> AsyncIterator[ModelStub]:
    """A stub on a free loopback port in the running loop, with this default behaviour."""
    stub = ModelStub()
    stub.script(**script)
    await stub.start()
    try:
        yield stub
    finally:
        await stub.close()


async def _run(port: int, ready_file: Path | None) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    stub = ModelStub()
    await stub.start(port)
    print(json.dumps({"base_url": stub.base_url}), flush=True)
    if ready_file is not None:
        part = ready_file.with_name(ready_file.name + ".part")
        part.write_text(json.dumps({"base_url": stub.base_url, "pid": os.getpid()}))
        part.replace(ready_file)
    await stopped.wait()
    await stub.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ready-file", type=Path)
    options = parser.parse_args()
    asyncio.run(_run(options.port, options.ready_file))


if __name__ == "__main__":
    main()
