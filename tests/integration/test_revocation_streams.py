"""Rights that end while an answer is streaming: it ends at once, with the right word and nothing after it."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
import pytest_asyncio

from gateway.adapters.memory.models import Gate, ScriptedModel
from gateway.client import StreamEvent
from gateway.errors import CatalogUnavailable
from tests.harness.process import eventually
from tests.harness.serving import serving
from tests.harness.wire import Wire, ask, connected, request
from tests.integration.revocation_world import (
    ACTS,
    PATIENCE_S,
    PIECES,
    QUESTION,
    Act,
    Stopping,
    Switchboard,
    Told,
    stopping_ground,
    stops,
    told,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: a feed that looks when it is told to, and for a test's time at no other moment
SELDOM: dict[str, Any] = {"revocation_poll_ms": 3_600_000, "revocation_bound_ms": 7_200_000}
by_act = pytest.mark.parametrize("act", ACTS, ids=lambda act: act.name)


@pytest.fixture(scope="module")
def board() -> Switchboard:
    """Connects the module's one server with the world of the moment."""
    return Switchboard()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def port(board: Switchboard) -> AsyncIterator[int]:
    """Of the module's server."""
    async with serving(board) as port:
        yield port


async def held_at(piece: int, **options: Any) -> tuple[Told, Gate]:
    """A world whose model waits before that piece; -1 is before its headers."""
    gate = Gate()
    model = ScriptedModel(PIECES, hold={piece: gate})
    return await told(stopping_ground(), model=model, **{**SELDOM, **options}), gate


async def read_until(wire: Wire, text: str) -> str:
    """The text of the answer up to ``text``; the head is read."""
    said = ""
    async for event in wire.events():
        said += str(event.data.get("text", ""))
        if text in said:
            return said
    raise AssertionError("the answer ended")


@by_act
@pytest.mark.parametrize("piece", [-1, 0, 5], ids=["before_the_headers", "before_the_first", "at_token_5"])
async def test_a_running_answer_ends_at_once(board: Switchboard, port: int, act: Act, piece: int) -> None:
    """Done over HTTP, with a feed that would not look by itself for an hour; the model is closed."""
    known, gate = await held_at(piece)
    with anyio.fail_after(PATIENCE_S):
        async with board.connecting(known.world), connected(port) as wire:
            before = time.time()
            await wire.ask(known.credentials[act.credential], QUESTION)
            await gate.reached.wait()
            assert await act.over_http(known, port) in {200, 201, 202, 204}
            events = await wire.all_events()
            assert [e.name for e in events if e.name != "delta"] == ["meta", "revoked"]
            assert "".join(e.data["text"] for e in events[1:-1]) in "".join(PIECES[: max(0, piece)])
            told_of = events[-1].data
            assert (told_of["reason"], told_of["partial"]) == (act.reason, True)
            assert before <= told_of["revoked_at"] <= time.time()
            await known.world.registry.idle()
    known.world.assert_nothing_held()
    assert known.world.model.produced <= max(0, piece)


async def test_the_principal_then_the_document_at_token_5_of_50(board: Switchboard, port: int) -> None:
    """One end, for the first of the two, and no text after it."""
    known, gate = await held_at(5)
    user, document = ACTS[0], ACTS[2]
    with anyio.fail_after(PATIENCE_S):
        async with board.connecting(known.world), connected(port) as wire:
            await wire.ask(known.credentials["token"], QUESTION)
            await wire.read_head()
            assert await read_until(wire, "word3") in "".join(PIECES[:5])
            await user.over_http(known, port)
            await document.over_http(known, port)
            gate.release.set()
            (event,) = await wire.all_events()
            assert (event.name, event.data["reason"]) == ("revoked", "user")
            head, _ = await ask(port, known.credentials["token"], QUESTION)
            assert head.status == 403


async def test_lifting_gives_access_back_to_new_questions(board: Switchboard, port: int) -> None:
    """Refused while it is in force, answered afterwards."""
    known = await told(**SELDOM)
    record: Any = await ACTS[0].in_catalog(known)
    with anyio.fail_after(PATIENCE_S):
        async with board.connecting(known.world):
            assert (await ask(port, known.credentials["token"], QUESTION))[0].status == 403
            path = f"/v1/revocations/{record.revocation_id}/lift"
            assert (await request(port, "POST", path, token=known.administrator))[0].status == 200
            _, events = await ask(port, known.credentials["token"], QUESTION)
            assert events[-1].name == "done"


async def test_others_go_on(board: Switchboard, port: int) -> None:
    """A revocation of one person leaves another's running answer alone, to its end."""
    known, gate = await held_at(5)
    with anyio.fail_after(PATIENCE_S):
        async with board.connecting(known.world), connected(port) as wire:
            await wire.ask(known.world.token(subject="bob"), QUESTION)
            await gate.reached.wait()
            await ACTS[0].over_http(known, port)
            await known.world.services.feed.step()
            gate.release.set()
            assert (await wire.all_events())[-1].name == "done"


