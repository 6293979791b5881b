"""Embeddings of the scripted model: the bundled model's vectors, or what the script makes of them."""

import asyncio
import base64
import functools
import json
import struct
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from loadtest.stub_answer import Call, held_back
from loadtest.stub_http import Exchange
from loadtest.stub_script import Behaviour

if TYPE_CHECKING:
    from gateway.adapters.embedded.embedder import BundledEmbedder

Row = list[float]

_HUGE_PIECE = b" " * 65_536


class Embedding:
    """One call for vectors being answered."""

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
        rows = await vectors(texts_of(self._request), self._request.get("dimensions"))
        body = json.dumps(self._listed(self._spoilt(rows))).encode()
        return await self._send(body)

    def _spoilt(self, rows: list[Row]) -> list[Row]:
        """The rows as ``vectors`` says; the faults that aren't in the numbers come later."""
        match self._behaviour.vectors:
            case "wrong_dimension":
                return [row[:-1] for row in rows]
            case "nan" | "infinity" as number:
                return [[float(number), *row[1:]] for row in rows]
            case "zero":
                return [[0.0] * len(row) for row in rows]
            case "long":
                return [[3.0 * value for value in row] for row in rows]
            case "words":
                return [["none", *row[1:]] for row in rows]  # type: ignore[list-item] # the fault is meant
            case _:
                return rows

    def _listed(self, rows: list[Row]) -> dict[str, Any]:
        asked = self._request.get("encoding_format")
        packed = self._behaviour.base64 or asked == "base64"
        items = [
            {"object": "embedding", "index": index, "embedding": pack(row) if packed else row}
            for index, row in enumerate(rows)
        ]
        match self._behaviour.vectors:
            case "fewer":
                items.pop()
            case "more":
                items.append({**items[-1], "index": len(items)})
            case "duplicated":
                items[-1]["index"] = 0
            case "unnumbered":
                del items[-1]["index"]
            case "reordered":
                items.reverse()
        usage = {"prompt_tokens": 0, "total_tokens": 0}
        return {"object": "list", "data": items, "model": self._call.model, "usage": usage}

    async def _send(self, body: bytes) -> str:
        exchange = self._exchange
        match self._behaviour.vectors:
            case "garbage":
                body = body[: len(body) // 2] + b"!"
            case "huge":
                exchange.start(200, {"content-type": "application/json"})
                while True:
                    await exchange.write(_HUGE_PIECE)
            case "slow_body" | "cut" as how:
                exchange.start(200, {"content-type": "application/json"}, length=len(body))
                await exchange.write(body[: len(body) // 2])
                if how == "cut":
                    self._call.closed("scripted")
                    return "scripted"
                await self._gate()
                await exchange.write(body[len(body) // 2 :])
                exchange.end()
                return "finished"
        exchange.start(200, {"content-type": "application/json"}, length=len(body))
        await exchange.write(body)
        exchange.end()
        return "finished"


def texts_of(request: dict[str, Any]) -> list[str]:
    """Raises ValueError for an input that is no text and no list of texts."""
    texts = [request["input"]] if isinstance(request.get("input"), str) else request.get("input")
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError("input is a text or a list of texts")
    return texts


async def vectors(texts: Sequence[str], dimension: int | None = None) -> list[Row]:
    """Those of the bundled model, cut to ``dimension`` where one is asked for."""
    rows = await asyncio.to_thread(lambda: _bundled().vectors(texts).tolist())
    return [row[:dimension] for row in rows]


@functools.cache
def _bundled() -> "BundledEmbedder":
    # loads a model of 33 MB: only for those who ask for vectors
    from gateway.adapters.embedded.embedder import BundledEmbedder

    return BundledEmbedder.load_now()


def pack(row: Row) -> str:
    """Little-endian float32 in base64, as the SDK asks for it."""
    return base64.b64encode(struct.pack(f"<{len(row)}f", *row)).decode()
