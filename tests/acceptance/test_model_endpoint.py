"""Answers of an outside model, through a real server: exact text, honest ends, nothing left running.

On both sides, but for a model that stalls: the caps that end it run in the serving process alone.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import anyio
import pytest
import pytest_asyncio

from gateway.client import StreamEvent
from loadtest.model_stub import ModelStub, serve_stub
from tests.harness.process import GatewayProcess, eventually, gateway_process, run_command
from tests.harness.sides import Side
from tests.harness.wire import Wire, connected

pytestmark = pytest.mark.asyncio(loop_scope="module")

API_KEY = "sk-0123456789-nobody-may-read-this"
TEXT = {
    "limits.md": "# Limits\n\nThe upload limit is 42 megabytes for every member of staff.\n",
    "limits-of-guests.md": "# Limits of guests\n\nThe upload limit is 7 megabytes for every guest.\n",
}
SECRET = {
    "limits-of-the-board.md": "# Limits of the board\n\nThe upload limit is 99 petabytes, codename Osprey.\n"
}
QUESTION = "What is the upload limit?"
UNANSWERABLE = "Who composed the opera about the lighthouse keeper?"
PATIENCE_S = 60
#: one test's failing model is not to keep the next from asking it, and answers may be as long as they like
UNBROKEN = {
    "GATEWAY_BREAKER_FAILURES": "100000",
    "GATEWAY_MODEL_CONTEXT_TOKENS": "65536",
    "GATEWAY_MAX_OUTPUT_TOKENS": "32768",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stub() -> AsyncIterator[ModelStub]:
    async with serve_stub() as one:
        yield one


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def patient(
    side: Side, stub: ModelStub, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[GatewayProcess]:
    """Waits long for the model, and says all it can in its log."""
    env = {
        "GATEWAY_MODEL_BASE_URL": stub.base_url,
        "GATEWAY_MODEL_API_KEY": API_KEY,
        "GATEWAY_FIRST_TOKEN_CAP_MS": "30000",
        "GATEWAY_IDLE_CAP_MS": "30000",
        "GATEWAY_TOTAL_CAP_MS": "60000",
        "GATEWAY_LOG_LEVEL": "debug",
        **UNBROKEN,
    }
    async with gateway_process(tmp_path_factory.mktemp("patient"), side=side, env=env) as one:
        await one.learn(TEXT)
        await one.learn(SECRET, sensitivity="2")
        await one.learn(SECRET, sensitivity="2", knowledge_base="board")
        yield one
        assert await one.stop() == 0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def strict(stub: ModelStub, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayProcess]:
    """Waits 0.3 s between two tokens, and the usual time for the first."""
    env = {"GATEWAY_MODEL_BASE_URL": stub.base_url, "GATEWAY_IDLE_CAP_MS": "300", **UNBROKEN}
    async with gateway_process(tmp_path_factory.mktemp("strict"), env=env) as one:
        await one.learn(TEXT)
        yield one
        assert await one.stop() == 0


async def ask(gateway: GatewayProcess, question: str = QUESTION) -> list[StreamEvent]:
    status, events, problem = await gateway.ask(question, knowledge_base="handbook")
    assert status == 200, problem
    return events


def text_of(events: Sequence[StreamEvent]) -> str:
    return "".join(event.data["text"] for event in events if event.name == "delta")


WORDS = "限额是 42 兆字节 🙂👩‍👩‍👧,\r\n第二行\n\nthird\rfourth \u2028 naïve 𝒳 [1]。"
WIRES: dict[str, dict[str, Any]] = {
    **{f"by_{size}": {"reply": WORDS, "split_bytes": size} for size in (1, 2, 3, 5, 7, 64)},
    "crlf": {"reply": WORDS, "split_bytes": 1, "crlf": True},
    "bare_cr": {"reply": WORDS, "split_bytes": 1, "bare_cr": True},
    "split_surrogates": {"reply": WORDS, "split_bytes": 3, "split_surrogates": True},
    "comments_between": {"reply": WORDS, "prelude": 5},
}


@pytest.mark.parametrize("script", WIRES.values(), ids=WIRES)
async def test_text_arrives_exactly_however_it_is_cut(
    patient: GatewayProcess, stub: ModelStub, script: dict[str, Any]
) -> None:
    """Chinese, emoji and every line end, cut at any byte by the upstream."""
    stub.script(**script)
    events = await ask(patient)
    assert text_of(events) == WORDS
    assert events[-1].name == "done"
    assert events[-1].data["status"] == "ANSWERED"
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))


async def test_a_giant_line_arrives_whole(patient: GatewayProcess, stub: ModelStub) -> None:
    """One token of 300 kB, then the end."""
    stub.script(reply="It is 42 [1]. ", giant_line=300_000)
    events = await ask(patient)
    assert text_of(events) == "It is 42 [1]. " + "g" * 300_000
    assert events[-1].name == "done"


DEATHS: dict[str, dict[str, Any]] = {
    "rst": {"die_after_tokens": 2, "die_how": "rst"},
    "eof": {"die_after_tokens": 2, "die_how": "eof"},
    "half_line": {"die_after_tokens": 2, "die_how": "half_line"},
    "error": {"mid_stream_error": {"message": "no memory", "code": 500}, "error_after_tokens": 2},
}


@pytest.mark.parametrize("death", DEATHS.values(), ids=DEATHS)
async def test_an_upstream_that_dies_is_never_done(
    patient: GatewayProcess, stub: ModelStub, death: dict[str, Any]
) -> None:
    """After two tokens: what came stays, then `error` with partial; no `done`, no word of the upstream's."""
    stub.script(tokens=["The limit ", "is 42 ", "megabytes [1]."], **death)
    events = await ask(patient)
    assert [event.name for event in events if event.name != "delta"] == ["meta", "error"]
    assert events[-1].name == "error"
    assert "The limit is 42".startswith(text_of(events).strip())
    assert (events[-1].data["code"], events[-1].data["partial"]) == ("upstream_failed", bool(text_of(events)))
    assert "memory" not in str(events[-1].data)


