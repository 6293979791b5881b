"""API keys over HTTP and from the command line: made of one's own rights, used like tokens, dead at once.

What a key opens, and that it stops doing so, is held to on twins and on both sides' real parts.
"""

import json
import math
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import anyio
import pytest
import pytest_asyncio
import typer
from typer.testing import CliRunner, Result

from gateway.access.apikey import ApiKeyGrant
from gateway.access.principal import SCOPES
from gateway.cli import apikeys
from gateway.client import ApiError
from gateway.stream.revocation import RevocationKind
from tests.acceptance.doors import DOORS, JSON, Door, json_body
from tests.harness.grounds import Worlds
from tests.harness.kept import kept
from tests.harness.serving import serving_world
from tests.harness.wire import request
from tests.harness.world import World

pytestmark = pytest.mark.asyncio(loop_scope="session")

TEXT = {"limits.md": "# Limits\n\nThe upload limit is 42 megabytes for every member of staff.\n"}
ALL = tuple(sorted(SCOPES))


@dataclass(frozen=True)
class Server:
    world: World
    port: int

    async def send(
        self, method: str, path: str, token: str, body: bytes = b"", content_type: str | None = None
    ) -> tuple[int, dict[str, Any]]:
        headers = {} if content_type is None else {"Content-Type": content_type}
        head, content = await request(self.port, method, path, token=token, body=body, headers=headers)
        return head.status, json.loads(content) if content.startswith(b"{") else {}

    async def create(self, token: str, **fields: object) -> tuple[int, dict[str, Any]]:
        asked = {"name": "ci", "scopes": ["ask"], "groups": ["staff"]} | fields
        return await self.send("POST", "/v1/apikeys", token, json_body(**asked), JSON)

    async def made(self, token: str | None = None, **fields: object) -> dict[str, Any]:
        status, key = await self.create(token or self.operator(), **fields)
        assert status == 201, key
        return key

    def operator(self, **who: Any) -> str:
        return self.world.token(**{"scopes": ALL, **who})


@pytest_asyncio.fixture(loop_scope="session")
async def server() -> AsyncIterator[Server]:
    """Over twins, with no key yet."""
    world = World(requests_per_minute=1_000_000)
    await world.learn(TEXT)
    async with serving_world(world) as port:
        yield Server(world, port)


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def each(worlds: Worlds) -> AsyncIterator[Server]:
    """On each ground; its tests share it, so each names its keys and its people as no other does."""
    async with worlds.world(requests_per_minute=1_000_000) as world, serving_world(world) as port:
        await world.learn(TEXT)
        yield Server(world, port)


async def test_a_key_is_shown_once(each: Server) -> None:
    """201 with the credential; afterwards only what it may do."""
    before = time.time()
    made = await each.made(name="shown", ttl_s=600)
    credential = made.pop("api_key")
    assert credential.startswith(f"qak_{made['key_id']}_")
    assert (made["name"], made["groups"], made["scopes"]) == ("shown", ["staff"], ["ask"])
    assert before + 600 <= made["expires_at"] <= time.time() + 600
    status, body = await each.send("GET", "/v1/apikeys", each.operator())
    (listed,) = [key for key in body["api_keys"] if key["name"] == "shown"]
    assert status == 200
    assert listed.items() >= made.items()
    assert (listed["created_by"], listed["revoked_at"]) == ("ann", None)
    secret = credential.removeprefix(f"qak_{made['key_id']}_")
    assert secret not in json.dumps(body)
    assert secret not in repr(await kept(each.world.catalog))
    assert "digest" not in listed


async def test_a_key_asks_as_its_holder_would(each: Server) -> None:
    """Stream and search; without the group it sees nothing."""
    key, stranger = await each.made(), await each.made(groups=[])
    for credential, statuses in ((key["api_key"], (200, 200)), (stranger["api_key"], (404, 404))):
        found, _ = await each.send("GET", "/v1/search?query=limit", credential)
        asked, _ = await each.send("POST", "/v1/answers", credential, json_body(question="The limit?"), JSON)
        assert (found, asked) == statuses


