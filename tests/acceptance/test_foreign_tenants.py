"""What belongs to another tenant looks like what doesn't exist, at every door; names never widen a search.

On twins and on both sides' real parts.
"""

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
import pytest_asyncio

from gateway.access.principal import SCOPES
from gateway.adapters.memory.models import Gate, ScriptedModel
from tests.acceptance.doors import DOORS, JSON, Door, all_routes, door, json_body, upload_body
from tests.harness.grounds import Worlds
from tests.harness.kept import kept_of
from tests.harness.serving import serving_world
from tests.harness.wire import Wire, connected, request
from tests.harness.world import Hold, World

pytestmark = pytest.mark.asyncio(loop_scope="session")

SECRET = "The vault of Acme opens with the code 7421 at the north gate."
OTHER = "Globex sells left-handed scissors in three sizes and two colours."
QUESTION = "Which code opens the vault at the north gate?"
ALL_SCOPES = tuple(SCOPES)
UNKNOWN = "feedfacefeedfacefeedfacefeedface"
PATIENCE_S = 30


@dataclass
class Tenants:
    """Acme owns everything in ``ids`` and one running answer; Globex owns one knowledge base."""

    world: World
    port: int
    ids: dict[str, str] = field(default_factory=dict)

    def token(self, tenant: str) -> str:
        return self.world.token(tenant, subject="sam", scopes=ALL_SCOPES)

    async def send(self, door: Door, tenant: str, name: str = UNKNOWN, **changes: Any) -> tuple[Any, ...]:
        """Status, headers and body of the answer, without what differs between any two answers."""
        path = changes.pop("path", door.at(name))
        arguments = {"token": self.token(tenant), "body": door.body, "headers": door.headers} | changes
        head, body = await request(self.port, door.method, path, **arguments)
        headers = {n: v for n, v in head.headers.items() if n not in {"date", "x-request-id"}}
        return head.status, headers, _without_ids(body)

    async def kept_of(self, tenant: str) -> list[str]:
        """Every row of the tenant, and its revocation epoch."""
        kept = await kept_of(self.world.catalog, tenant)
        assert kept
        return kept

    def running(self) -> list[str]:
        return [session.request_id for session in self.world.registry.of_tenant("acme")]


def _without_ids(body: bytes) -> object:
    if not body.startswith(b"{"):
        return body
    content = json.loads(body)
    return {name: value for name, value in content.items() if name not in {"request_id", "trace_id"}}


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def tenants(worlds: Worlds) -> AsyncIterator[Tenants]:
    gate = Gate()
    model = ScriptedModel(["The code is 7421 [1]."], hold={0: gate})
    endless = {"requests_per_minute": 1_000_000, "total_cap_ms": 3_600_000, "sse_sessions": 1000}
    async with worlds.world(model=model, **endless) as world, serving_world(world) as port:
        await world.learn({"vault.md": SECRET}, allow=("public",))
        await world.learn({"vault.md": SECRET + " It is oiled in May."}, allow=("public",))
        await world.learn(
            {"scissors.md": OTHER}, tenant="globex", knowledge_base="catalogue", allow=("public",)
        )
        tenants = Tenants(world, port)
        async with connected(port) as wire:
            with anyio.fail_after(PATIENCE_S):
                await collect(tenants, wire, gate)
            yield tenants
            assert tenants.running() == [tenants.ids["running"]], "the answer of Acme was ended"
            gate.release.set()
            with anyio.fail_after(PATIENCE_S):
                events = await wire.all_events()
            assert events[-1].data["status"] == "ANSWERED"


