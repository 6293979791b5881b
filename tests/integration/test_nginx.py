"""The shipped nginx in front of real gateways: what it passes on, at once, and what it refuses itself."""

import asyncio
import contextlib
import json
import re
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from gateway import errors
from gateway.adapters.memory.models import Gate, ScriptedModel
from gateway.client import StreamEvent
from gateway.settings import Settings
from gateway.stream.session import CloseReason
from tests.harness.nginx import PLAIN, SHIPPED, TLS, Nginx, configuration_errors, free_port, nginx
from tests.harness.process import eventually
from tests.harness.proxy import Proxy, proxy_to
from tests.harness.serving import serving_world
from tests.harness.wire import Head, ask, connected, request
from tests.harness.world import World

TEXT = {"limits.md": "# Limits\n\nThe upload limit is 42 megabytes for every member of staff.\n"}
QUESTION = "What is the upload limit?"
PATIENCE_S = 20


async def knowing(**settings: Any) -> World:
    """A world that knows the answer."""
    world = World(**settings)
    await world.learn(TEXT)
    return world


@asynccontextmanager
async def behind(world: World) -> AsyncIterator[Nginx]:
    async with serving_world(world) as port, nginx(port) as server:
        yield server


def problem_of(head: Head, body: bytes) -> dict[str, Any]:
    """The body of a refusal that nginx made itself, and its id is in the head too."""
    assert head.headers["content-type"] == "application/problem+json"
    assert head.headers["cache-control"] == "no-store"
    problem: dict[str, Any] = json.loads(body)
    assert problem["status"] == head.status
    assert problem["request_id"] == head.headers["x-request-id"]
    return problem


@pytest.mark.parametrize("variant", [PLAIN, TLS])
def test_the_shipped_files_are_good(variant: str, tmp_path: Path) -> None:
    """As nginx itself says, without a warning."""
    assert configuration_errors(tmp_path, variant) == ""


# -- what passes, and when ---------------------------------------------------------------------------


async def test_events_pass_one_by_one() -> None:
    """``meta`` before the model's first token, and each delta before the next token is made."""
    gates = {0: Gate(), 1: Gate(), 2: Gate()}
    model = ScriptedModel(["The limit", " is 42"], hold=gates)
    world = await knowing(model=model)
    with anyio.fail_after(PATIENCE_S):
        async with behind(world) as server, connected(server.port) as wire:
            await wire.ask(world.token(), QUESTION)
            head = await wire.read_head()
            events = wire.events()
            assert (await anext(events)).name == "meta"
            assert model.produced == 0
            for place, text in enumerate(["The limit", " is 42"]):
                gates[place].release.set()
                assert (await anext(events)).data["text"] == text
                assert model.produced == place + 1
            gates[2].release.set()
            assert (await anext(events)).name == "done"
    assert head.headers["x-request-id"].startswith("req_")
    assert "content-encoding" not in head.headers
    assert not head.headers.get("server", "").startswith("nginx/")


@pytest.mark.parametrize("leave", ["FIN", "RST", "half-close"])
@pytest.mark.parametrize("place", [-1, 0, 1], ids=["no-head", "no-token", "mid-stream"])
async def test_a_client_that_leaves_ends_its_question(leave: str, place: int) -> None:
    """At the gateway and at the model, however it leaves; nginx takes a half-closed one for gone, too."""
    gate = Gate()
    model = ScriptedModel(["a ", "b "], hold={place: gate})
    world = await knowing(model=model, total_cap_ms=10 * 60_000)  # nothing else ends it
    with anyio.fail_after(PATIENCE_S):
        async with behind(world) as server, connected(server.port) as wire:
            await wire.ask(world.token(), QUESTION)
            await gate.reached.wait()
            (session,) = world.registry.of_tenant("acme")
            {"FIN": wire.close, "RST": wire.abort, "half-close": wire.half_close}[leave]()
            await world.registry.idle()
    assert session.close_reason is CloseReason.CLIENT_GONE
    world.assert_nothing_held()


