"""What breaks in production, broken on purpose in a whole town: one row of the requirements each."""

import asyncio
import contextlib
from collections.abc import Callable

import anyio
import pytest

from tests.faults.city import LIMIT, City, counted, most_at_once
from tests.harness.process import eventually
from tests.harness.wire import connected
from tests.integration.production_world import QUESTION

pytestmark = pytest.mark.asyncio(loop_scope="package")

PATIENCE_S = 120
Note = Callable[[str], None]
SLOW = {"first_token_ms": 250, "cadence_ms": 25}
TOKENS = [f"word{n} " for n in range(20)]


@pytest.mark.soak
@pytest.mark.fault("FLT-1")
async def test_a_model_five_times_slower_costs_time_and_nothing_else(city: City, evidence: Note) -> None:
    """The same questions end whole, inside the total cap; never more calls run than the quota allows."""
    with anyio.fail_after(PATIENCE_S):
        await city.script_model(tokens=[*TOKENS, "[1]"], **SLOW)
        usual = await city.several(LIMIT)
        await city.script_model(tokens=[*TOKENS, "[1]"], **{k: 5 * v for k, v in SLOW.items()})
        slow = await city.several(LIMIT * 2)
        calls = await city.calls()
    assert all(answer.whole for answer in usual)
    assert all(answer.whole or answer.status in {429, 503} for answer in slow)
    assert sum(answer.whole for answer in slow) >= LIMIT
    assert most_at_once(calls) <= LIMIT
    evidence(
        f"usual {counted(usual)}; five times slower {counted(slow)}; at most {most_at_once(calls)} calls"
    )


@pytest.mark.fault("FLT-2")
async def test_a_model_that_throttles_is_not_hammered(city: City, evidence: Note) -> None:
    """429 for good: an error with its code, at most one repetition each, then the endpoint is left alone."""
    with anyio.fail_after(PATIENCE_S):
        await city.script_model(error_before={"status": 429, "retry_after": "0"})
        refused = [await city.ask(subject=f"asker-{n}") for n in range(24)]
        asked = len(await city.calls())
        assert not any(answer.whole for answer in refused)
        assert asked < 2 * len(refused), "the breakers spare the model the later ones"
        await city.reset_model()

        async def answered() -> bool:
            return all([(await city.ask()).whole for _ in range(4)])

        await eventually(answered)
    evidence(f"24 questions: {counted(refused)}; the model was asked {asked} times; then it answers again")


@pytest.mark.fault("FLT-3")
async def test_a_vector_store_that_hangs_gives_no_answer_and_no_looser_search(
    city: City, evidence: Note
) -> None:
    """A status with a code, no call of the model, and what a stranger may see is as little as before."""
    with anyio.fail_after(PATIENCE_S):
        before = await city.ask(groups=("strangers",))
        city.town.milvus.pause()
        try:
            hanging = await city.several(4)
            stranger = await city.ask(groups=("strangers",))
        finally:
            city.town.milvus.resume()
        calls = len(await city.calls())
        assert {answer.status for answer in hanging} <= {503, 504}
        assert (before.status, stranger.status) == (404, 404)
        assert calls == 0
        await city.whole()
    evidence(f"4 questions: {counted(hanging)}; a stranger 404 before and meanwhile; model calls {calls}")


@pytest.mark.fault("FLT-7")
async def test_another_tenants_names_and_fields_open_nothing(city: City, evidence: Note) -> None:
    """Foreign names are like missing ones, forged fields are refused, the model hears of neither."""
    with anyio.fail_after(PATIENCE_S):
        foreign = await city.ask(tenant="globex", subject="eve", groups=("staff",))
        async with connected(city.town.nginx.port) as wire:
            await wire.ask(city.town.token(), QUESTION, tenant_id="globex", roles=["admin"])
            forged = (await wire.read_head()).status, (await wire.json())["code"]
        calls = len(await city.calls())
    assert foreign.status == 404
    assert forged == (400, "unknown_field")
    assert calls == 0
    evidence(f"foreign tenant {foreign.status}; forged fields {forged[0]} {forged[1]}; model calls {calls}")


