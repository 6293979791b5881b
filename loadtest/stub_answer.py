"""Call and Answer: what the scripted model logs about a call, and how it says its tokens."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from loadtest.stub_http import Exchange
from loadtest.stub_script import Behaviour, json_text, tokens_of

_COMMENT_EVERY_S = 0.02
_SSE = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-store"}


@dataclass(slots=True)
class Call:
    """One call as the server saw it. Times are seconds on the machine's monotonic clock.

    ``reason`` is finished, client_gone or scripted (the script ended it); ``tokens`` counts those produced;
    ``asked`` are the names of the request's fields; ``user_message`` has the texts of an embeddings call.
    """

    id: int
    kind: str
    model: str
    started: float
    user_message: str = ""
    authorization: str | None = None
    asked: list[str] = field(default_factory=list)
    headers_at: float | None = None
    first_token_at: float | None = None
    last_token_at: float | None = None
    tokens: int = 0
    tokens_after_close: int = 0
    closed_at: float | None = None
    reason: str | None = None

    def produced(self) -> None:
        self.last_token_at = time.monotonic()
        if self.first_token_at is None:
            self.first_token_at = self.last_token_at
        self.tokens += 1
        self.tokens_after_close += self.closed_at is not None

    def closed(self, reason: str) -> None:
        if self.closed_at is None:
            self.closed_at, self.reason = time.monotonic(), reason


class Answer:
    """One chat answer being given."""

    def __init__(
        self,
        exchange: Exchange,
        call: Call,
        behaviour: Behaviour,
        request: dict[str, Any],
        *,
        note: Callable[[], None],
        gate: Callable[[], Awaitable[object]],
    ) -> None:
        self._note = note
        self._gate = gate
        self._exchange = exchange
        self._call = call
        self._behaviour = behaviour
        self._tokens = tokens_of(behaviour, call.user_message)
        self._asked_usage = bool((request.get("stream_options") or {}).get("include_usage"))

    async def whole(self) -> str:
        """The answer without streaming; returns the close reason."""
        if not await held_back(self._exchange, self._call, self._behaviour):
            return "scripted"
        await asyncio.sleep(self._behaviour.first_token_ms / 1000)
        for _ in self._tokens:
            self._call.produced()
            await asyncio.sleep(self._behaviour.cadence_ms / 1000)
        message = {"role": "assistant", "content": "".join(self._tokens)}
        choice = {"index": 0, "message": message, "finish_reason": self._behaviour.finish_reason}
        body = {**self._frame("chat.completion"), "choices": [choice], "usage": self._usage()}
        self._exchange.answer_json(200, body)
        return "finished"

    async def stream(self) -> str:
        """Server-sent events; returns the close reason."""
        if not await held_back(self._exchange, self._call, self._behaviour):
            return "scripted"
        self._exchange.start(200, _SSE)
        await self._send_choice('{"role":"assistant","content":""}')
        for _ in range(self._behaviour.prelude):
            await self._send_raw(b": still thinking")
            await self._send_choice("{}")
        ended = await self._send_tokens() or await self._send_end()
        self._exchange.end()
        return ended

    async def _send_tokens(self) -> str:
        """An empty string, or the reason why the script ended the answer here."""
        behaviour = self._behaviour
        first = time.monotonic() + behaviour.first_token_ms / 1000
        for index, token in enumerate(self._tokens):
            if await self._interrupted(index):
                return "scripted"
            # an absolute schedule: a late token does not delay the next
            await asyncio.sleep(max(0.0, first + index * behaviour.cadence_ms / 1000 - time.monotonic()))
            self._call.produced()
            self._note()
            for literal in json_text(token, behaviour):
                await self._send_choice(f'{{"content":{literal}}}')
        return "scripted" if await self._interrupted(len(self._tokens)) else ""

    async def _interrupted(self, index: int) -> bool:
        """What the script has in store after ``index`` tokens; true when it ends the answer."""
        behaviour = self._behaviour
        if behaviour.gate_after_tokens == index:
            await self._gate()
        if behaviour.stall_after_tokens == index:
            await self._stall()
        at = behaviour.error_after_tokens
        if behaviour.mid_stream_error is not None and index == (len(self._tokens) if at is None else at):
            await self._send_data(json.dumps({"error": behaviour.mid_stream_error}))
            return True
        if behaviour.die_after_tokens != index:
            return False
        if behaviour.die_how == "half_line":
            await self._exchange.write(b'data: {"id":"stub","choices":[{"index":0,"delta":{"conte')
        elif behaviour.die_how == "rst":
            # our own hanging up is no client that left
            self._call.closed("scripted")
            self._exchange.reset()
        return True

    async def _stall(self) -> None:
        while self._behaviour.comments_only:
            await self._send_raw(b": still here")
            await asyncio.sleep(_COMMENT_EVERY_S)
        await asyncio.Event().wait()

    async def _send_end(self) -> str:
        if not self._behaviour.no_finish:
            await self._send_choice("{}", json.dumps(self._behaviour.finish_reason))
        if self._asked_usage and self._behaviour.usage:
            chunk = {**self._frame("chat.completion.chunk"), "choices": [], "usage": self._usage()}
            await self._send_data(json.dumps(chunk))
        if self._behaviour.done:
            await self._send_data("[DONE]")
        if self._behaviour.gate_before_end:
            await self._gate()
        return "finished"

    async def _send_choice(self, delta: str, finish_reason: str = "null") -> None:
        frame = json.dumps(self._frame("chat.completion.chunk"))[:-1]
        choice = f'{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{finish_reason}}}'
        await self._send_data(f'{frame},"choices":[{choice}]}}')

    async def _send_data(self, data: str) -> None:
        await self._send_raw(b"data: " + data.encode())

    async def _send_raw(self, line: bytes) -> None:
        end = self._behaviour.line_end
        event = line + end + end
        size = self._behaviour.split_bytes or len(event)
        for start in range(0, len(event), size):
            await self._exchange.write(event[start : start + size])
            if self._behaviour.split_bytes:
                await asyncio.sleep(0)

    def _frame(self, kind: str) -> dict[str, Any]:
        return {"id": f"stub-{self._call.id}", "object": kind, "created": 0, "model": self._call.model}

    def _usage(self) -> dict[str, int]:
        sent = len(self._call.user_message) // 4 + 1
        given, made = self._behaviour.usage_counts or (sent, len(self._tokens))
        return {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made}


async def held_back(exchange: Exchange, call: Call, behaviour: Behaviour) -> bool:
    """What happens before the headers; false when the script answered with an error."""
    await asyncio.sleep(behaviour.header_delay_ms / 1000)
    call.headers_at = time.monotonic()
    error = behaviour.error_before
    if error is None:
        return True
    body = error.body if error.body is not None else {"error": {"message": "scripted", "code": "scripted"}}
    headers = {"retry-after": error.retry_after, "location": error.location}
    exchange.answer_json(error.status, body, {k: v for k, v in headers.items() if v is not None})
    call.closed("scripted")
    return False