def one_worker(text: str) -> str:
    """Each worker keeps connections of its own."""
    return text.replace("worker_processes auto", "worker_processes 1")


async def test_connections_to_the_gateway_are_kept() -> None:
    """Three questions, one after the other, one connection."""
    world = await knowing()
    with anyio.fail_after(PATIENCE_S):
        async with serving_world(world) as port, proxy_to(port) as proxy:
            async with nginx(proxy.port, change=one_worker) as server:
                for _ in range(3):
                    head, events = await ask(server.port, world.token(), QUESTION)
                    assert (head.status, events[-1].name) == (200, "done")
                    assert proxy.connections == 1


async def test_neither_questions_nor_tokens_are_written_down() -> None:
    """Not in the line of a request, nor in the message about a gateway that can't be reached."""
    async with nginx(free_port()) as server:
        head, _ = await request(
            server.port, "GET", "/v1/search?query=a-secret-question", token="a-secret-token"
        )
        assert head.status == 502
        await ask(server.port, "a-secret-token", "a-secret-question")

        async def written() -> bool:
            return '"method":"POST","path":"/v1/answers","status":502,"request_id":"req_' in server.log

        await eventually(written)  # after the client has its answer
        assert '"path":"/v1/search","status":502' in server.log
        assert "a-secret" not in server.log


# -- two gateways ------------------------------------------------------------------------------------


class Pair:
    """Two gateways, each behind a proxy that a test can cut."""

    def __init__(self, worlds: list[World], proxies: list[Proxy], server: Nginx) -> None:
        self.worlds = worlds
        self.proxies = proxies
        self.port = server.port

    @property
    def calls(self) -> list[int]:
        """What each gateway's model was asked."""
        return [world.model.called for world in self.worlds]

    def asked(self) -> int:
        """Which one was asked, when it was one."""
        return self.calls.index(1)

    async def ask(self) -> tuple[Head, list[StreamEvent]]:
        return await ask(self.port, self.worlds[0].token(), QUESTION)


@asynccontextmanager
async def pair(**model: Any) -> AsyncIterator[Pair]:
    worlds = [await knowing(model=ScriptedModel(["The limit ", "is 42 [1]."], **model)) for _ in range(2)]
    with anyio.fail_after(PATIENCE_S):
        async with serving_world(worlds[0]) as one, serving_world(worlds[1]) as two:
            async with (
                proxy_to(one) as first,
                proxy_to(two) as second,
                nginx(first.port, second.port) as server,
            ):
                yield Pair(worlds, [first, second], server)


async def test_a_gateway_that_dies_breaks_its_streams_off_and_the_other_goes_on() -> None:
    """The client sees a stream without an end, asks again, and gets its answer; nothing runs twice."""
    gate = Gate()
    async with pair(hold={1: gate}) as two, connected(two.port) as wire:
        await wire.ask(two.worlds[0].token(), QUESTION)
        events = wire.events()
        assert [(await anext(events)).name, (await anext(events)).name] == ["meta", "delta"]
        dead = two.asked()
        await two.proxies[dead].refuse()
        with pytest.raises(asyncio.IncompleteReadError):
            await anext(events)
        gate.release.set()
        for asked in (1, 2, 3):
            head, answer = await two.ask()
            assert (head.status, answer[-1].name) == (200, "done")
            assert two.calls[1 - dead] == asked
        assert two.calls[dead] == 1


async def test_a_question_that_was_sent_is_never_sent_again() -> None:
    """Its gateway's answer is lost before the first byte: the client is told, the other one isn't asked."""
    gate = Gate()
    async with pair(hold={-1: gate}) as two, connected(two.port) as wire:
        await wire.ask(two.worlds[0].token(), QUESTION)
        await gate.reached.wait()
        await two.proxies[two.asked()].cut()
        head = await wire.read_head()
        assert problem_of(head, await wire.body())["code"] == errors.Unavailable.code
        assert head.status == 502
        assert sorted(two.calls) == [0, 1]


