"""Chat completion chunks, sans IO: the JSON of each event into text, usage and the end of an answer."""

import json
from typing import Any

import orjson

from gateway.adapters.openai.sse import SurrogateJoiner
from gateway.answer.budget import TokenCount, estimate_tokens
from gateway.answer.model import ModelFinish, ModelPiece, ModelUsage, TextPiece
from gateway.answer.prompt import Prompt
from gateway.errors import UpstreamFailed

#: how servers name an end that leaves a usable answer; any other (content_filter, tool_calls, …) leaves none
FINISH_REASONS = {
    "stop": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "max_tokens": "length",
}

#: no tokenizer's tokens are longer on average; single ones, as of blanks, are: hence the allowance
_MOST_CHARS_A_TOKEN = 16
_ALLOWANCE_CHARS = 1024


class ChunkReader:
    """Reads one answer's events in order. Unknown keys and further choices are ignored.

    Usage and finish come last, from ``end``, however the server ordered them. ``overrun`` once the text is
    longer than the tokens asked for can be, 16 characters each and 1024 besides: it is cut there, ends by its
    length, and nothing after it is to be read. Raises UpstreamFailed for JSON that can't be read, an error
    object, an end without a usable answer, and no end at all.
    """

    def __init__(self, prompt: Prompt) -> None:
        self._prompt = prompt
        self._joiner = SurrogateJoiner()
        self._said = TokenCount()
        self._chars_left = prompt.max_output_tokens * _MOST_CHARS_A_TOKEN + _ALLOWANCE_CHARS
        self.overrun = False
        self._usage: ModelUsage | None = None
        self._finish: ModelFinish | None = None

    @property
    def finished(self) -> bool:
        """The model has said that its answer is complete."""
        return self._finish is not None

    def read(self, event: bytes) -> TextPiece | None:
        """The text of one event, None when it brings none."""
        chunk = _loads(event)
        if not isinstance(chunk, dict):
            raise UpstreamFailed("the answer model sent a chunk of an unknown shape")
        if chunk.get("error"):
            raise UpstreamFailed("the answer model reported an error in its stream")
        self._read_usage(chunk.get("usage"))
        choice = _first_choice(chunk.get("choices"))
        text = self._joiner.push(_content(choice.get("delta")))
        if choice.get("finish_reason") is not None:
            text += self._joiner.flush()
            self._finish = _finish(choice["finish_reason"])
        return self._piece(text)

    def end(self) -> tuple[ModelPiece, ...]:
        """The pieces that close an answer; raises UpstreamFailed when it was cut short."""
        if self._finish is None:
            raise UpstreamFailed("the answer model's stream ended before its answer did")
        return (self._usage or self._estimate(), self._finish)

    def _piece(self, text: str) -> TextPiece | None:
        if len(text) > self._chars_left:
            text = text[: self._chars_left]
            self.overrun = True
            self._finish = ModelFinish("length")
        if not text:
            return None
        self._chars_left -= len(text)
        self._said.add(text)
        return TextPiece(text)

    def _read_usage(self, usage: object) -> None:
        if not isinstance(usage, dict):
            return
        counts = (usage.get("prompt_tokens"), usage.get("completion_tokens"))
        if all(type(count) is int and count >= 0 for count in counts):
            self._usage = ModelUsage(usage["prompt_tokens"], usage["completion_tokens"], estimated=False)

    def _estimate(self) -> ModelUsage:
        sent = sum(estimate_tokens(message.content) for message in self._prompt.messages)
        return ModelUsage(sent, self._said.tokens, estimated=True)


def _loads(event: bytes) -> object:
    try:
        return orjson.loads(event)
    except orjson.JSONDecodeError:
        pass
    try:
        # orjson refuses a lone surrogate escape, which some servers send when a token ends inside an emoji
        if b"\\ud" in event.lower():
            return json.loads(event.decode("utf-8"))
    except (ValueError, RecursionError):
        pass
    raise UpstreamFailed("the answer model sent a chunk that is not JSON")


def _first_choice(choices: object) -> dict[str, Any]:
    if isinstance(choices, list):
        for choice in choices:
            if isinstance(choice, dict) and not choice.get("index"):
                return choice
    return {}


def _content(delta: object) -> str:
    content = delta.get("content") if isinstance(delta, dict) else None
    if content is None:
        return ""
    if not isinstance(content, str):
        raise UpstreamFailed("the answer model sent a chunk of an unknown shape")
    return content


def _finish(reason: object) -> ModelFinish:
    known = FINISH_REASONS.get(reason) if isinstance(reason, str) else None
    if known is None:
        raise UpstreamFailed("the answer model ended without a complete answer")
    return ModelFinish(known)
