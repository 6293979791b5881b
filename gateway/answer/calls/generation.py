"""Generation: one model call, its text filtered on the way to the client."""

import io
from collections.abc import Callable
from dataclasses import dataclass

from gateway.answer.calls.declining import declines
from gateway.answer.calls.marker import MarkerHold
from gateway.answer.calls.outlet import Outlet
from gateway.answer.calls.sink import Sink
from gateway.answer.calls.used import UsedTokens
from gateway.answer.citation import CitationStream
from gateway.answer.model import AnswerModel, ModelFinish, ModelPiece, ModelUsage, TextPiece
from gateway.answer.prompt import Prompt
from gateway.context import Deadline
from gateway.errors import UpstreamFailed
from gateway.observe.hooks import ModelCall
from gateway.observe.trace import Trace
from gateway.stream.protocol import Usage


@dataclass(frozen=True, slots=True)
class Generated:
    """A finished call. ``cited`` holds evidence numbers in order of first use; an answer of another than the
    first choice of endpoints is ``second_choice``; ``sure`` says whether it is taken for an answer to the
    question.
    """

    text: str
    cited: tuple[int, ...]
    unknown_citations: int
    usage: Usage
    finish_reason: str
    no_support: bool
    second_choice: bool = False
    sure: bool = True


class Generation:
    """Owns the upstream for the length of one call; leaving it in any way closes the call."""

    def __init__(
        self,
        model: AnswerModel,
        prompt: Prompt,
        sink: Sink,
        trace: Trace,
        outlet: Outlet,
        on_first_text: Callable[[], None],
    ) -> None:
        self._model = model
        self._prompt = prompt
        self._sink = sink
        self._trace = trace
        self._outlet = outlet
        self._on_first_text = on_first_text
        self._marker = MarkerHold()
        self._citations = CitationStream(known=len(prompt.evidence))
        self._used = UsedTokens(prompt)
        # pieces of a token each, kept as they come, would weigh ten times as much
        self._text = io.StringIO()
        self._finish: ModelFinish | None = None
        #: whether the model has answered with headers, and with text
        self.opened = False
        self.began = False

    @property
    def usage(self) -> Usage:
        """What the call has used so far: as the model stated it, or estimated from what was sent and came."""
        return self._used.usage

    def tell_usage(self) -> None:
        """Of a call that was answered and is over."""
        if self.opened:
            self._trace.hooks.model_tokens(self.usage.input_tokens, self.usage.output_tokens)

    async def run(self, deadline: Deadline) -> Generated:
        """Raises UpstreamFailed or DeadlineExceeded, and what the outlet raises; text sent stays sent."""
        self._trace.hooks.model_call(ModelCall.GENERATION)
        async with self._model.stream(self._prompt, deadline) as pieces:
            self.opened = True
            async for piece in pieces:
                await self._take(piece)
        await self._send(self._citations.feed(self._marker.flush()) + self._citations.flush())
        text = self._text.getvalue()
        if not text.strip() and not self._marker.found:
            raise UpstreamFailed("the model gave no answer")
        await self._outlet.finish()
        return Generated(
            text=text,
            cited=tuple(self._citations.cited),
            unknown_citations=self._citations.unknown,
            usage=self.usage,
            finish_reason=self._finish.reason if self._finish else "",
            no_support=self._marker.found,
            sure=(self._finish is None or self._finish.sure) and not declines(text),
        )

    async def _take(self, piece: ModelPiece) -> None:
        match piece:
            case TextPiece():
                await self._take_text(piece.text)
            case ModelUsage():
                self._used.state(piece)
            case ModelFinish():
                self._finish = piece

    async def _take_text(self, text: str) -> None:
        if not self.began:
            self.began = True
            self._on_first_text()
        if self._sink.close_reason is not None:
            self._trace.hooks.token_after_cancel(1)
        self._used.receive(text)
        await self._send(self._citations.feed(self._marker.feed(text)))

    async def _send(self, text: str) -> None:
        if text:
            self._text.write(text)
            await self._outlet.write(text)
