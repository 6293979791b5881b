"""Used: the tokens of one model call, as the model states them or, until it does, estimated."""

from gateway.answer.budget import TokenCount, estimate_tokens
from gateway.answer.model import ModelUsage
from gateway.answer.prompt import Prompt
from gateway.stream.protocol import Usage


class UsedTokens:
    """Of the call with this prompt; tell it what comes."""

    def __init__(self, prompt: Prompt) -> None:
        self._prompt = prompt
        self._received = TokenCount()
        self._stated: ModelUsage | None = None

    def receive(self, text: str) -> None:
        self._received.add(text)

    def state(self, usage: ModelUsage) -> None:
        """The model's own count: it is right."""
        self._stated = usage

    @property
    def usage(self) -> Usage:
        """So far."""
        if self._stated is not None:
            return Usage(self._stated.input_tokens, self._stated.output_tokens, self._stated.estimated)
        sent = sum(estimate_tokens(message.content) for message in self._prompt.messages)
        return Usage(sent, self._received.tokens, estimated=True)
