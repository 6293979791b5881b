"""Generation: one model call, its text filtered on the way to the session."""

import io
from dataclasses import dataclass

from gateway.answer.budget import estimate_tokens
from gateway.answer.citation import CitationStream
from gateway.answer.marker import MarkerHold
from gateway.answer.model import AnswerModel, ModelFinish, ModelPiece, ModelUsage, TextPiece
from gateway.answer.prompt import Prompt
from gateway.context import Deadline
from gateway.errors import UpstreamFailed
from gateway.observe.hooks import ModelCall
from gateway.observe.trace import Trace
from gateway.stream.protocol import Usage
from gateway.stream.session import Session


@dataclass(frozen=True, slots=True)
class Generated:
    """A finished call. ``cited`` holds evidence numbers in order of first use."""

    text: str
    cited: tuple[int, ...]
    unknown_citations: int
    usage: Usage
    finish_reason: str
    no_support: bool


class Generation:
    """Owns the upstream for the length of one call; leaving it in any way closes the call."""

    def __init__(self, model: AnswerModel, session: Session, trace: Trace) -> None:
        self._model = model
        self._session = session
        self._trace = trace
        self._marker = MarkerHold()
        self._citations = CitationStream(0)
        self._text = io.StringIO()  # pieces of a token each, kept as they come, would weigh ten times as much
        self._usage: ModelUsage | None = None
        self._finish = ""

    async def run(self, prompt: Prompt, deadline: Deadline) -> Generated:
        """Raises UpstreamFailed or DeadlineExceeded; text sent so far stays sent."""
        self._citations = CitationStream(known=len(prompt.evidence))
        self._trace.hooks.model_call(ModelCall.GENERATION)
        async with self._model.stream(prompt, deadline) as pieces:
            async for piece in pieces:
                await self._take(piece)
        await self._send(self._citations.feed(self._marker.flush()) + self._citations.flush())
        text = self._text.getvalue()
        if not text.strip() and not self._marker.found:
            raise UpstreamFailed("the model gave no answer")
        return Generated(
            text=text,
            cited=tuple(self._citations.cited),
            unknown_citations=self._citations.unknown,
            usage=self._counted(prompt, text),
            finish_reason=self._finish,
            no_support=self._marker.found,
        )

    async def _take(self, piece: ModelPiece) -> None:
        match piece:
            case TextPiece():
                if self._session.close_reason is not None:
                    self._trace.hooks.token_after_cancel(1)
                await self._send(self._citations.feed(self._marker.feed(piece.text)))
            case ModelUsage():
                self._usage = piece
            case ModelFinish():
                self._finish = piece.reason

    async def _send(self, text: str) -> None:
        if text:
            self._trace.text_sent()
            self._text.write(text)
            await self._session.write(text)

    def _counted(self, prompt: Prompt, text: str) -> Usage:
        if self._usage is not None:
            return Usage(self._usage.input_tokens, self._usage.output_tokens, self._usage.estimated)
        sent = sum(estimate_tokens(message.content) for message in prompt.messages)
        return Usage(sent, estimate_tokens(text), estimated=True)
