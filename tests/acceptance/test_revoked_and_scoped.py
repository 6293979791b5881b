"""A revoked user has no right left on any door; activating needs the right to release."""

import json

import pytest

from gateway.stream.revocation import RevocationKind
from tests.harness.serving import serving_world
from tests.harness.wire import request
from tests.harness.world import World

ALL = ("ask", "ingest", "release", "revoke", "operate")
JSON = {"Content-Type": "application/json"}
DOORS = [
    ("POST", "/v1/answers", {"question": "what?"}),
    ("DELETE", "/v1/answers/req_1", None),
    ("GET", "/v1/search?query=what", None),
    ("GET", "/v1/sources/c1", None),
    ("GET", "/v1/documents?knowledge_base=handbook", None),
    ("DELETE", "/v1/documents/d1", None),
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


@pytest.mark.parametrize(("method", "path", "body"), DOORS, ids=[f"{m} {p}" for m, p, _ in DOORS])
async def test_a_revoked_user_is_refused_at_every_door(method: str, path: str, body: object) -> None:
    """Whatever scopes his token has; he can't lift his own revocation either."""
    world = World()
    await world.learn({"a.md": "# A\n\nSomething to know.\n"})
    await world.catalog.revoke("acme", RevocationKind.USER, "ann", "left", "root")
    async with serving_world(world) as port:
        head, answer = await request(
            port,
            method,
            path,
            token=world.token(scopes=ALL),
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
    ("scopes", "activate", "status"),
    [(("ingest",), "false", 202), (("ingest",), "true", 403), (("ingest", "release"), "true", 202)],
)
async def test_activating_with_an_upload_needs_the_right_to_release(
    scopes: tuple[str, ...], activate: str, status: int
) -> None:
    """It would publish whatever else is ready; refused before anything is stored."""
    world = World()
    body, headers = form(knowledge_base="handbook", allow="public", activate=activate)
    async with serving_world(world) as port:
        head, _ = await request(
            port, "POST", "/v1/documents", token=world.token(scopes=scopes), body=body, headers=headers
        )
    assert head.status == status
    assert bool(await world.catalog.documents("acme", "handbook")) is (status == 202)


@pytest.mark.parametrize(("scope", "status"), [("ingest", 403), ("release", 202)])
async def test_a_build_is_cancelled_by_whoever_may_release(scope: str, status: int) -> None:
    """An import by whoever may ingest; the task's kind decides."""
    world = World()
    await world.learn({"a.md": "# A\n\nSomething to know.\n"})
    task = await world.catalog.accept_release("acme", "handbook", 600)
    path = f"/v1/tasks/{task.task_id}"
    async with serving_world(world) as port:
        head, _ = await request(port, "DELETE", path, token=world.token(scopes=(scope,)))
    assert head.status == status