async def collect(tenants: Tenants, wire: Wire, gate: Gate) -> None:
    """One id of every kind that Acme has."""
    owner = {"token": tenants.token("acme")}

    async def get(path: str) -> Any:
        _, body = await request(tenants.port, "GET", path, **owner)
        return json.loads(body)

    await wire.ask(owner["token"], QUESTION)
    await gate.reached.wait()
    (running,) = tenants.running()
    found = (await get("/v1/search?query=vault"))["results"][0]
    (document,) = (await get("/v1/documents?knowledge_base=handbook"))["documents"]
    releases = (await get("/v1/releases?knowledge_base=handbook"))["releases"]
    body = json_body(kind="user", id="mallory", reason="left")
    headers = {"Content-Type": JSON}
    _, revoked = await request(tenants.port, "POST", "/v1/revocations", body=body, headers=headers, **owner)
    _, accepted = await request(
        tenants.port,
        "POST",
        "/v1/releases",
        body=json_body(knowledge_base="handbook"),
        headers=headers,
        **owner,
    )
    key = json_body(name="ci", scopes=["ask"])
    _, made = await request(tenants.port, "POST", "/v1/apikeys", body=key, headers=headers, **owner)
    tenants.ids |= {
        "running": running,
        "chunk": found["chunk_id"],
        "document": document["document_id"],
        "active release": next(r["release_id"] for r in releases if r["state"] == "ACTIVE"),
        "retired release": next(r["release_id"] for r in releases if r["state"] == "RETIRED"),
        "revocation": json.loads(revoked)["revocation_id"],
        "waiting task": json.loads(accepted)["task_id"],
        "API key": json.loads(made)["key_id"],
    }


ID_DOORS = [door for door in DOORS if door.takes_an_id]
KINDS = (
    *("running", "chunk", "document", "active release", "retired release", "revocation", "waiting task"),
    "API key",
)


async def test_every_route_with_an_id_is_in_the_table() -> None:
    """A new route with a path parameter has to be added to the doors."""
    with_ids = {(method, path) for method, path in all_routes() if "{" in path}
    assert with_ids == {(door.method, door.path) for door in ID_DOORS}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("door", ID_DOORS, ids=str)
async def test_a_foreign_id_gets_the_answer_of_an_unknown_one(
    tenants: Tenants, door: Door, kind: str
) -> None:
    """404, the same bytes and headers as for an id that nobody has; nothing of the owner's changes."""
    before = await tenants.kept_of("acme")
    foreign = await tenants.send(door, "globex", tenants.ids[kind])
    assert foreign == await tenants.send(door, "globex", UNKNOWN)
    assert foreign[0] == 404
    assert await tenants.kept_of("acme") == before
    assert tenants.running() == [tenants.ids["running"]]
    assert tenants.world.model.called == 1


OWNERS: dict[str, tuple[str, str, str, int]] = {
    "chunk": ("GET", "/v1/sources/", "", 200),
    "document": ("GET", "/v1/documents/", "", 200),
    "waiting task": ("GET", "/v1/tasks/", "", 200),
}


@pytest.mark.parametrize("kind", OWNERS)
async def test_the_owner_is_answered_for_the_same_id(tenants: Tenants, kind: str) -> None:
    """Otherwise the 404s above would prove nothing."""
    method, path, tail, status = OWNERS[kind]
    door = next(d for d in ID_DOORS if d.method == method and d.path.startswith(path))
    answer = await tenants.send(door, "acme", tenants.ids[kind], path=path + tenants.ids[kind] + tail)
    assert answer[0] == status


# -- names ------------------------------------------------------------------------------------------

NAMED: dict[str, tuple[Door, Mapping[str, Any]]] = {
    "ask": (
        door("POST", "/v1/answers"),
        {"body": '{"question": "Which code opens the vault?", "knowledge_base": "NAME"}'},
    ),
    "search": (door("GET", "/v1/search"), {"path": "/v1/search?query=vault&knowledge_base=NAME"}),
    "source": (door("GET", "/v1/sources/{chunk_id}"), {"path": "/v1/sources/CHUNK?knowledge_base=NAME"}),
    "documents": (door("GET", "/v1/documents"), {"path": "/v1/documents?knowledge_base=NAME"}),
    "releases": (door("GET", "/v1/releases"), {"path": "/v1/releases?knowledge_base=NAME"}),
    "build": (door("POST", "/v1/releases"), {"body": '{"knowledge_base": "NAME"}'}),
    "rollback": (door("POST", "/v1/releases/rollback"), {"body": '{"knowledge_base": "NAME"}'}),
    "revoke kb": (
        door("POST", "/v1/revocations"),
        {"body": '{"kind": "knowledge_base", "id": "NAME", "reason": "r"}'},
    ),
    "revoke document": (
        door("POST", "/v1/revocations"),
        {"body": '{"kind": "document", "id": "DOCUMENT", "reason": "r"}'},
    ),
}


