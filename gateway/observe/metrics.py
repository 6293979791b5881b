"""Prometheus metrics: a registry of its own for each gateway, every series at 0 from the start."""

from collections.abc import Callable, Iterable
from typing import Protocol

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from gateway.access.authorizer import DropReason
from gateway.errors import GatewayError
from gateway.observe.hooks import CacheRead, Made, ModelCall, RerankSkip, Retry, RewriteSkip, Stage

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0)
_QUESTIONS = (1, 2, 4, 8, 16, 32, 64)


disable_created_metrics()  # type: ignore[no-untyped-call]  # twice the series, and nobody reads them


class Watched(Protocol):
    """Anything with places."""

    @property
    def name(self) -> str: ...

    @property
    def size(self) -> int: ...

    @property
    def in_use(self) -> int: ...


class Metrics:
    """Implements Hooks. No label ever holds a tenant, a person or free text."""

    def __init__(
        self, *, close_reasons: Iterable[str], statuses: Iterable[str], unkept: Iterable[str] = ()
    ) -> None:
        self.registry = CollectorRegistry()
        self._questions = self._counter("gateway_questions", "Questions received.")
        self._retrievals = self._counter("gateway_retrievals", "Searches of the vector store started.")
        self._paths = self._counter(
            "gateway_retrieval_paths",
            "Searches by the path that read the vectors.",
            "path",
            ("sdk", "vectorstore"),
        )
        self._search_questions = Histogram(
            "gateway_search_questions",
            "Questions in one call of the vector store.",
            buckets=_QUESTIONS,
            registry=self.registry,
        )
        self._fallbacks = self._counter(
            "gateway_retrieval_fallbacks",
            "Searches that auto didn't leave to the vectorstore path.",
            "reason",
            ("not_installed", "embedded_store", "vector_store_unavailable", "deadline_exceeded"),
        )
        self._model_calls = self._counter(
            "gateway_model_calls", "Model calls started.", "kind", map(str, ModelCall)
        )
        self._model_retries = self._counter(
            "gateway_model_retries", "Model calls that repeat one which failed.", "kind", map(str, Retry)
        )
        self._rerank_skips = self._counter(
            "gateway_rerank_skips", "Searches left in the fused order.", "reason", map(str, RerankSkip)
        )
        self._rewrites = self._counter(
            "gateway_rewrites",
            "Follow-ups that a model was to tell anew; why rules did.",
            "result",
            ("used", *map(str, RewriteSkip)),
        )
        self._answers = self._counter("gateway_answers", "Answers ended whole.", "status", statuses)
        self._rejections = self._counter(
            "gateway_rejections",
            "Requests that admission turned away.",
            "stage",
            ("rate", "sessions", "embedding", "retrieval", "rerank", "generation", "quota", "draining"),
        )
        self._failures = self._counter(
            "gateway_failures", "Questions ended by an error, by its code.", "code", _error_codes()
        )
        self._cancels = self._counter("gateway_cancels", "Sessions ended early.", "reason", close_reasons)
        self._drops = self._counter(
            "gateway_recheck_drops", "Candidates the re-check dropped.", "reason", map(str, DropReason)
        )
        self._cache = self._counter("gateway_cache", "Answer cache reads.", "result", map(str, CacheRead))
        self._cache_writes = self._counter(
            "gateway_cache_writes", "Whole answers kept, or why not.", "result", ("kept", *unkept)
        )
        self._saved_tokens = self._counter(
            "gateway_cache_saved_tokens", "Tokens that the answers told again had used when they were made."
        )
        self._members = self._counter(
            "gateway_flight_members", "Questions answered by one making.", "role", ("leader", "follower")
        )
        self._makings = self._counter(
            "gateway_makings", "Answers in the making, by what was found for them.", "result", map(str, Made)
        )
        self._model_tokens = self._counter(
            "gateway_model_tokens",
            "Tokens of calls that have ended.",
            "kind",
            ("input", "output", "rewrite_input", "rewrite_output"),
        )
        self._after_cancel = self._counter(
            "gateway_tokens_after_cancel", "Pieces of text that came after a cancel."
        )
        self._traces_dropped = self._counter(
            "gateway_traces_dropped", "Traces of searches and answers that could not be kept."
        )
        self._streams = Gauge(
            "gateway_active_streams", "Questions being answered now.", registry=self.registry
        )
        self._stages = Histogram(
            "gateway_stage_seconds",
            "Time spent in a stage.",
            ["stage"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        for stage in Stage:
            self._stages.labels(stage.value)
        self._in_use = Gauge("gateway_bulkhead_in_use", "Places taken.", ["name"], registry=self.registry)
        self._places = Gauge("gateway_bulkhead_places", "Places there are.", ["name"], registry=self.registry)
        self._journal_lag = Gauge(
            "gateway_journal_lag_seconds",
            "Age of the oldest act that isn't in the journal yet.",
            registry=self.registry,
        )
        self._stops = self._seconds(
            "gateway_revocation_stop_seconds", "From a revocation to the last byte of a stream it ends."
        )
        self._first_texts = self._seconds(
            "gateway_first_token_seconds", "From a question to the first text of its answer."
        )
        self._completions = self._seconds(
            "gateway_completion_seconds", "From a question to the end of its whole answer."
        )
        self._cancelled = self._seconds(
            "gateway_cancel_seconds", "From a cancel to the upstream closed and every place given back."
        )
        self._acks = self._seconds(
            "gateway_client_ack_seconds", "From the end of a stream to its client's word that it saw it."
        )

    def _counter(self, name: str, text: str, label: str | None = None, values: Iterable[str] = ()) -> Counter:
        counter = Counter(name, text, [label] if label else [], registry=self.registry)
        for value in values:
            counter.labels(value)
        return counter

    def _seconds(self, name: str, text: str) -> Histogram:
        return Histogram(name, text, buckets=_SECONDS, registry=self.registry)

    def watch_bulkhead(self, bulkhead: Watched) -> None:
        self._places.labels(bulkhead.name).set(bulkhead.size)
        self._in_use.labels(bulkhead.name).set_function(lambda: float(bulkhead.in_use))

    def watch_journal(self, lag_s: Callable[[], float]) -> None:
        self._journal_lag.set_function(lag_s)

    def exposition(self) -> bytes:
        return generate_latest(self.registry)

    def question(self) -> None:
        self._questions.inc()

    def stage(self, stage: Stage, seconds: float) -> None:
        self._stages.labels(stage.value).observe(seconds)

    def retrieval(self) -> None:
        self._retrievals.inc()

    def retrieval_path(self, served_by: str, fallback: str | None) -> None:
        self._paths.labels(served_by).inc()
        if fallback is not None:
            self._fallbacks.labels(fallback).inc()

    def search_questions(self, count: int) -> None:
        self._search_questions.observe(count)

    def model_call(self, kind: ModelCall) -> None:
        self._model_calls.labels(kind.value).inc()

    def model_retry(self, kind: Retry) -> None:
        self._model_retries.labels(kind.value).inc()

    def rerank_skip(self, reason: RerankSkip) -> None:
        self._rerank_skips.labels(reason.value).inc()

    def rewrite(self, skip: RewriteSkip | None) -> None:
        self._rewrites.labels("used" if skip is None else skip.value).inc()

    def rewrite_tokens(self, sent: int, received: int) -> None:
        self._model_tokens.labels("rewrite_input").inc(sent)
        self._model_tokens.labels("rewrite_output").inc(received)

    def answer(self, status: str) -> None:
        self._answers.labels(status).inc()

    def rejection(self, stage: str) -> None:
        self._rejections.labels(stage).inc()

    def failure(self, code: str) -> None:
        self._failures.labels(code).inc()

    def cancel(self, reason: str) -> None:
        self._cancels.labels(reason).inc()

    def recheck_drop(self, reason: str) -> None:
        self._drops.labels(reason).inc()

    def cache(self, result: CacheRead) -> None:
        self._cache.labels(result.value).inc()

    def cache_hit(self, tokens: int) -> None:
        self._cache.labels(CacheRead.HIT.value).inc()
        self._saved_tokens.inc(tokens)

    def cache_write(self, unkept: str) -> None:
        self._cache_writes.labels(unkept or "kept").inc()

    def flight(self, *, leads: bool) -> None:
        self._members.labels("leader" if leads else "follower").inc()

    def making(self, made: Made) -> None:
        self._makings.labels(made.value).inc()

    def model_tokens(self, sent: int, received: int) -> None:
        self._model_tokens.labels("input").inc(sent)
        self._model_tokens.labels("output").inc(received)

    def token_after_cancel(self, tokens: int) -> None:
        self._after_cancel.inc(tokens)

    def revocation_stop(self, seconds: float) -> None:
        self._stops.observe(seconds)

    def first_text(self, seconds: float) -> None:
        self._first_texts.observe(seconds)

    def completion(self, seconds: float) -> None:
        self._completions.observe(seconds)

    def cancelled(self, seconds: float) -> None:
        self._cancelled.observe(seconds)

    def acknowledged(self, seconds: float) -> None:
        self._acks.observe(seconds)

    def traces_dropped(self, count: int) -> None:
        self._traces_dropped.inc(count)

    def active_streams(self, count: int) -> None:
        self._streams.set(count)


def _error_codes() -> list[str]:
    """Of every class of the tree, sorted."""

    def below(kind: type[GatewayError]) -> set[str]:
        return {kind.code}.union(*(below(child) for child in kind.__subclasses__()))

    return sorted(below(GatewayError))
