"""Worlds whose rights are taken away: every way to do it, and parts that stop where a test says."""

import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.access.apikey import ApiKeyGrant
from gateway.access.classes import Acl
from gateway.access.principal import Principal
from gateway.adapters.memory.models import Gate
from gateway.app import create_app
from gateway.ingest.governance import AclChange
from gateway.ingest.uploads import ImportRequest, NewDocument
from gateway.retrieval.chunk import stable_hash
from gateway.settings import Settings
from gateway.stream.revocation import RevocationKind
from tests.harness.serving import followed
from tests.harness.wire import request
from tests.harness.world import Ground, World, twins

SOURCE = "limits.md"
TEXT = "# Limits\n\nThe upload limit is 42 megabytes for every member of staff.\n"
QUESTION = "What is the upload limit?"
PIECES = [f"word{n} " for n in range(50)]
PATIENCE_S = 20
#: made once: reading the environment takes longer than what it is needed for here
_SETTINGS = Settings()
_JSON = {"Content-Type": "application/json"}
_ALL_SCOPES = ("ask", "ingest", "release", "revoke", "operate")


class Stopping:
    """A part whose calls stop at gates: ``method`` and its nth call name one, ``after`` the read or before.

    Calls of a method in ``hanging`` wait at its gate, calls of one in ``failing`` raise.
    """

    def __init__(self, part: Any) -> None:
        self._part = part
        self._gates: dict[tuple[str, int, bool], Gate] = {}
        self.calls: Counter[str] = Counter()
        self.hanging: dict[str, Gate] = {}
        self.failing: dict[str, Exception] = {}

    def gate(self, method: str, *, call: int = 1, after: bool = True) -> Gate:
        """Where the ``call``-th call from now on waits."""
        return self._gates.setdefault((method, self.calls[method] + call, after), Gate())

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._part, name)
        return self._stopping(name, method) if callable(method) else method

    def _stopping(self, name: str, method: Any) -> Callable[..., Awaitable[Any]]:
        async def call(*arguments: Any, **named: Any) -> Any:
            self.calls[name] += 1
            number = self.calls[name]
            await self._pass(name, number, after=False)
            if name in self.hanging:
                await self.hanging[name].wait()
            if name in self.failing:
                raise self.failing[name]
            result = await method(*arguments, **named)
            await self._pass(name, number, after=True)
            return result

        return call

    async def _pass(self, name: str, number: int, *, after: bool) -> None:
        gate = self._gates.get((name, number, after))
        if gate is not None:
            await gate.wait()


class Switchboard:
    """One server for many worlds, one after the other: starting one takes longer than most tests."""

    def __init__(self) -> None:
        self._app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            raise NotImplementedError("worlds are opened by their tests")
        assert self._app is not None
        await self._app(scope, receive, send)

    @asynccontextmanager
    async def connecting(self, world: World) -> AsyncIterator[None]:
        """Requests reach the world, whose feed runs."""
        app = create_app(world.settings, world.services)
        app.state.services = world.services
        async with followed(world):
            self._app = app
            yield


@dataclass
class Told:
    """A world that knows one document, and who asks it: ann with a token, or with an API key she made."""

    world: World
    document_id: str
    key_id: str = ""
    credentials: dict[str, str] = field(default_factory=dict)

    @property
    def catalog(self) -> Any:
        return self.world.catalog

    @property
    def administrator(self) -> str:
        return self.world.token(subject="olga", groups=["hr"], scopes=_ALL_SCOPES)

    async def key(self, *, expires_at: float | None = None) -> str:
        """The credential of a new key that ann has made."""
        assert self.world.services.api_keys is not None
        ann = Principal("acme", "ann", frozenset({"staff"}), frozenset({"ask"}), 1e12)
        grant = ApiKeyGrant("ci", frozenset({"staff"}), frozenset({"ask"}), expires_at)
        key, credential = self.world.services.api_keys.issue(ann, grant, 0.0)
        await self.world.catalog.add_api_key(key)
        self.key_id = key.key_id
        return credential


async def told(ground: Ground | None = None, **options: Any) -> Told:
    """``options`` as World takes them."""
    world = World(ground=ground, **options)
    task = await world.learn({SOURCE: TEXT})
    known = Told(world, task.documents[0].document_id)
    known.credentials |= {"token": world.token(), "key": await known.key()}
    return known


def stopping_ground() -> Ground:
    """Twins whose catalog, vector store and embedder stop."""
    ground = twins(_SETTINGS)
    return replace(
        ground,
        catalog=Stopping(ground.catalog),
        vectors=Stopping(ground.vectors),
        embedder=Stopping(ground.embedder),
    )


def stops(known: Told) -> tuple[float, float]:
    """How many stops were measured, and their seconds in sum."""
    lines = known.world.services.metrics.exposition().decode().splitlines()
    name = "gateway_revocation_stop_seconds"
    values = {line.split()[0]: float(line.split()[1]) for line in lines if line.startswith(name)}
    return values[f"{name}_count"], values[f"{name}_sum"]