async def test_an_answer_ends_with_its_callers_token(board: Switchboard, port: int) -> None:
    """It was good when the question came; the leeway of its verifier is the feed's."""
    known, gate = await held_at(5, token_leeway_s=0, revocation_poll_ms=20)
    with anyio.fail_after(PATIENCE_S):
        async with board.connecting(known.world), connected(port) as wire:
            await wire.ask(known.world.token(ttl_s=2), QUESTION)
            await gate.reached.wait()
            *_, last = await wire.all_events()
            assert (last.name, last.data["reason"]) == ("revoked", "token_expired")
            assert 0 <= time.time() - last.data["revoked_at"] < PATIENCE_S
            await known.world.registry.idle()


async def test_a_question_ends_with_its_callers_key(board: Switchboard, port: int) -> None:
    """401 before the first byte; keys have no leeway, so neither has the feed."""
    known, _ = await held_at(5, revocation_poll_ms=20, catalog_cap_ms=60_000)
    gate = known.catalog.gate("active")
    credential = await known.key(expires_at=time.time() + 1)
    with anyio.fail_after(PATIENCE_S):
        async with board.connecting(known.world), connected(port) as wire:
            await wire.ask(credential, QUESTION)
            await gate.reached.wait()
            assert (await wire.read_head()).status == 401
            assert (await wire.json())["code"] == "token_expired"
            await known.world.registry.idle()


FAULTS = ("hanging", "failing")


@pytest.mark.parametrize("fault", FAULTS)
async def test_when_rights_cannot_be_followed_everything_protected_ends(
    board: Switchboard, port: int, fault: str
) -> None:
    """Running answers, questions, searches and sources; readiness names the part. It heals by itself."""
    settings = {"revocation_poll_ms": 20, "revocation_bound_ms": 400}
    known, gate = await held_at(5, **settings)
    catalog: Stopping = known.world.catalog
    token = known.credentials["token"]
    with anyio.fail_after(PATIENCE_S):
        async with board.connecting(known.world), connected(port) as wire:
            await wire.ask(token, QUESTION)
            await gate.reached.wait()
            if fault == "hanging":
                catalog.hanging["tenant_stamps"] = Gate()
            else:
                catalog.failing["tenant_stamps"] = CatalogUnavailable()
            *_, last = await wire.all_events()
            assert (last.name, last.data["code"]) == ("error", "revocation_feed_stale")
            assert last.data["partial"] is True
            assert await refused(port, token) == {(503, "revocation_feed_stale", True)}
            assert b'"revocations":false' in (await request(port, "GET", "/readyz"))[1]
            heal(catalog)
            gate.release.set()

            async def answered() -> bool:
                return (await ask(port, token, QUESTION))[0].status == 200

            await eventually(answered, within_s=PATIENCE_S)


async def refused(port: int, token: str) -> set[tuple[int, str, bool]]:
    """Status, code and whether there is a Retry-After, of everything that shows protected text."""
    found = set()
    for path in ("/v1/search?query=limit", "/v1/sources/any"):
        head, body = await request(port, "GET", path, token=token)
        found.add((head.status, code_of(body), "retry-after" in head.headers))
    async with connected(port) as wire:
        await wire.ask(token, QUESTION)
        head = await wire.read_head()
        found.add((head.status, str((await wire.json())["code"]), "retry-after" in head.headers))
    return found


def code_of(body: bytes) -> str:
    return body.partition(b'"code":"')[2].partition(b'"')[0].decode()


def heal(catalog: Stopping) -> None:
    for gate in catalog.hanging.values():
        gate.release.set()
    catalog.hanging.clear()
    catalog.failing.clear()


async def test_a_reader_that_does_not_read_is_counted_until_its_last_byte(
    board: Switchboard, port: int
) -> None:
    """The time to the stop ends when nothing more leaves to him, not when the session was ended."""
    flood = ScriptedModel(["x" * 65_536] * 400)
    known = await told(stopping_ground(), model=flood, **SELDOM, send_timeout_s=1, total_cap_ms=60_000)
    with anyio.fail_after(PATIENCE_S):
        async with board.connecting(known.world), connected(port, receive_buffer=4096) as wire:
            await wire.ask(known.credentials["token"], QUESTION)
            await stuck(flood)
            assert stops(known) == (0.0, 0.0)
            await ACTS[0].over_http(known, port)
            await known.world.registry.idle()
            count, seconds = stops(known)
            assert count == 1
            assert seconds > 0


async def stuck(model: ScriptedModel) -> None:
    """Returns once the model has produced nothing over many turns of the loop."""
    still, seen = 0, -1
    while still < 2000:
        await asyncio.sleep(0)
        still = still + 1 if model.produced == seen and seen > 0 else 0
        seen = model.produced


async def test_a_stop_is_measured_from_its_acceptance(board: Switchboard, port: int) -> None:
    """Also when the feed looks late: what the clock of the database says was between the two counts."""
    known, gate = await held_at(5)
    events: list[StreamEvent] = []
    with anyio.fail_after(PATIENCE_S):
        async with board.connecting(known.world), connected(port) as wire:
            await wire.ask(known.credentials["token"], QUESTION)
            await gate.reached.wait()
            await ACTS[0].in_catalog(known)
            accepted = time.monotonic()
            await request(port, "GET", "/healthz")
            known.world.services.feed.wake()
            events = await wire.all_events()
            await known.world.registry.idle()
            count, seconds = stops(known)
            assert (events[-1].name, count) == ("revoked", 1)
            assert 0 < seconds <= time.monotonic() - accepted + 0.05