REFUSALS: dict[str, tuple[dict[str, Any], int | None]] = {
    "throttled": ({"status": 429, "retry_after": "7"}, 7000),
    "broken": ({"status": 500}, None),
    "key_shown": (
        {"status": 401, "body": {"error": {"message": f"Incorrect API key provided: {API_KEY}"}}},
        None,
    ),
}


@pytest.mark.parametrize(("error", "retry_after_ms"), REFUSALS.values(), ids=REFUSALS)
async def test_an_upstream_that_refuses_is_an_error_event(
    patient: GatewayProcess, stub: ModelStub, error: dict[str, Any], retry_after_ms: int | None
) -> None:
    """The stream has begun by then: meta, `upstream_failed`, not partial, the time to wait passed on."""
    stub.script(error_before=error)
    events = await ask(patient)
    assert [event.name for event in events] == ["meta", "error"]
    assert (events[-1].data["code"], events[-1].data["partial"]) == ("upstream_failed", False)
    assert events[-1].data.get("retry_after_ms") == retry_after_ms
    assert API_KEY not in str(events)


STALLS: dict[str, tuple[dict[str, Any], str, bool]] = {
    "headers": ({"header_delay_ms": 3_600_000}, "first_token", False),
    "first_token": ({"stall_after_tokens": 0}, "first_token", False),
    "comments_first": ({"stall_after_tokens": 0, "comments_only": True}, "first_token", False),
    "idle": ({"stall_after_tokens": 2}, "idle", True),
    "comments_later": ({"stall_after_tokens": 2, "comments_only": True}, "idle", True),
}


