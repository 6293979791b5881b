"""What may be kept of an answer: only one that anybody with the same key would have got the same way."""

from enum import StrEnum

from gateway.answer.calls.generation import Generated


class Unkept(StrEnum):
    """Why an answer is told once only, as ``gateway_cache_writes_total`` counts it."""

    NO_STORE = "no_store"  # the client said so
    RELATIVE_TIME = "relative_time"  # it was asked about now
    NOT_SHARED = "not_shared"  # what was found depends on who asked
    LEFT_OUT = "left_out"  # a passage was, that may come back without a new release
    SECOND_ENDPOINT = "second_endpoint"
    DEGRADED = "degraded"  # a stage before it was skipped
    UNFINISHED = "unfinished"  # ended by its length, or by something else than the model
    ALTERED = "altered"  # something of it was taken out on its way
    UNSURE = "unsure"  # it may be no answer to the question
    UNCITED = "uncited"  # nothing of it rests on evidence
    TOO_LARGE = "too_large"
    UNAVAILABLE = "unavailable"  # the store didn't take it


def why_found_unkept(*, shared: bool, complete: bool, degraded: bool) -> str:
    """'' when nothing about its search keeps an answer, or a refusal, from being kept."""
    if not shared:
        return Unkept.NOT_SHARED.value
    if not complete:
        return Unkept.LEFT_OUT.value
    return Unkept.DEGRADED.value if degraded else ""


def why_unkept(generated: Generated) -> str:
    """'' when nothing about its model call keeps an answer from being kept."""
    whole = generated.finish_reason == "stop"
    rules = (
        (generated.second_choice, Unkept.SECOND_ENDPOINT),
        (not whole, Unkept.UNFINISHED),
        (generated.unknown_citations > 0, Unkept.ALTERED),
        (not generated.sure and not generated.no_support, Unkept.UNSURE),
        (not generated.cited and not generated.no_support, Unkept.UNCITED),
    )
    return next((reason.value for broken, reason in rules if broken), "")
