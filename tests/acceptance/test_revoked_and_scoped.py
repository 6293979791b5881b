"""A revoked user has no right left on any door; activating needs the right to release.

On twins and on both sides' real parts.
"""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from gateway.access.classes import Acl
from gateway.errors import PrincipalRevoked
from gateway.ingest.governance import AclChange
from gateway.stream.revocation import RevocationKind
from tests.harness.grounds import Worlds
from tests.harness.serving import followed, serving_world
from tests.harness.tool_caller import tool_caller
from tests.harness.wire import request
from tests.harness.world import World

pytestmark = pytest.mark.asyncio(loop_scope="session")

ALL = ("ask", "ingest", "release", "revoke", "operate")
JSON = {"Content-Type": "application/json"}
DOORS = [
    ("POST", "/v1/answers", {"question": "what?"}),
    ("DELETE", "/v1/answers/req_1", None),
    ("GET", "/v1/search?query=what", None),
    ("GET", "/v1/sources/c1", None),
    ("GET", "/v1/documents?knowledge_base=handbook", None),
    ("DELETE", "/v1/documents/d1", None),
    ("PUT", "/v1/documents/d1/acl", {"allow": ["public"]}),
    ("POST", "/v1/documents/d1/approval", {"document_version": 1, "decision": "approve"}),
    ("GET", "/v1/tasks/t1", None),
    ("DELETE", "/v1/tasks/t1", None),
    ("GET", "/v1/releases?knowledge_base=handbook", None),
    ("POST", "/v1/releases", {"knowledge_base": "handbook"}),
    ("POST", "/v1/releases/rollback", {"knowledge_base": "handbook"}),
    ("POST", "/v1/releases/r1/activate", {}),
    ("GET", "/v1/revocations", None),
    ("POST", "/v1/revocations", {"kind": "user", "id": "x", "reason": "y"}),
    ("POST", "/v1/revocations/1/lift", {}),
    ("GET", "/v1/sessions", None),
    ("DELETE", "/v1/sessions/req_1", None),
    ("GET", "/v1/apikeys", None),
    ("POST", "/v1/apikeys", {"name": "x", "scopes": ["ask"]}),
    ("DELETE", "/v1/apikeys/k1", None),
]


@dataclass(frozen=True)
class Server:
    """One knowledge base, and a revoked user: ann."""

    world: World
    port: int


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def server(worlds: Worlds) -> AsyncIterator[Server]:
    async with worlds.world() as world, serving_world(world) as port:
        await world.learn({"a.md": "# A\n\nSomething to know.\n"})
        await world.catalog.revoke("acme", RevocationKind.USER, "ann", "left", "root")
        yield Server(world, port)


@pytest.mark.parametrize(("method", "path", "body"), DOORS, ids=[f"{m} {p}" for m, p, _ in DOORS])
async def test_a_revoked_user_is_refused_at_every_door(
    server: Server, method: str, path: str, body: object
) -> None:
    """Whatever scopes his token has; he can't lift his own revocation either."""
    head, answer = await request(
        server.port,
        method,
        path,
        token=server.world.token(scopes=ALL),
        body=b"" if body is None else json.dumps(body).encode(),
        headers={} if body is None else JSON,
    )
    assert head.status == 403
    assert json.loads(answer)["code"] == "principal_revoked"


def form(**fields: str) -> tuple[bytes, dict[str, str]]:
    parts = [
        f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields.items()
    ]
    file = '--b\r\nContent-Disposition: form-data; name="file"; filename="a.md"\r\n\r\n# A\n\nText.\r\n'
    body = "".join(parts) + file + "--b--\r\n"
    return body.encode(), {"Content-Type": "multipart/form-data; boundary=b"}


@pytest.mark.parametrize(
    ("name", "scopes", "activate", "status"),
    [
        ("kept", ("ingest",), "false", 202),
        ("not-for-you", ("ingest",), "true", 403),
        ("published", ("ingest", "release"), "true", 202),
    ],
)
async def test_activating_with_an_upload_needs_the_right_to_release(
    server: Server, name: str, scopes: tuple[str, ...], activate: str, status: int
) -> None:
    """It would publish whatever else is ready; refused before anything is stored."""
    body, headers = form(knowledge_base=name, allow="public", activate=activate)
    token = server.world.token(subject="bob", scopes=scopes)
    head, _ = await request(server.port, "POST", "/v1/documents", token=token, body=body, headers=headers)
    assert head.status == status
    assert bool(await server.world.catalog.documents("acme", name)) is (status == 202)


@pytest.mark.parametrize(("scope", "status"), [("ingest", 403), ("release", 202)])
async def test_a_build_is_cancelled_by_whoever_may_release(server: Server, scope: str, status: int) -> None:
    """An import by whoever may ingest; the task's kind decides."""
    task = await server.world.catalog.accept_release("acme", "handbook", 600)
    token = server.world.token(subject="bob", scopes=(scope,))
    head, _ = await request(server.port, "DELETE", f"/v1/tasks/{task.task_id}", token=token)
    assert head.status == status


async def test_a_tool_is_called_with_the_rights_of_that_moment(worlds: Worlds) -> None:
    """Narrowed, revoked, and at last himself: each is true for the next call, with the same principal."""
    async with worlds.world() as world, followed(world):
        names = ("first", "second", "third")
        await world.learn({f"{n}.md": f"# {n.title()}\n\nThe {n} upload limit is 42.\n" for n in names})
        ann, query = await tool_caller(world), "What is the upload limit?"
        assert sorted(await ann.titles(query)) == ["First", "Second", "Third"]
        ids = {d.source: d.document_id for d in await world.catalog.documents("acme", "handbook")}
        acl = Acl.parse(["user:eve"], ())
        await world.catalog.set_acl(AclChange("acme", ids["first.md"], acl, "eve", 600))
        assert sorted(await ann.titles(query)) == ["Second", "Third"]
        await world.catalog.revoke("acme", RevocationKind.DOCUMENT, ids["second.md"], "wrong", "eve")
        assert await ann.titles(query) == ["Third"]
        await world.catalog.revoke("acme", RevocationKind.USER, "ann", "left", "eve")
        with pytest.raises(PrincipalRevoked):
            await ann.look_up(query)