@pytest.mark.parametrize(("script", "stage", "partial"), STALLS.values(), ids=STALLS)
async def test_a_model_that_stalls_ends_at_its_cap(
    strict: GatewayProcess, stub: ModelStub, script: dict[str, Any], stage: str, partial: bool
) -> None:
    """`deadline_exceeded` in the name of the stage; comments keep nothing alive; the call is closed."""
    stub.script(tokens=["The limit ", "is 42 ", "megabytes [1]."], **script)
    begun = len(stub.calls)
    events = await ask(strict)
    assert [event.name for event in events if event.name != "delta"] == ["meta", "error"]
    last = events[-1].data
    assert (last["code"], last["partial"]) == ("deadline_exceeded", partial)
    assert stage in last["detail"]
    await closed(stub, begun)


async def closed(stub: ModelStub, place: int) -> None:
    """The call with that place in the log was left by its client, and produced nothing afterwards."""
    with anyio.fail_after(PATIENCE_S):
        await stub.until(lambda s: len(s.calls) > place and s.calls[place].closed_at is not None)
    call = stub.calls[place]
    assert (call.reason, call.tokens_after_close) == ("client_gone", 0)


LEAVES = {"FIN": Wire.close, "RST": Wire.abort}


@pytest.mark.parametrize("leave", LEAVES.values(), ids=LEAVES)
@pytest.mark.parametrize("tokens", [0, 3], ids=["before_the_first_token", "at_token_3"])
async def test_a_client_that_leaves_closes_the_call(
    patient: GatewayProcess, stub: ModelStub, tokens: int, leave: Any
) -> None:
    """No later token, every place back, the same question answered afresh and whole."""
    words = [f"word{n} " for n in range(100)]
    stub.script(tokens=words, cadence_ms=100, first_token_ms=0 if tokens else 25_000)
    begun = len(stub.calls)
    with anyio.fail_after(PATIENCE_S):
        async with connected(patient.port) as wire:
            await wire.ask(patient.token(), QUESTION, knowledge_base="handbook")
            await wire.read_head()
            events = wire.events()
            assert (await anext(events)).name == "meta"
            await stub.until(lambda s: len(s.calls) > begun and s.calls[begun].tokens >= tokens)
            leave(wire)
            await closed(stub, begun)
    assert tokens <= stub.calls[begun].tokens < len(words)
    await eventually(lambda: nothing_held(patient))
    stub.script(reply="It is 42 megabytes [1].")
    again = await ask(patient)
    assert text_of(again) == "It is 42 megabytes [1]."
    assert (again[-1].name, again[0].data["cached"]) == ("done", False)
    assert len(stub.calls) == begun + 2


async def nothing_held(gateway: GatewayProcess) -> bool:
    places = await gateway.metrics("gateway_bulkhead_in_use")
    return await gateway.metric("gateway_active_streams") == 0 and not any(taken for _, taken in places)


async def test_the_asker_can_stop_and_hears_so(patient: GatewayProcess, stub: ModelStub) -> None:
    """DELETE while the model is silent: 204, `error` stopped, and the call is closed."""
    stub.script(tokens=["The limit "], stall_after_tokens=1)
    begun = len(stub.calls)
    with anyio.fail_after(PATIENCE_S):
        async with connected(patient.port) as wire:
            await wire.ask(patient.token(), QUESTION, knowledge_base="handbook")
            events = wire.events()
            request_id = (await anext(events)).data["request_id"]
            await stub.until(lambda s: len(s.calls) > begun and s.calls[begun].tokens == 1)
            assert (await patient.call("DELETE", f"/v1/answers/{request_id}")).status_code == 204
            rest = [event async for event in events]
    assert (rest[-1].name, rest[-1].data["code"]) == ("error", "stopped")
    await closed(stub, begun)


async def test_a_model_without_support_refuses_without_a_word(
    patient: GatewayProcess, stub: ModelStub
) -> None:
    """The marker, in pieces, is the whole answer: a refusal that no delta came before."""
    stub.script(tokens=["[[", "NO_", "SUPPORT", "]]"])
    events = await ask(patient)
    assert [event.name for event in events] == ["meta", "done"]
    assert events[-1].data["status"] == "REFUSED_NO_EVIDENCE"
    assert events[-1].data["reasons"] == ["MODEL_FOUND_NO_SUPPORT"]
    assert events[-1].data["citations"] == []