@pytest.mark.parametrize("door", DOORS, ids=str)
async def test_every_door_takes_a_key_as_it_takes_a_token(each: Server, door: Door) -> None:
    """Open to the right scope, shut to every other, shut to a revoked one."""
    right = await each.made(scopes=sorted({door.scope, "ask"}))  # one of the doors hands "ask" on
    others = await each.made(scopes=sorted(SCOPES - door.scopes))

    async def knock(key: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        return await each.send(door.method, door.at("none"), key["api_key"], door.body, door.content_type)

    status, problem = await knock(others)
    assert (status, problem["code"]) == (403, "scope_missing")
    status, problem = await knock(right)
    if door.method == "POST" and door.path == "/v1/apikeys":  # the one thing that no key does
        assert (status, problem["code"]) == (403, "forbidden")
        return
    assert status in {200, 201, 202, 404, 409}, problem
    await each.send("DELETE", f"/v1/apikeys/{right['key_id']}", each.operator())
    status, problem = await knock(right)
    assert (status, problem["code"]) == (401, "token_invalid")


async def test_a_revoked_key_is_dead_with_the_answer(each: Server) -> None:
    """200 with the key as it now is, again when asked again; its twin of the same name lives."""
    key, twin = await each.made(), await each.made()
    revoked = []
    for _ in range(2):
        status, body = await each.send("DELETE", f"/v1/apikeys/{key['key_id']}", each.operator())
        assert (status, body["key_id"]) == (200, key["key_id"])
        revoked.append(body["revoked_at"])
    assert revoked[0] == revoked[1] is not None
    statuses = [(await each.send("GET", "/v1/search?query=x", k["api_key"]))[0] for k in (key, twin)]
    assert statuses == [401, 200]


async def test_an_expired_key_says_so(each: Server) -> None:
    """401 token_expired: its holder may ask for a new one."""
    issuer = each.world.services.api_keys
    assert issuer is not None
    giver = await each.world.verifier.verify(each.operator())
    grant = ApiKeyGrant("expired", frozenset(), frozenset(SCOPES), time.time() - 1)
    key, credential = issuer.issue(giver, grant, time.time() - 2)
    await each.world.catalog.add_api_key(key)
    status, body = await each.send("GET", "/v1/search?query=x", credential)
    assert (status, body["code"]) == (401, "token_expired")


async def test_a_key_can_be_revoked_like_a_user(each: Server) -> None:
    """All keys of that name at once, at every door; and no person has that name."""
    key = await each.made(name="leaked", scopes=list(ALL))
    await each.world.catalog.revoke("acme", RevocationKind.USER, "apikey:leaked", "leaked", "root")
    for door in DOORS:
        status, body = await each.send(
            door.method, door.at("none"), key["api_key"], door.body, door.content_type
        )
        assert (status, body["code"]) == (403, "principal_revoked"), door
    status, _ = await each.send("GET", "/v1/search?query=x", each.world.token(subject="apikey:leaked"))
    assert status == 401


WIDER: dict[str, tuple[dict[str, object], str]] = {
    "a scope": ({"scopes": ["ask", "release"]}, "scope_missing"),
    "every scope": ({"scopes": list(ALL)}, "scope_missing"),
    "a group": ({"groups": ["staff", "board"]}, "forbidden"),
    "a group that there isn't": ({"groups": ["*"]}, "forbidden"),
}


@pytest.mark.parametrize(("fields", "code"), WIDER.values(), ids=WIDER)
async def test_nobody_hands_on_what_he_lacks(server: Server, fields: dict[str, object], code: str) -> None:
    """403, the missing one named; nothing is made and nothing recorded."""
    token = server.world.token(scopes=("ask", "operate"))
    status, body = await server.create(token, **fields)
    assert (status, body["code"]) == (403, code)
    assert body["detail"]
    assert await server.world.catalog.api_keys("acme") == []
    assert await server.world.catalog.entries("acme", 10, "apikey.create") == []


async def test_a_key_makes_no_key(server: Server) -> None:
    """Not even a lesser one: who has got hold of a key must not outlive its revocation."""
    parent = await server.made(scopes=["ask", "operate"], ttl_s=600)
    status, body = await server.create(parent["api_key"], ttl_s=60)
    assert (status, body["code"]) == (403, "forbidden")
    assert len(await server.world.catalog.api_keys("acme")) == 1


async def test_nobody_takes_the_name_of_anothers_key(server: Server) -> None:
    """An ACL that names it means the first one's; its own maker may make another, to change keys."""
    first = await server.made()
    status, body = await server.create(server.operator(subject="bob"))
    assert (status, body["code"]) == (409, "api_key_name_taken")
    await server.made()
    await server.send("DELETE", f"/v1/apikeys/{first['key_id']}", server.operator())
    status, _ = await server.create(server.operator(subject="bob"))
    assert status == 409
    await server.made(server.operator(subject="bob"), name="bobs")


async def test_a_key_dies_with_the_person_who_made_it(server: Server) -> None:
    """A revoked user is refused whatever he brings."""
    key = await server.made()
    other = await server.made(server.operator(subject="bob"), name="bobs")
    await server.world.catalog.revoke("acme", RevocationKind.USER, "ann", "left", "operator")
    for credential, expected in ((key, 403), (other, 200)):
        status, body = await server.send("GET", "/v1/search?query=limit", credential["api_key"])
        assert status == expected, body


BAD_FIELDS: dict[str, dict[str, object]] = {
    "name missing": {"name": None},
    "name empty": {"name": ""},
    "name blank": {"name": "  "},
    "name number": {"name": 7},
    "name with NUL": {"name": "a\0b"},
    "name with a line break": {"name": "a\nb"},
    "name long": {"name": "n" * 201},
    "scopes missing": {"scopes": None},
    "scopes empty": {"scopes": []},
    "scopes text": {"scopes": "ask"},
    "scopes number": {"scopes": [1]},
    "scopes unknown": {"scopes": ["admin"]},
    "scopes nested": {"scopes": [["ask"]]},
    "groups text": {"groups": "staff"},
    "groups object": {"groups": {"staff": 1}},
    "groups with null": {"groups": [None]},
    "groups many": {"groups": ["staff"] * 201},
    "ttl zero": {"ttl_s": 0},
    "ttl negative": {"ttl_s": -1},
    "ttl text": {"ttl_s": "60"},
    "ttl fraction": {"ttl_s": 1.5},
    "ttl true": {"ttl_s": True},
    "ttl huge": {"ttl_s": 10**18},
}


async def test_a_bad_field_is_named(server: Server) -> None:
    """400 invalid_field, and nothing is made."""
    for case, fields in BAD_FIELDS.items():
        status, body = await server.create(server.operator(), **fields)
        assert (status, body["code"]) == (400, "invalid_field"), case
    for name in ("tenant", "subject", "created_by", "key_id", "expires_at", "digest"):
        status, body = await server.create(server.operator(), **{name: "x"})
        assert (status, body["code"]) == (400, "unknown_field"), name
    assert await server.world.catalog.api_keys("acme") == []


async def test_keys_stay_in_their_tenant(each: Server) -> None:
    """Made there, listed there; a foreign one looks missing and stays alive."""
    key = await each.made()
    globex = each.operator(tenant="globex")
    assert (await each.send("GET", "/v1/apikeys", globex))[1] == {"api_keys": []}
    answers = [await each.send("DELETE", f"/v1/apikeys/{k}", globex) for k in (key["key_id"], "none")]
    assert answers[0] == answers[1]
    assert answers[0][0] == 404
    assert (await each.send("GET", "/v1/search?query=x", key["api_key"]))[0] == 200


async def test_making_and_revoking_are_in_the_audit_trail(server: Server) -> None:
    """Who, which key and with which rights; never the credential."""
    key = await server.made(ttl_s=60)
    await server.send("DELETE", f"/v1/apikeys/{key['key_id']}", server.operator(subject="root"))
    (revoked,) = await server.world.catalog.entries("acme", 10, "apikey.revoke")
    (created,) = await server.world.catalog.entries("acme", 10, "apikey.create")
    assert (created.subject, revoked.subject) == ("ann", "root")
    assert created.details == {
        "key": key["key_id"],
        "name": "ci",
        "groups": ["staff"],
        "scopes": ["ask"],
        "expires_at": key["expires_at"],
    }
    assert revoked.details == {"key": key["key_id"], "name": "ci"}


async def test_without_a_pepper_no_key_is_made_and_none_is_taken() -> None:
    """404 with the reason; keys of before can still be listed and revoked."""
    world = World()
    async with serving_world(world) as port:
        await Server(world, port).made()
    world.services = replace(world.services, api_keys=None)
    async with serving_world(world) as port:
        server = Server(world, port)
        status, body = await server.create(server.operator())
        assert (status, body["code"]) == (404, "not_found")
        assert "pepper" in body["detail"]
        _, listed = await server.send("GET", "/v1/apikeys", server.operator())
        (key,) = listed["api_keys"]
        status, _ = await server.send("DELETE", f"/v1/apikeys/{key['key_id']}", server.operator())
        assert status == 200


# -- the command line ------------------------------------------------------------------------------


async def run(server: Server, *arguments: str, token: str | None = None) -> Result:
    """``qa-gateway apikey …`` against the served world."""
    app = typer.Typer()
    apikeys.add_commands(app)
    env = {"GATEWAY_URL": f"http://127.0.0.1:{server.port}", "GATEWAY_TOKEN": token or server.operator()}
    command = ("apikey", *arguments)
    return await anyio.to_thread.run_sync(lambda: CliRunner().invoke(app, command, env=env))


async def test_a_key_is_made_listed_used_and_revoked_from_the_command_line(server: Server) -> None:
    """The credential alone on stdout; the table keeps ids whole."""
    made = await run(server, "create", "--name", "ci", "--scope", "ask, operate", "--group", "staff")
    assert made.exit_code == 0, made.output
    credential = made.stdout.strip()
    key_id = credential.split("_")[1]
    assert made.stderr == f"Key {key_id}; it is not shown again.\n"
    listed = await run(server, "list", token=credential)
    heading, line = listed.stdout.splitlines()
    assert (heading.split()[0], line.split()) == ("key", [key_id, "ci", "ask,operate", "-", "-"])
    revoked = await run(server, "revoke", key_id)
    assert (revoked.exit_code, revoked.stdout) == (0, f"Revoked: {key_id} (ci).\n")
    assert isinstance((await run(server, "list", token=credential)).exception, ApiError)


async def test_programs_read_lines_of_json(server: Server) -> None:
    """`--json` everywhere, with the fields of the API."""
    made = await run(server, "create", "--name", "ci", "--scope", "ask", "--ttl", "90d", "--json")
    key = json.loads(made.stdout)
    assert math.isclose(key["expires_at"], time.time() + 90 * 86_400, abs_tol=600)
    assert key["groups"] == []
    (listed,) = map(json.loads, (await run(server, "list", "--json")).stdout.splitlines())
    assert (listed["key_id"], listed["revoked_at"]) == (key["key_id"], None)
    revoked = json.loads((await run(server, "revoke", key["key_id"], "--json")).stdout)
    assert revoked["revoked_at"] is not None


@pytest.mark.parametrize("ttl", ["", "h", "1", "1w", "-1d", "1.5h", "0s", "3661d", "9" * 5000 + "s", "１d"])
async def test_a_wrong_time_to_live_is_wrong_usage(server: Server, ttl: str) -> None:
    """Exit 2, and the server isn't asked."""
    refused = await run(server, "create", "--name", "ci", "--scope", "ask", "--ttl", ttl)
    assert refused.exit_code == 2
    assert await server.world.catalog.api_keys("acme") == []


async def test_what_the_server_refuses_is_an_error_of_the_command(server: Server) -> None:
    """With the server's own code and words."""
    refused = await run(server, "create", "--name", "ci", "--scope", "ask", "--group", "board")
    assert isinstance(refused.exception, ApiError)
    assert refused.exception.problem_code == "forbidden"
    assert "board" in refused.exception.detail