@pytest.mark.fault("FLT-9")
@pytest.mark.parametrize("tokens_before", [0, 3], ids=["before the first token", "mid-stream"])
async def test_a_client_that_leaves_takes_its_call_along(
    city: City, evidence: Note, tokens_before: int
) -> None:
    """Through nginx: the model's connection is closed, no token comes after that, every place is free."""
    with anyio.fail_after(PATIENCE_S):
        await city.script_model(tokens=TOKENS, stall_after_tokens=tokens_before)
        async with connected(city.town.nginx.port) as wire:
            await wire.ask(city.town.token(), QUESTION)
            await wire.read_head()
            seen = 0
            async for event in wire.events():
                seen += event.name == "delta"
                if event.name == ("meta" if tokens_before == 0 else "delta"):
                    break
            wire.abort()

        async def closed() -> bool:
            return all(call["closed_at"] is not None for call in await city.calls())

        await eventually(closed)
        (call,) = await city.calls()
        await eventually(lambda: _free(city))
    assert call["reason"] == "client_gone"
    assert call["tokens_after_close"] == 0
    evidence(f"after {seen} deltas: upstream closed by us, {call['tokens']} tokens said, 0 after the close")


async def _free(city: City) -> bool:
    in_use = await city.metric("gateway_bulkhead_in_use")
    return in_use == 0 and await city.metric("gateway_active_streams") == 0


@pytest.mark.fault("FLT-10")
async def test_a_gateway_that_dies_is_gone_for_its_own_streams_only(city: City, evidence: Note) -> None:
    """kill -9: its streams end cut, the others go on, questions are answered at once, and it comes back."""
    first, second = city.town.gateways
    with anyio.fail_after(PATIENCE_S):
        await city.script_model(tokens=[*TOKENS, "[1]"], cadence_ms=100)
        async with anyio.create_task_group() as tasks:
            ended: dict[str, list[bool]] = {"first": [], "second": []}

            async def watch(name: str, port: int, subject: str) -> None:
                ended[name].append((await city.ask(port=port, subject=subject)).whole)

            for n in range(2):
                tasks.start_soon(watch, "first", first.port, f"first-{n}")
                tasks.start_soon(watch, "second", second.port, f"second-{n}")
            await eventually(lambda: _said(city, 4))
            await first.kill()
            meanwhile = [await city.ask(subject=f"meanwhile-{n}") for n in range(2)]
        assert ended == {"first": [False, False], "second": [True, True]}
        assert all(answer.whole for answer in meanwhile)
        await first.start()
        await city.whole()
    evidence(
        "2 streams cut, 2 beside them whole, 2 new ones answered meanwhile; the process is back and serves"
    )


async def _said(city: City, calls: int) -> bool:
    found = await city.calls()
    return len(found) >= calls and all(call["tokens"] >= 1 for call in found)


@pytest.mark.soak
@pytest.mark.fault("FLT-10")
async def test_a_vector_store_that_dies_is_found_again(city: City, evidence: Note) -> None:
    """While it is away: 503 with its code, and readiness says so; back: answers, without a restart."""
    with anyio.fail_after(PATIENCE_S):
        city.town.milvus.stop()
        away = await city.several(2)
        code = (await city.problem(city.town.gateways[0]))["code"]
        city.town.milvus.start()
        await city.whole()
        back = await city.ask()
    assert {answer.status for answer in away} <= {503, 504}
    assert code in {"vector_store_unavailable", "deadline_exceeded"}
    assert back.whole
    evidence(f"away: {counted(away)} ({code}); back: answered")


@pytest.mark.fault("FLT-10")
async def test_a_worker_that_dies_leaves_its_import_to_the_next(city: City, evidence: Note) -> None:
    """kill -9 in the middle of an import; the next worker ends it, and the answer is there."""
    pages = {f"page-{n}.md": f"# Page {n}\n\nThe code of page {n} is K{n}.\n" for n in range(30)}
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            learned = anyio.Event()

            async def learn() -> None:
                await city.town.learn(pages, knowledge_base="pages")
                learned.set()

            tasks.start_soon(learn)
            await eventually(lambda: _importing(city))
            await city.town.worker.kill()
            assert not learned.is_set()
            await city.town.worker.start()
            await learned.wait()
    evidence("killed while it imported 30 documents; the next worker ended the same task")


async def _importing(city: City) -> bool:
    with contextlib.suppress(OSError):
        return '"task.claimed"' in await asyncio.to_thread(city.town.worker.errors.read_text)
    return False
