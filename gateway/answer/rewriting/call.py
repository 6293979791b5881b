"""One call of a model that tells a question anew: a short text, none of which any reader gets from here."""

import io

from gateway.answer.calls.used import UsedTokens
from gateway.answer.model import AnswerModel, ModelFinish, ModelPiece, ModelUsage, TextPiece
from gateway.answer.prompt import Prompt
from gateway.answer.rewriting.fitting import MAX_CHARS
from gateway.context import Deadline
from gateway.observe.hooks import ModelCall
from gateway.observe.trace import Trace
from gateway.stream.protocol import Usage


class RewriteCall:
    """A ``Call`` of its text; leaving it in any way closes it on the wire."""

    def __init__(self, model: AnswerModel, prompt: Prompt, trace: Trace) -> None:
        self._model = model
        self._prompt = prompt
        self._trace = trace
        self._used = UsedTokens(prompt)
        self._text = io.StringIO()
        self._finish: ModelFinish | None = None
        self.opened = False

    @property
    def usage(self) -> Usage:
        """So far: as the model stated it, or estimated from what was sent and came."""
        return self._used.usage

    @property
    def whole(self) -> bool:
        """Whether the model itself has ended its text."""
        return self._finish is not None and self._finish.reason == "stop"

    def tell_usage(self) -> None:
        if self.opened:
            self._trace.hooks.rewrite_tokens(self.usage.input_tokens, self.usage.output_tokens)

    async def run(self, deadline: Deadline) -> str:
        """Raises UpstreamFailed, DeadlineExceeded. A text that is too long isn't read to its end."""
        self._trace.hooks.model_call(ModelCall.REWRITE)
        async with self._model.stream(self._prompt, deadline) as pieces:
            self.opened = True
            async for piece in pieces:
                self._take(piece)
                if self._text.tell() > 2 * MAX_CHARS:
                    break
        return self._text.getvalue()

    def _take(self, piece: ModelPiece) -> None:
        match piece:
            case TextPiece():
                self._used.receive(piece.text)
                self._text.write(piece.text)
            case ModelUsage():
                self._used.state(piece)
            case ModelFinish():
                self._finish = piece