@pytest.mark.parametrize(("door", "changes"), NAMED.values(), ids=NAMED)
async def test_a_foreign_name_gets_the_answer_of_an_unknown_one(
    tenants: Tenants, door: Door, changes: Mapping[str, str]
) -> None:
    """The name of another tenant's knowledge base, or the id in a body, says nothing; a list is empty."""

    def filled(known: bool) -> dict[str, Any]:
        words = {
            "NAME": "handbook" if known else "nowhere",
            "CHUNK": tenants.ids["chunk"] if known else UNKNOWN,
            "DOCUMENT": tenants.ids["document"] if known else UNKNOWN,
        }
        filled = dict(changes)
        for word, value in words.items():
            filled = {name: text.replace(word, value) for name, text in filled.items()}
        return {name: text.encode() if name == "body" else text for name, text in filled.items()}

    before = await tenants.kept_of("acme")
    foreign = await tenants.send(door, "globex", **filled(True))
    assert foreign == await tenants.send(door, "globex", **filled(False))
    assert foreign[0] == 404 or foreign[2].get("documents", foreign[2].get("releases")) == []
    assert "7421" not in repr(foreign)
    assert await tenants.kept_of("acme") == before
    assert tenants.world.model.called == 1


async def test_an_upload_under_a_foreign_name_stays_in_its_own_tenant(tenants: Tenants) -> None:
    """Two tenants may each have a handbook; the other's isn't touched."""
    before = await tenants.kept_of("acme")
    upload = next(d for d in DOORS if str(d) == "POST /v1/documents")
    status, _, _ = await tenants.send(upload, "globex", body=upload_body(knowledge_base="handbook"))
    assert status == 202
    assert await tenants.kept_of("acme") == before


async def test_lists_show_nothing_of_another_tenant(tenants: Tenants) -> None:
    """Some lists are asked for without naming anything, so they are looked at one by one."""
    for path in ("/v1/sessions", "/v1/revocations", "/v1/apikeys"):
        door = next(d for d in DOORS if str(d) == f"GET {path}")
        for tenant, empty in (("globex", True), ("acme", False)):
            status, _, body = await tenants.send(door, tenant)
            assert status == 200
            (listed,) = (value for name, value in body.items() if name not in {"processes", "next_cursor"})
            assert (listed == []) is empty


SMUGGLED: dict[str, dict[str, str]] = {
    "X-Tenant": {"X-Tenant": "acme", "X-Tenant-Id": "acme", "Tenant": "acme"},
    "X-Forwarded": {"X-Forwarded-User": "sam", "X-Forwarded-Groups": "staff", "X-Remote-User": "sam"},
    "X-Roles": {"X-Roles": "admin", "X-Groups": "staff", "X-Scope": "operate"},
    "cookies": {"Cookie": "tenant=acme; knowledge_base=handbook; roles=admin"},
    "rewritten URL": {"X-Original-URL": "/v1/sessions", "X-Rewrite-Url": "/v1/sessions"},
    "method": {"X-HTTP-Method-Override": "DELETE", "X-Method-Override": "DELETE"},
    "release": {"X-KB-Revision": "r", "X-Release": "r", "X-Acl-Class": "1"},
    "host": {"X-Forwarded-Host": "acme.example", "Forwarded": "host=acme.example"},
}


@pytest.mark.parametrize("headers", SMUGGLED.values(), ids=SMUGGLED)
async def test_a_header_changes_nothing(tenants: Tenants, headers: dict[str, str]) -> None:
    """Tenant, groups and scopes come from the token; the answer is the same to the byte."""
    search = door("GET", "/v1/search")
    for path in ("/v1/search?query=vault", f"/v1/sources/{tenants.ids['chunk']}"):
        plain = await tenants.send(search, "globex", path=path)
        assert plain == await tenants.send(search, "globex", path=path, headers=headers)
        assert "7421" not in repr(plain)


# -- no name, no wider search --------------------------------------------------------------------------

