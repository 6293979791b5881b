"""The legal order of events: a table of what may follow what."""

import itertools

import pytest

from gateway.errors import ProtocolViolation
from gateway.stream.protocol import (
    EVENT_NAMES,
    AnswerStatus,
    Delta,
    Done,
    Error,
    Event,
    Meta,
    Revoked,
    StreamOrder,
    StreamState,
    Timings,
    Usage,
)

META = Meta("req", "trace", "kb", "rev", 1, "space", "model", False, ())
DELTA = Delta("text")


def done(status: AnswerStatus) -> Done:
    return Done(status, (), (), Usage(0, 0, estimated=False), False, False, Timings(0, None, 0))


EVENTS: dict[str, Event] = {
    "meta": META,
    "delta": DELTA,
    "answered": done(AnswerStatus.ANSWERED),
    "refused": done(AnswerStatus.REFUSED_NO_EVIDENCE),
    "error": Error("code", "title", "detail", False),
    "revoked": Revoked("user", 0.0),
}
TERMINALS = ("answered", "refused", "error", "revoked")

#: what may come after each history, by name; everything else is a violation
LEGAL: dict[tuple[str, ...], set[str]] = {
    (): {"meta"},
    ("meta",): {"delta", *TERMINALS},
    ("meta", "delta"): {"delta", "answered", "error", "revoked"},
    ("meta", "delta", "delta"): {"delta", "answered", "error", "revoked"},
    **{("meta", last): set() for last in TERMINALS},
    **{("meta", "delta", last): set() for last in TERMINALS if last != "refused"},
}


@pytest.mark.parametrize(
    ("history", "event"),
    list(itertools.product(LEGAL, EVENTS)),
    ids=lambda value: "+".join(value) or "nothing" if isinstance(value, tuple) else value,
)
def test_an_event_comes_only_where_the_table_lets_it(history: tuple[str, ...], event: str) -> None:
    """Legal ones get the next number; others raise and change nothing."""
    order = StreamOrder()
    assert [order.accept(EVENTS[name]) for name in history] == list(range(1, len(history) + 1))
    state = order.state
    if event in LEGAL[history]:
        assert order.accept(EVENTS[event]) == len(history) + 1
        assert (order.state is StreamState.CLOSED) is (event in TERMINALS)
        return
    with pytest.raises(ProtocolViolation):
        order.accept(EVENTS[event])
    assert order.state is state
    for name in LEGAL[history]:
        assert order.accept(EVENTS[name]) == len(history) + 1
        break


def test_every_event_has_a_name_on_the_wire() -> None:
    """Clients dispatch on it."""
    assert {EVENT_NAMES[type(event)] for event in EVENTS.values()} == set(EVENT_NAMES.values())
    assert len(set(EVENT_NAMES.values())) == len(EVENT_NAMES)
