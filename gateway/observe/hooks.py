"""Typed hooks: what the path of a question tells whoever wants to know."""

from enum import StrEnum
from typing import Protocol


class Stage(StrEnum):
    """The timed stages of a question."""

    IDENTIFY = "identify"
    AUTHORIZE = "authorize"
    BIND = "bind"
    REWRITE = "rewrite"
    CACHE = "cache"
    WAIT = "wait"  # for an answer that is being made for somebody else
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


class RerankSkip(StrEnum):
    """Why candidates stay in the fused order though there is a reranker."""

    NOT_CALIBRATED = "not_calibrated"  # the release's thresholds aren't fitted for it
    NOT_CLEARED = "not_cleared"  # a passage is too sensitive for it
    OVERLOADED = "overloaded"  # all its places are taken
    LEFT_ALONE = "left_alone"  # it keeps failing
    TOO_SLOW = "too_slow"
    UNAVAILABLE = "reranker_unavailable"


class RewriteSkip(StrEnum):
    """Why rules told a follow-up so that it stands alone, and not the model that was to."""

    NOT_CLEARED = "not_cleared"  # the last question was answered from what is too sensitive for it
    OVERLOADED = "overloaded"  # all places are taken
    NO_QUOTA = "no_quota"
    LEFT_ALONE = "left_alone"  # it keeps failing
    TOO_SLOW = "too_slow"
    UNAVAILABLE = "model_unavailable"
    EMPTY = "empty"
    MALFORMED = "malformed"  # more than a line, too long, cut off, or with characters that nobody sees
    STRAYED = "strayed"  # it says what nobody has said, or not what was asked
    RIGHTS_CHANGED = "rights_changed"  # meanwhile, on what the questions before were answered from


class CacheRead(StrEnum):
    """What a look for a kept answer came to."""

    HIT = "hit"
    MISS = "miss"
    STALE = "stale"  # its asker may not see now what it rests on
    SKIP = "skip"  # it wasn't looked for
    UNAVAILABLE = "unavailable"
    DAMAGED = "damaged"


class Made(StrEnum):
    """What was found for an answer in the making."""

    GENERATION = "generation"  # evidence: a model is asked
    REFUSAL = "refusal"  # none: no model is asked


class Hooks(Protocol):
    """Told as things happen; implementations return at once and never raise."""

    def question(self) -> None: ...

    def stage(self, stage: Stage, seconds: float) -> None: ...

    def retrieval(self) -> None: ...

    def retrieval_path(self, served_by: str, fallback: str | None) -> None: ...

    def model_call(self, kind: ModelCall) -> None: ...

    def model_retry(self, kind: Retry) -> None: ...

    def rerank_skip(self, reason: RerankSkip) -> None: ...

    def rewrite(self, skip: RewriteSkip | None) -> None: ...

    def rewrite_tokens(self, sent: int, received: int) -> None: ...

    def answer(self, status: str) -> None: ...

    def rejection(self, stage: str) -> None: ...

    def failure(self, code: str) -> None: ...

    def cancel(self, reason: str) -> None: ...

    def recheck_drop(self, reason: str) -> None: ...

    def cache(self, result: CacheRead) -> None: ...

    def cache_hit(self, tokens: int) -> None: ...

    def cache_write(self, unkept: str) -> None: ...

    def flight(self, *, leads: bool) -> None: ...

    def making(self, made: Made) -> None: ...

    def model_tokens(self, sent: int, received: int) -> None: ...

    def token_after_cancel(self, tokens: int) -> None: ...

    def revocation_stop(self, seconds: float) -> None: ...

    def active_streams(self, count: int) -> None: ...
