"""The outlet of an answer: the last gate before its sink, which only text that may leave passes."""

import io
from typing import Protocol

from gateway.admission.stage import stage_time
from gateway.answer.calls.moderation import ModerationMode, Moderator, OutputPolicy
from gateway.answer.calls.segments import Segments
from gateway.answer.calls.sink import Sink
from gateway.context import Deadline
from gateway.errors import AnswerBlocked
from gateway.observe.hooks import ModelCall, Stage
from gateway.observe.trace import Trace

#: a sentence longer than this is judged, and leaves, in parts
SEGMENT_CHARS = 400
#: what left before a segment and is judged with it: the end of a phrase may come in the next one
CONTEXT_CHARS = 200
#: a checked answer goes to the sink in slices, which then can hold it back
_SLICE_CHARS = 4096


class Outlet(Protocol):
    """Takes an answer's text in order; raises AnswerBlocked for what may not leave."""

    async def write(self, text: str) -> None: ...

    async def finish(self) -> None:
        """The answer is whole: what was held back leaves now."""
        ...


class OpenOutlet:
    """Without a policy: everything leaves as it comes."""

    def __init__(self, sink: Sink, trace: Trace) -> None:
        self._sink = sink
        self._trace = trace

    async def write(self, text: str) -> None:
        if text:
            self._trace.text_sent()
            await self._sink.write(text)

    async def finish(self) -> None:
        pass


class Inspection:
    """Has texts judged for one answer. Fails closed: what nobody has judged doesn't pass."""

    def __init__(self, moderator: Moderator, cap_ms: int, trace: Trace, deadline: Deadline) -> None:
        self._moderator = moderator
        self._cap_ms = cap_ms
        self._trace = trace
        self._deadline = deadline

    async def pass_on(self, text: str) -> None:
        """Raises AnswerBlocked, ModerationUnavailable, DeadlineExceeded (stage ``moderation``)."""
        self._trace.hooks.model_call(ModelCall.MODERATION)
        with (
            self._trace.stage(Stage.MODERATE),
            stage_time(self._deadline, "moderation", self._cap_ms) as stage,
        ):
            verdict = await self._moderator.check(text, stage)
        if verdict.flagged:
            self._trace.note(blocked_for=verdict.categories)
            raise AnswerBlocked()


class SegmentedOutlet:
    """Each sentence is judged before it leaves, together with the end of what left before it."""

    def __init__(self, outlet: Outlet, inspection: Inspection) -> None:
        self._outlet = outlet
        self._inspection = inspection
        self._segments = Segments(SEGMENT_CHARS)
        self._context = ""

    async def write(self, text: str) -> None:
        for segment in self._segments.feed(text):
            await self._pass(segment)

    async def finish(self) -> None:
        await self._pass(self._segments.flush())

    async def _pass(self, segment: str) -> None:
        if segment.strip():
            await self._inspection.pass_on(self._context + segment)
        self._context = (self._context + segment)[-CONTEXT_CHARS:]
        await self._outlet.write(segment)


class BufferedOutlet:
    """Nothing leaves before the whole answer was judged."""

    def __init__(self, outlet: Outlet, inspection: Inspection) -> None:
        self._outlet = outlet
        self._inspection = inspection
        self._text = io.StringIO()

    async def write(self, text: str) -> None:
        self._text.write(text)

    async def finish(self) -> None:
        text = self._text.getvalue()
        if text.strip():
            await self._inspection.pass_on(text)
        for start in range(0, len(text), _SLICE_CHARS):
            await self._outlet.write(text[start : start + _SLICE_CHARS])


def outlet_of(policy: OutputPolicy | None, sink: Sink, trace: Trace, deadline: Deadline) -> Outlet:
    """The outlet of one answer; no policy lets everything pass."""
    outlet = OpenOutlet(sink, trace)
    if policy is None:
        return outlet
    inspection = Inspection(policy.moderator, policy.cap_ms, trace, deadline)
    if policy.mode is ModerationMode.SEGMENTED:
        return SegmentedOutlet(outlet, inspection)
    return BufferedOutlet(outlet, inspection)
