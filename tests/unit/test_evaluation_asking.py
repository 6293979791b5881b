"""Evaluating a gateway that is busy or ends a stream for the moment: the question is asked again."""

import httpx2
import pytest

from gateway.client import GatewayClient
from gateway.errors import Killed, RevocationFeedStale, ShuttingDown
from gateway.evaluation.asking import answer_of

WHOLE = (
    "event: meta\ndata: {}\n\n"
    'event: delta\ndata: {"text": "Ten days."}\n\n'
    'event: done\ndata: {"status": "ANSWERED"}\n\n'
)


def ended_with(code: str) -> str:
    return f'event: meta\ndata: {{}}\n\nevent: error\ndata: {{"code": "{code}"}}\n\n'


def gateway(*streams: str) -> tuple[GatewayClient, list[httpx2.Request]]:
    """One that answers with these streams, one after the other, and the questions that it got."""
    asked: list[httpx2.Request] = []

    def handle(request: httpx2.Request) -> httpx2.Response:
        if request.url.path.endswith("/ack"):
            return httpx2.Response(204)
        asked.append(request)
        stream = streams[len(asked) - 1]
        return httpx2.Response(200, text=stream, headers={"Content-Type": "text/event-stream"})

    return GatewayClient("http://gateway", "t", transport=httpx2.MockTransport(handle)), asked


@pytest.mark.parametrize("code", [RevocationFeedStale.code, ShuttingDown.code])
def test_a_stream_that_ends_for_want_of_something_passing_is_asked_for_again(code: str) -> None:
    """Its half is no outcome: the whole one is."""
    client, asked = gateway(ended_with(code), WHOLE)
    with client:
        text, done = answer_of(client, "kb", "How many days?")
    assert (text, done["status"], len(asked)) == ("Ten days.", "ANSWERED", 2)


def test_a_stream_that_somebody_ended_is_an_outcome() -> None:
    """Asking again would hide it."""
    client, asked = gateway(ended_with(Killed.code), WHOLE)
    with client:
        _, done = answer_of(client, "kb", "How many days?")
    assert (done["code"], len(asked)) == ("killed", 1)
