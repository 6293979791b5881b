"""A rerank endpoint over real sockets: well, odd, down, and left by whoever asked it."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import anyio
import pytest

from gateway.adapters.rerank.endpoint import RerankEndpoint
from gateway.context import Deadline
from gateway.errors import ConfigurationError, DeadlineExceeded, RerankerUnavailable
from gateway.retrieval.rerank import RerankRefused
from loadtest.model_stub import ModelStub, serve_stub
from loadtest.stub_script import RERANK_FAULTS

PATIENCE_S = 20
LONG_MS = 60_000
SECRET = "sk-very-secret"
QUESTION = "the upload limit"
PASSAGES = ["nothing of it", "the upload limit is 42", "a limit"]


@asynccontextmanager
async def endpoint_at(
    url: str, api_key: str | None = SECRET, api: Literal["cohere", "tei"] = "cohere"
) -> AsyncIterator[RerankEndpoint]:
    reranker = RerankEndpoint(url, "judge", api_key, max_sensitivity=1, connect_cap_ms=5000, api=api)
    try:
        yield reranker
    finally:
        await reranker.aclose()


def url_of(stub: ModelStub) -> str:
    return f"{stub.base_url}/rerank?tenant=a"


@pytest.fixture
async def stub() -> AsyncIterator[ModelStub]:
    async with serve_stub() as served:
        yield served


@pytest.mark.parametrize("api", ["cohere", "tei"])
async def test_scores_are_asked_for_in_one_call(stub: ModelStub, api: Literal["cohere", "tei"]) -> None:
    """In the form the server knows, with the key, at exactly the address; whatever their order, they come in
    that of the passages.
    """
    async with endpoint_at(url_of(stub), api=api) as reranker:
        with anyio.fail_after(PATIENCE_S):
            scores = await reranker.ranked(QUESTION, PASSAGES, Deadline.after(LONG_MS))
    assert scores[1] > scores[2] > scores[0]
    (call,) = stub.calls
    assert call.authorization == f"Bearer {SECRET}"
    asked = {"cohere": ["documents", "model", "query", "top_n"], "tei": ["query", "texts", "truncate"]}
    assert call.asked == asked[api]


async def test_no_passages_are_no_call(stub: ModelStub) -> None:
    """There is nothing to send."""
    async with endpoint_at(url_of(stub)) as reranker:
        assert await reranker.ranked(QUESTION, [], Deadline.after(LONG_MS)) == []
    assert stub.calls == []


REFUSALS: dict[int, type[RerankerUnavailable]] = {
    **dict.fromkeys((202, 307, 401, 404, 429, 503), RerankerUnavailable),
    **dict.fromkeys((413, 422), RerankRefused),
}


@pytest.mark.parametrize("status", REFUSALS)
async def test_any_other_status_is_no_order(stub: ModelStub, status: int) -> None:
    """Asked once; a redirect would take the passages elsewhere; nothing that the endpoint wrote is told."""
    answer = {"results": [{"index": i, "relevance_score": 1.0} for i in range(3)], "text": SECRET}
    error = {"status": status, "body": answer, "location": f"{stub.base_url}/rerank", "retry_after": "0"}
    stub.script_model("judge", error_before=error)
    async with endpoint_at(url_of(stub)) as reranker:
        with anyio.fail_after(PATIENCE_S), pytest.raises(RerankerUnavailable) as caught:
            await reranker.ranked(QUESTION, PASSAGES, Deadline.after(LONG_MS))
    assert type(caught.value) is REFUSALS[status]
    assert len(stub.calls) == 1
    assert str(status) in caught.value.detail or status in {401, 404}
    assert SECRET not in f"{caught.value!r} {caught.value.detail} {reranker!r}"


@pytest.mark.parametrize("fault", sorted(RERANK_FAULTS - {"slow_body"}))
async def test_an_odd_answer_is_no_order(stub: ModelStub, fault: str) -> None:
    """Half a body, one without an end, numbers for other passages: never a guess. The pool stays usable."""
    stub.script_model("judge", rerank=fault)
    async with endpoint_at(url_of(stub)) as reranker:
        with anyio.fail_after(PATIENCE_S):
            with pytest.raises(RerankerUnavailable) as caught:
                await reranker.ranked(QUESTION, PASSAGES, Deadline.after(LONG_MS))
            assert 0 < len(caught.value.detail) < 90
            stub.script_model("judge")
            assert len(await reranker.ranked(QUESTION, PASSAGES, Deadline.after(LONG_MS))) == 3


@pytest.mark.parametrize(
    "script", [{"gate_after_tokens": 0}, {"rerank": "slow_body"}], ids=["silent", "half"]
)
async def test_a_slow_endpoint_is_hung_up_on_at_the_deadline(stub: ModelStub, script: dict[str, Any]) -> None:
    """Before its headers as in the middle of its body."""
    stub.script_model("judge", **script)
    async with endpoint_at(url_of(stub)) as reranker:
        with anyio.fail_after(PATIENCE_S):
            with pytest.raises(DeadlineExceeded) as caught:
                await reranker.ranked(QUESTION, PASSAGES, Deadline.after(100))
            await stub.until(lambda s: s.calls[0].closed_at is not None)
    assert (caught.value.stage, stub.calls[0].reason) == ("rerank", "client_gone")


async def test_a_cancel_hangs_up_at_once(stub: ModelStub) -> None:
    """While nothing has come yet."""
    stub.script_model("judge", gate_after_tokens=0)
    async with endpoint_at(url_of(stub)) as reranker:
        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as group:
                group.start_soon(reranker.ranked, QUESTION, PASSAGES, Deadline.after(LONG_MS))
                await stub.until(lambda s: bool(s.calls))
                group.cancel_scope.cancel()
            await stub.until(lambda s: s.calls[0].closed_at is not None)
    assert stub.calls[0].reason == "client_gone"


async def test_readiness_sees_a_closed_door_and_asks_for_no_order(stub: ModelStub) -> None:
    """A server may bill for those."""
    async with endpoint_at(url_of(stub)) as reranker:
        assert await reranker.ping()
    assert stub.calls == []
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        async with endpoint_at(f"http://127.0.0.1:{unused.getsockname()[1]}/rerank") as reranker:
            assert not await reranker.ping()
            with pytest.raises(RerankerUnavailable):
                await reranker.ranked(QUESTION, PASSAGES, Deadline.after(LONG_MS))


@pytest.mark.parametrize("url", ["", "ftp://h/rerank", "http://", f"http://user:{SECRET}@h/rerank"])
def test_an_address_that_can_not_be_used_is_refused_at_once(url: str) -> None:
    """Without a word of it."""
    with pytest.raises(ConfigurationError) as caught:
        RerankEndpoint(url, "judge", None, max_sensitivity=1, connect_cap_ms=1)
    assert caught.value.reason == "reranker_base_url_invalid"
    assert SECRET not in caught.value.detail


def test_a_key_that_can_not_stand_in_a_header_is_refused_at_once() -> None:
    """Later it would show in an error."""
    with pytest.raises(ConfigurationError) as caught:
        RerankEndpoint("http://h/rerank", "judge", f"{SECRET}\n", max_sensitivity=1, connect_cap_ms=1)
    assert SECRET not in caught.value.detail


def test_the_version_names_the_model_and_not_its_address() -> None:
    """Thresholds are fitted for what makes the numbers."""
    one, same = (
        RerankEndpoint(f"http://{host}/rerank", "judge", None, max_sensitivity=1, connect_cap_ms=1)
        for host in "ab"
    )
    other = RerankEndpoint("http://a/rerank", "jury", None, max_sensitivity=1, connect_cap_ms=1)
    assert one.version == same.version != other.version