async def test_a_gateway_that_is_back_is_asked_at_once_when_the_other_goes() -> None:
    """By every question of a burst, although it had been given up before."""
    async with pair() as two:
        await two.proxies[0].refuse()
        for _ in range(4):
            assert (await two.ask())[0].status == 200
        await two.proxies[0].accept()
        await two.proxies[1].refuse()
        statuses: list[int] = []

        async def one() -> None:
            statuses.append((await two.ask())[0].status)

        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(one)
        assert statuses == [200] * 8
        assert two.calls == [8, 4]


async def test_what_only_reads_is_asked_again() -> None:
    """A GET whose answer is lost gets the other gateway's."""
    async with pair() as two:
        for proxy in two.proxies:
            proxy.hold_replies()

        async def lose_the_first() -> None:
            first, second = two.proxies
            while not (first.connections or second.connections):
                await anyio.lowlevel.checkpoint()
            asked, other = (first, second) if first.connections else (second, first)
            await asked.held()
            other.flow()
            await asked.cut()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lose_the_first)
            head, _ = await request(two.port, "GET", "/v1/documents", token=two.worlds[0].token())
        assert head.status == 403  # no scope for it: a gateway's own answer


# -- refusals of nginx itself ------------------------------------------------------------------------


async def test_what_belongs_to_the_inside_is_not_public() -> None:
    """Whatever way it is written."""
    world = await knowing()
    async with behind(world) as server:
        for path in (
            "/metrics",
            "/readyz",
            "//metrics",
            "/v1/../metrics",
            "/static/..%2fmetrics",
            "/%6detrics",
            "/other",
        ):
            head, body = await request(server.port, "GET", path)
            assert problem_of(head, body)["code"] == errors.NotFound.code, path
        for path in ("/healthz", "/", "/static/chat.js"):
            assert (await request(server.port, "GET", path))[0].status == 200, path


async def test_what_is_too_large_is_refused_before_a_gateway_sees_it() -> None:
    """Body, path and head, each with its status; a head as large as allowed passes."""
    world = await knowing()
    async with behind(world) as server:
        token, port = world.token(), server.port
        head, body = await request(port, "POST", "/v1/answers", token=token, body=b"x" * 65_537)
        assert (head.status, problem_of(head, body)["code"]) == (413, errors.BodyTooLarge.code)
        head, body = await request(port, "GET", "/v1/search?query=" + "x" * 20_000, token=token)
        assert (head.status, problem_of(head, body)["code"]) == (414, errors.InvalidRequest.code)
        head, body = await request(port, "GET", "/v1/search", headers={"X-Long": "x" * 20_000})
        assert (head.status, problem_of(head, body)["code"]) == (431, errors.InvalidRequest.code)
        head, body = await request(
            port, "GET", "/v1/documents", token=token, headers={"X-Long": "x" * 12_000}
        )
        assert head.status == 403
        head, _ = await request(port, "POST", "/v1/documents", token=token, body=b"x" * 100_000)
        assert head.status == 403  # uploads may be larger


@pytest.mark.parametrize("path", ["/v1/answers", "/v1/documents"])
async def test_an_address_that_asks_too_often_is_told_so(path: str) -> None:
    """429 with a Retry-After, once it has used up what it may do at once; all are sent in one go."""
    async with nginx(free_port()) as server, connected(server.port) as wire:
        for _ in range(300):
            await wire.send("POST", path)
        statuses = []
        for _ in range(300):
            head = await wire.read_head()
            body = await wire.body()
            statuses.append(head.status)
            if head.status == 429:
                break
            assert head.status == 502
    assert len(statuses) > 40
    assert problem_of(head, body)["code"] == errors.RateLimited.code
    assert head.headers["retry-after"] == "1"


def at_any_rate(text: str) -> str:
    return re.sub(r"limit_req zone=.*;", "", text)


