"""Typed hooks: what the path of a question tells whoever wants to know."""

from enum import StrEnum
from typing import Protocol


class Stage(StrEnum):
    """The timed stages of a question."""

    IDENTIFY = "identify"
    AUTHORIZE = "authorize"
    BIND = "bind"
    EMBED = "embed"
    RETRIEVE = "retrieve"
    RECHECK = "recheck"
    RERANK = "rerank"
    GATE = "gate"
    GENERATE = "generate"
    MODERATE = "moderate"
    SETTLE = "settle"


class ModelCall(StrEnum):
    GENERATION = "generation"
    REWRITE = "rewrite"
    MODERATION = "moderation"


class Retry(StrEnum):
    """Which endpoint a model call that failed before its first text is repeated at."""

    SAME_ENDPOINT = "same_endpoint"
    SECOND_ENDPOINT = "second_endpoint"


class Hooks(Protocol):
    """Told as things happen; implementations return at once and never raise."""

    def question(self) -> None: ...

    def stage(self, stage: Stage, seconds: float) -> None: ...

    def retrieval(self) -> None: ...

    def model_call(self, kind: ModelCall) -> None: ...

    def model_retry(self, kind: Retry) -> None: ...

    def answer(self, status: str) -> None: ...

    def rejection(self, stage: str) -> None: ...

    def failure(self, code: str) -> None: ...

    def cancel(self, reason: str) -> None: ...

    def recheck_drop(self, reason: str) -> None: ...

    def cache(self, result: str) -> None: ...

    def token_after_cancel(self, tokens: int) -> None: ...

    def revocation_stop(self, seconds: float) -> None: ...

    def active_streams(self, count: int) -> None: ...