async def test_only_citations_of_the_evidence_survive(patient: GatewayProcess, stub: ModelStub) -> None:
    """Split over tokens, in another form or unknown: `[1]` stays, `[9]` goes, the source is listed."""
    stub.script(tokens=["The upload limit is 42 megabytes [", "1", "][", "9]. ", "Really【1】[9]."])
    events = await ask(patient)
    text = text_of(events)
    assert text == "The upload limit is 42 megabytes [1]. Really[1]."
    (citation,) = events[-1].data["citations"]
    source = events[0].data["sources"][0]
    assert (citation["n"], citation["document_id"]) == (1, source["document_id"])
    assert "megabytes" in citation["quote"]


async def test_a_refusal_calls_no_model(patient: GatewayProcess, stub: ModelStub) -> None:
    """Neither the stub nor our own counter has seen a call."""
    stub.script(reply="Made up.")
    begun = len(stub.calls)
    counted = await patient.metric("gateway_model_calls_total", kind="generation")
    events = await ask(patient, UNANSWERABLE)
    assert [event.name for event in events] == ["meta", "done"]
    assert events[-1].data["status"] == "REFUSED_NO_EVIDENCE"
    assert len(stub.calls) == begun
    assert await patient.metric("gateway_model_calls_total", kind="generation") == counted


async def test_what_is_too_sensitive_never_leaves(patient: GatewayProcess, stub: ModelStub) -> None:
    """The best passage may not go to this endpoint: others do, and it isn't even named as a source."""
    question = "What is the upload limit of the board, codename Osprey?"
    found = await patient.call(
        "GET", "/v1/search", params={"query": question, "knowledge_base": "handbook", "top_k": "10"}
    )
    assert "Osprey" in found.text, "the caller himself may see it"
    stub.script()
    begun = len(stub.calls)
    for asked in (question, QUESTION):
        events = await ask(patient, asked)
        assert "petabytes" not in str(events)
        assert "board" not in str(events[0].data["sources"])
    assert len(stub.calls) > begun
    sent = [call.user_message.rpartition("Question:")[0] for call in stub.calls]
    assert all("passage 1 (" in one for one in sent)
    assert not any("petabytes" in one or "Osprey" in one for one in sent)


async def test_nothing_but_sensitive_passages_is_a_refusal(patient: GatewayProcess, stub: ModelStub) -> None:
    """A knowledge base of which nothing may leave: refused, and no model is called."""
    begun = len(stub.calls)
    status, events, _ = await patient.ask(QUESTION, knowledge_base="board")
    assert status == 200
    assert events[-1].data["status"] == "REFUSED_NO_EVIDENCE"
    assert len(stub.calls) == begun


async def test_the_key_reaches_the_model_and_nobody_else(patient: GatewayProcess, stub: ModelStub) -> None:
    """Not in logs (at debug), answers, metrics or `settings`; questions and passages aren't logged either."""
    stub.script(error_before={"status": 401, "body": {"error": {"message": f"wrong key: {API_KEY}"}}})
    begun = len(stub.calls)
    events = await ask(patient)
    assert stub.calls[begun].authorization == f"Bearer {API_KEY}"
    settings, metrics = await asyncio.gather(
        run_command("settings", env={"GATEWAY_MODEL_API_KEY": API_KEY}), patient.call("GET", "/metrics")
    )
    assert settings.code == 0
    assert "GATEWAY_MODEL_API_KEY=***" in settings.out
    for text in (patient.stderr, str(events), metrics.text, settings.out, settings.err):
        assert API_KEY not in text
    assert "answer.ended" in patient.stderr
    for private in (QUESTION, "megabytes", UNANSWERABLE, "Osprey"):
        assert private not in patient.stderr
