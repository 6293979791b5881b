"""Moderation of the scripted model: flags the texts that hold a word."""

from collections.abc import Awaitable, Callable
from typing import Any

from loadtest.stub_answer import Call, held_back
from loadtest.stub_http import Exchange
from loadtest.stub_script import Behaviour


class Moderation:
    """One call for a verdict being answered."""

    def __init__(
        self,
        exchange: Exchange,
        call: Call,
        behaviour: Behaviour,
        *,
        gate: Callable[[], Awaitable[object]],
    ) -> None:
        self._exchange = exchange
        self._call = call
        self._behaviour = behaviour
        self._gate = gate

    async def answer(self) -> str:
        """Returns the close reason."""
        if not await held_back(self._exchange, self._call, self._behaviour):
            return "scripted"
        if self._behaviour.gate_after_tokens is not None:
            await self._gate()
        if self._behaviour.verdict is not None:
            self._exchange.answer_json(200, self._behaviour.verdict)
            return "finished"
        found = [word for word in self._behaviour.flag if word in self._call.user_message]
        result = {
            "flagged": bool(found),
            "categories": {word: word in found for word in self._behaviour.flag},
        }
        self._exchange.answer_json(200, {"id": "stub", "model": self._call.model, "results": [result]})
        return "finished"


def text_of(request: dict[str, Any]) -> str:
    """The text of a call; one call has one text here."""
    text = request.get("input")
    if not isinstance(text, str):
        raise ValueError("input is a string")
    return text