@dataclass(frozen=True)
class Act:
    """One way to narrow ann's rights, done in the catalog or over HTTP.

    ``reason`` is what a running stream is told, ``code`` what an answer is refused with whose evidence
    was found before, ``early`` the outcome when nothing had been found yet.
    """

    name: str
    reason: str
    code: str
    in_catalog: Callable[[Told], Awaitable[object]]
    over_http: Callable[[Told, int], Awaitable[int]]
    early: str = field(default="")
    credential: str = "token"

    @property
    def code_early(self) -> str:
        return self.early or self.code


def _revoked(kind: RevocationKind, subject: Callable[[Told], str]) -> dict[str, Any]:
    async def in_catalog(told: Told) -> object:
        return await told.catalog.revoke("acme", kind, subject(told), "left", "olga")

    async def over_http(told: Told, port: int) -> int:
        body = {"kind": kind.value, "id": subject(told), "reason": "left"}
        return await _status(
            port,
            "POST",
            "/v1/revocations",
            token=told.administrator,
            body=json.dumps(body).encode(),
            headers=_JSON,
        )

    return {"in_catalog": in_catalog, "over_http": over_http}


async def _status(port: int, method: str, path: str, **arguments: Any) -> int:
    head, _ = await request(port, method, path, **arguments)
    return head.status


async def _delete(told: Told) -> object:
    return await told.catalog.delete_document("acme", told.document_id)


async def _delete_over_http(told: Told, port: int) -> int:
    path = f"/v1/documents/{told.document_id}"
    return await _status(port, "DELETE", path, token=told.administrator)


async def _delete_and_import_again(told: Told) -> object:
    """The same bytes for the same people, before anybody has looked at what was deleted."""
    await told.catalog.delete_document("acme", told.document_id)
    return await _import(told, "group:staff")


async def _delete_and_import_again_over_http(told: Told, port: int) -> int:
    await _delete_over_http(told, port)
    return await _import_over_http(told, port, "group:staff")


async def _narrow(told: Told) -> object:
    """A new version for other people."""
    return await _import(told, "group:hr")


async def _import(told: Told, allow: str) -> object:
    key = f"originals/{stable_hash(TEXT)}"
    document = NewDocument(SOURCE, SOURCE, "", key, stable_hash(TEXT), 1, Acl.parse([allow], []))
    return await told.catalog.accept_import(
        ImportRequest("acme", "handbook", "olga", (document,), False, False, 600)
    )


async def _narrow_over_http(told: Told, port: int) -> int:
    return await _import_over_http(told, port, "group:hr")


async def _import_over_http(told: Told, port: int, allow: str) -> int:
    lines = ["--b", f'Content-Disposition: form-data; name="file"; filename="{SOURCE}"', "", TEXT]
    for name, value in (("knowledge_base", "handbook"), ("allow", allow)):
        lines += ["--b", f'Content-Disposition: form-data; name="{name}"', "", value]
    return await _status(
        port,
        "POST",
        "/v1/documents",
        token=told.administrator,
        body="\r\n".join([*lines, "--b--", ""]).encode(),
        headers={"Content-Type": "multipart/form-data; boundary=b"},
    )


async def _set_acl(told: Told) -> object:
    change = AclChange("acme", told.document_id, Acl.parse(["group:hr"]), "olga", 600)
    return await told.catalog.set_acl(change)


async def _set_acl_over_http(told: Told, port: int) -> int:
    path = f"/v1/documents/{told.document_id}/acl"
    body = json.dumps({"allow": ["group:hr"]}).encode()
    return await _status(port, "PUT", path, token=told.administrator, body=body, headers=_JSON)


async def _revoke_key(told: Told) -> object:
    return await told.catalog.revoke_api_key("acme", told.key_id)


async def _revoke_key_over_http(told: Told, port: int) -> int:
    return await _status(port, "DELETE", f"/v1/apikeys/{told.key_id}", token=told.administrator)


_GONE = "knowledge_base_not_found"
ACTS = (
    Act("user", "user", "principal_revoked", **_revoked(RevocationKind.USER, lambda _: "ann")),
    Act("group", "group", _GONE, **_revoked(RevocationKind.GROUP, lambda _: "staff")),
    Act(
        "document",
        "document",
        "permissions_changed",
        **_revoked(RevocationKind.DOCUMENT, lambda told: told.document_id),
        early="REFUSED_NO_EVIDENCE",
    ),
    Act("base", "knowledge_base", _GONE, **_revoked(RevocationKind.KNOWLEDGE_BASE, lambda _: "handbook")),
    Act("deletion", "document", _GONE, _delete, _delete_over_http),
    Act(
        "deletion_and_return",
        "document",
        "permissions_changed",
        _delete_and_import_again,
        _delete_and_import_again_over_http,
        early="REFUSED_NO_EVIDENCE",
    ),
    Act("acl", "acl_changed", _GONE, _narrow, _narrow_over_http),
    Act("key", "user", "principal_revoked", _revoke_key, _revoke_key_over_http, credential="key"),
    Act(
        "maker",
        "user",
        "principal_revoked",
        **_revoked(RevocationKind.USER, lambda _: "ann"),
        credential="key",
    ),
    Act("document_acl", "acl_changed", _GONE, _set_acl, _set_acl_over_http),
)
