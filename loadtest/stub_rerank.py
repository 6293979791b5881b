"""Reranking of the scripted model: by the question's words that passages hold, or as scripted."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from loadtest.stub_answer import Call, held_back
from loadtest.stub_http import Exchange
from loadtest.stub_script import Behaviour

_HUGE_PIECE = b" " * 65_536


class Reranked:
    """One call for scores being answered: in Cohere's form, or TEI's where it was asked in that."""

    def __init__(
        self,
        exchange: Exchange,
        call: Call,
        behaviour: Behaviour,
        request: dict[str, Any],
        *,
        gate: Callable[[], Awaitable[object]],
    ) -> None:
        self._exchange = exchange
        self._call = call
        self._behaviour = behaviour
        self._request = request
        self._gate = gate

    async def answer(self) -> str:
        """Returns the close reason."""
        if not await held_back(self._exchange, self._call, self._behaviour):
            return "scripted"
        if self._behaviour.gate_after_tokens is not None:
            await self._gate()
        if self._behaviour.ranking is not None:
            return await self._send(json.dumps(self._behaviour.ranking).encode())
        question, passages = passages_of(self._request)
        words = set(question.casefold().split())
        found = [len(words & set(passage.casefold().split())) / len(words) for passage in passages]
        name = "score" if "texts" in self._request else "relevance_score"
        items = [{"index": index, name: score} for index, score in enumerate(found)]
        items.sort(key=lambda item: -item[name])
        self._spoil(items, name)
        return await self._send(
            json.dumps(items if "texts" in self._request else {"results": items}).encode()
        )

    def _spoil(self, items: list[dict[str, Any]], name: str) -> None:
        match self._behaviour.rerank:
            case "fewer":
                items.pop()
            case "duplicated":
                items[-1]["index"] = items[0]["index"]
            case "out_of_range":
                items[-1]["index"] = len(items)
            case "nan":
                items[0][name] = float("nan")
            case "word":
                items[0][name] = "0.9"

    async def _send(self, body: bytes) -> str:
        exchange, fault = self._exchange, self._behaviour.rerank
        if fault == "garbage":
            body = body[: len(body) // 2] + b"!"
        if fault == "huge":
            exchange.start(200, {"content-type": "application/json"})
            while True:
                await exchange.write(_HUGE_PIECE)
        exchange.start(200, {"content-type": "application/json"}, length=len(body))
        if fault in {"cut", "slow_body"}:
            await exchange.write(body[: len(body) // 2])
            if fault == "cut":
                return "scripted"
            await self._gate()
            body = body[len(body) // 2 :]
        await exchange.write(body)
        exchange.end()
        return "finished"


def passages_of(request: dict[str, Any]) -> tuple[str, list[str]]:
    """The question and the passages. Raises ValueError for a body of another shape."""
    question, passages = request.get("query"), request.get("documents", request.get("texts"))
    if not isinstance(question, str) or not question:
        raise ValueError("query is a text")
    if not isinstance(passages, list) or not all(isinstance(passage, str) for passage in passages):
        raise ValueError("documents (or texts) is a list of texts")
    return question, passages
