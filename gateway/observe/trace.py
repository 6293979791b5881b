"""The trace of one request: ids, stage times and counts, written down once at its end.

What was asked and found goes beside it into the catalog, never into a log.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.context import RequestContext
from gateway.observe.hooks import Hooks, Stage
from gateway.observe.tracelog import NOTHING_FOUND, Findings, TraceRecord


class Trace:
    """Collects what happened to one request. ``facts`` holds ids, counts, digests and codes only.

    ``searched`` is what is looked for in place of the question, as ``rewritten_by`` wrote it; ``record`` has
    none of them, nor what was found.
    """

    def __init__(self, request_id: str, trace_id: str, hooks: Hooks) -> None:
        self.request_id = request_id
        self.trace_id = trace_id
        self.hooks = hooks
        self.stage_ms: dict[str, float] = {}
        self.facts: dict[str, object] = {}
        self.context: RequestContext | None = None
        self.question = ""
        self.searched = ""
        self.rewritten_by = ""
        self.findings: Findings | None = None
        self.reasons: tuple[str, ...] = ()
        #: of an answer that is whole
        self.status = ""
        self._started = time.perf_counter()
        self._first_text_ms: float | None = None

    @contextmanager
    def stage(self, stage: Stage) -> Iterator[None]:
        """Times the block, also when it fails or is cancelled."""
        began = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - began
            self.stage_ms[stage.value] = self.stage_ms.get(stage.value, 0.0) + seconds * 1000
            self.hooks.stage(stage, seconds)

    def note(self, **facts: object) -> None:
        self.facts.update(facts)

    def take(self, making: "Trace", *, timed: bool) -> None:
        """What the making of its answer has noted; its stage times where they are the request's own."""
        self.facts.update(making.facts)
        self.findings = self.findings or making.findings
        if timed:
            self.stage_ms.update(making.stage_ms)

    def text_sent(self) -> None:
        """Call at each piece of text; only the first one counts."""
        if self._first_text_ms is None:
            self._first_text_ms = self.elapsed_ms

    @property
    def first_text_ms(self) -> float | None:
        return self._first_text_ms

    @property
    def elapsed_ms(self) -> float:
        return (time.perf_counter() - self._started) * 1000

    def to_keep(self, kind: str, outcome: str) -> TraceRecord | None:
        """What the catalog keeps of it; None when nothing was asked of any knowledge base."""
        context = self.context
        if context is None or not self.question:
            return None
        return TraceRecord(
            trace_id=self.trace_id,
            request_id=self.request_id,
            at=time.time(),
            tenant=context.principal.tenant,
            subject=context.principal.subject,
            kind=kind,
            kb_id=context.scope.kb_id,
            knowledge_base=context.scope.knowledge_base,
            release_id=context.release.release_id,
            release_sequence=context.release.sequence,
            config=context.release.config.version,
            question=self.question,
            searched=self.searched,
            outcome=outcome,
            reasons=self.reasons,
            findings=self.findings or NOTHING_FOUND,
            timings={
                **{f"{name}_ms": round(ms, 1) for name, ms in self.stage_ms.items()},
                "total_ms": round(self.elapsed_ms, 1),
            },
            told=str(self.facts.get("told", "")),
            rewritten_by=self.rewritten_by,
        )

    def record(self) -> dict[str, object]:
        """The fields of the one log line; times in milliseconds."""
        stages = {f"{name}_ms": round(ms, 3) for name, ms in self.stage_ms.items()}
        return {
            "request_id": self.request_id,
            "trace_id": self.trace_id,
            **self.facts,
            **stages,
            "ttft_ms": None if self._first_text_ms is None else round(self._first_text_ms, 3),
            "total_ms": round(self.elapsed_ms, 3),
        }