async def test_an_address_with_too_many_answers_at_once_is_told_so() -> None:
    """The 65th, also while the others are still sending their questions; with one less it gets through."""
    async with nginx(free_port(), change=at_any_rate) as server, contextlib.AsyncExitStack() as stack:
        held = [await stack.enter_async_context(connected(server.port)) for _ in range(64)]
        for wire in held:
            expecting = {"Expect": "100-continue"}
            await wire.send("POST", "/v1/answers", body=b"{}", headers=expecting, hold_back=1)
            assert (await wire.read_head()).status == 100  # let in, and counted
        head, body = await request(server.port, "POST", "/v1/answers")
        assert (head.status, problem_of(head, body)["code"]) == (429, errors.RateLimited.code)
        held[0].close()

        async def room() -> bool:
            return (await request(server.port, "POST", "/v1/answers"))[0].status == 502

        await eventually(room)


async def test_addresses_without_limits_have_none() -> None:
    """For a proxy of one's own that many people share."""
    async with nginx(free_port(), unlimited=True) as server, connected(server.port) as wire:
        for _ in range(300):
            await wire.send("POST", "/v1/answers")
        for _ in range(300):
            assert (await wire.read_head()).status == 502
            await wire.body()


async def test_no_gateway_at_all_is_said_so() -> None:
    """502 when nobody listens."""
    async with nginx(free_port(), free_port()) as server:
        head, body = await request(server.port, "POST", "/v1/answers", body=b"{}")
    assert (head.status, problem_of(head, body)["code"]) == (502, errors.Unavailable.code)


@contextmanager
def deaf() -> Iterator[int]:
    """A port where connecting takes for ever: its backlog is full."""
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for filler in (first, second):
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


async def test_a_gateway_that_says_nothing_is_given_up() -> None:
    """504 once the time to connect is over."""
    with deaf() as port:
        async with nginx(port) as server:
            head, body = await request(server.port, "POST", "/v1/answers", body=b"{}")
    assert (head.status, problem_of(head, body)["code"]) == (504, errors.DeadlineExceeded.code)


def test_its_refusals_speak_the_language_of_the_gateway() -> None:
    """Each body is JSON with a code and title of the tree of errors, and belongs to the status it is for."""
    text = (SHIPPED / "qa-gateway" / "problems.conf").read_text()
    named = vars(errors).values()
    kinds = {k.code: k for k in named if isinstance(k, type) and issubclass(k, errors.GatewayError)}
    bodies = re.findall(r"location = /_problems/(\d+) \{[^}]*?return (\d+) '(.*)';", text)
    assert {place for place, _, _ in bodies} == set(re.findall(r"error_page .*/_problems/(\d+);", text))
    for place, status, body in bodies:
        problem = json.loads(body)
        assert place == status == str(problem["status"])
        assert problem["title"] == kinds[problem["code"]].title
        assert problem["request_id"] == "req_$request_id"


def test_its_sizes_and_times_are_the_gateways() -> None:
    """What the comments say they mirror."""
    text = "".join(path.read_text() for path in (SHIPPED / "qa-gateway").glob("*.conf"))
    settings = Settings()
    sizes = [
        int(number) * {"k": 1024, "m": 1024**2}[unit]
        for number, unit in re.findall(r"client_max_body_size (\d+)([km]);", text)
    ]
    assert sorted(sizes) == [settings.body_max_bytes, settings.upload_max_bytes]
    assert "large_client_header_buffers 2 16k" in text
    assert settings.head_max_bytes == 2 * 16 * 1024
    seconds = dict(re.findall(r"(\w+_timeout) (\d+)s;", text))
    assert float(seconds["client_header_timeout"]) == settings.head_timeout_s
    assert float(seconds["client_body_timeout"]) == settings.body_timeout_s
    assert float(seconds["send_timeout"]) == settings.send_timeout_s
    assert float(seconds["proxy_read_timeout"]) > max(settings.heartbeat_s, settings.total_cap_ms / 1000)