BASES = {"handbook": ("group:staff",), "payroll": ("group:hr",), "archive": ("user:nobody",)}
OMITTED: dict[str, tuple[tuple[str, ...], dict[str, object], int, str]] = {
    "two permitted, none named": (("staff", "hr"), {}, 400, "knowledge_base_required"),
    "two permitted, null": (("staff", "hr"), {"knowledge_base": None}, 400, "knowledge_base_required"),
    "empty": (("staff",), {"knowledge_base": ""}, 400, "invalid_field"),
    "blank": (("staff",), {"knowledge_base": " "}, 400, "invalid_field"),
    "list": (("staff",), {"knowledge_base": []}, 400, "invalid_field"),
    "star": (("staff",), {"knowledge_base": "*"}, 404, "knowledge_base_not_found"),
    "percent": (("staff",), {"knowledge_base": "%"}, 404, "knowledge_base_not_found"),
    "forbidden": (("staff",), {"knowledge_base": "payroll"}, 404, "knowledge_base_not_found"),
    "unknown": (("staff",), {"knowledge_base": "nowhere"}, 404, "knowledge_base_not_found"),
    "another case": (("staff",), {"knowledge_base": "Handbook"}, 404, "knowledge_base_not_found"),
    "look-alike": (("staff",), {"knowledge_base": "h\u0430ndbook"}, 404, "knowledge_base_not_found"),
    "nobody's": (("staff",), {"knowledge_base": "archive"}, 404, "knowledge_base_not_found"),
    "no permitted class": ((), {"knowledge_base": "handbook"}, 404, "knowledge_base_not_found"),
    "none permitted, none named": ((), {}, 404, "knowledge_base_not_found"),
    "none permitted, null": ((), {"knowledge_base": None}, 404, "knowledge_base_not_found"),
    "denied": (("staff", "contractors"), {"knowledge_base": "payroll"}, 404, "knowledge_base_not_found"),
}


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def bases(worlds: Worlds) -> AsyncIterator[tuple[World, int]]:
    """Three knowledge bases, and a hold that anybody who searches would run into."""
    held = {f"vectors.{method}": Hold() for method in ("dense", "lexical", "fetch")}
    async with worlds.world(requests_per_minute=1_000_000, holds=held) as world:
        for name, allow in BASES.items():
            await world.learn({f"{name}.md": SECRET}, knowledge_base=name, allow=allow)
        async with serving_world(world) as port:
            yield world, port
        assert not any(hold.gate.reached.is_set() for hold in held.values())


@pytest.mark.parametrize(("groups", "fields", "status", "code"), OMITTED.values(), ids=OMITTED)
async def test_without_one_permitted_name_nothing_is_searched(
    bases: tuple[World, int], groups: tuple[str, ...], fields: dict[str, object], status: int, code: str
) -> None:
    """Never all of them, never the next best: a refusal, with store, embedder and model left alone."""
    world, port = bases
    before = world.embedder.calls
    body = json_body(question=QUESTION, **fields)
    token = world.token(groups=groups)
    head, answer = await request(
        port, "POST", "/v1/answers", token=token, body=body, headers={"Content-Type": JSON}
    )
    problem = json.loads(answer)
    assert (head.status, problem["code"]) == (status, code)
    assert (world.model.called, world.embedder.calls) == (0, before)
    if code == "knowledge_base_required":
        assert problem["detail"] == "name one of: handbook, payroll"
    else:
        assert not any(name in problem.get("detail", "") for name in BASES)


EMPTY_NAMES = ("/v1/search?query=vault&knowledge_base=", "/v1/search?query=vault&knowledge_base=%20")


@pytest.mark.parametrize("path", [*EMPTY_NAMES, "/v1/search?query=vault&knowledge_base=payroll"])
async def test_a_search_is_held_to_the_same_rule(bases: tuple[World, int], path: str) -> None:
    """404 from the other door too."""
    world, port = bases
    before = world.embedder.calls
    head, body = await request(port, "GET", path, token=world.token())
    assert (head.status, json.loads(body)["code"]) == (404, "knowledge_base_not_found")
    assert world.embedder.calls == before
