"""The port to an answer model: a stream of pieces that is closed on the wire when left."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from gateway.answer.prompt import Prompt
from gateway.context import Deadline


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A piece of answer text; any length, whole code points."""

    text: str


@dataclass(frozen=True, slots=True)
class ModelUsage:
    """Token counts; ``estimated`` when the model didn't state them."""

    input_tokens: int
    output_tokens: int
    estimated: bool


@dataclass(frozen=True, slots=True)
class ModelFinish:
    """The answer is whole (``stop``), or was ended by the tokens it may have (``length``). A model that can
    tell says that it isn't ``sure``: what it quotes may be about the question and still not answer it.
    """

    reason: str
    sure: bool = True


ModelPiece = TextPiece | ModelUsage | ModelFinish


class AnswerModel(Protocol):
    """One answer model. Retries are the gateway's business, never the model's."""

    @property
    def name(self) -> str: ...

    @property
    def max_sensitivity(self) -> int:
        """Passages above this never leave to it."""
        ...

    def stream(
        self, prompt: Prompt, deadline: Deadline
    ) -> AbstractAsyncContextManager[AsyncIterator[ModelPiece]]:
        """Opens one call. Entering returns once the model has answered with headers; leaving the
        block closes the call on the wire. A stream without ModelFinish was cut short and raises
        UpstreamFailed; a first token or a gap past its cap raises DeadlineExceeded (stage
        ``first_token`` or ``idle``).
        """
        ...
