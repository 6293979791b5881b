"""Bad input of every kind: the right status and code, nothing written, no part and no model called.

Twins are enough for what must never reach a part; what does reach one is sent to both sides' as well.
"""

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from gateway.access.principal import SCOPES
from gateway.errors import EmbedderUnavailable
from tests.acceptance.doors import (
    DOORS,
    JSON,
    MULTIPART,
    OPEN,
    Door,
    all_routes,
    door,
    json_body,
    multipart,
    upload_body,
)
from tests.harness.grounds import Worlds
from tests.harness.serving import serving_world
from tests.harness.wire import Head, connected, request
from tests.harness.world import World

pytestmark = pytest.mark.asyncio(loop_scope="session")

TEXT = {"limits.md": "# Limits\n\nThe upload limit is 42 megabytes for every member of staff.\n"}
ALL_SCOPES = tuple(SCOPES)


def everything_kept(world: World) -> str:
    """All of the catalog but its audit trail, and the names of all originals."""
    catalog = {name: value for name, value in vars(world.catalog).items() if name != "_audit"}
    return repr((catalog, sorted(vars(world.objects)["_objects"])))


@dataclass(frozen=True)
class Server:
    """A gateway whose parts all fail when they are called, so that a rejection proves they weren't."""

    world: World
    port: int

    async def send(self, door: Door, **changes: Any) -> tuple[Head, dict[str, Any]]:
        arguments: dict[str, Any] = {
            "token": self.world.token(scopes=ALL_SCOPES),
            "body": door.body,
            "headers": door.headers,
        }
        method = changes.pop("method", door.method)
        path = changes.pop("path", door.at("none"))
        head, body = await request(self.port, method, path, **(arguments | changes))
        return head, json.loads(body) if body else {}

    async def refuses(self, door: Door, status: int, code: str, **changes: Any) -> dict[str, Any]:
        """Sends, and holds the answer to the form of a problem and the gateway to having done nothing."""
        before, embedded = everything_kept(self.world), self.world.embedder.calls
        head, body = await self.send(door, **changes)
        assert (head.status, body.get("code")) == (status, code), body
        assert head.headers["content-type"] == "application/problem+json"
        assert head.headers["cache-control"] == "no-store"
        assert head.headers["x-content-type-options"] == "nosniff"
        assert (body["status"], body["type"]) == (status, "about:blank")
        assert body["title"]
        if status == 401:
            assert head.headers["www-authenticate"] == f'Bearer error="{code}"'
        assert everything_kept(self.world) == before
        assert (self.world.model.called, self.world.embedder.calls) == (0, embedded)
        self.world.assert_nothing_held()
        return body


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def server() -> AsyncIterator[Server]:
    world = World(upload_max_bytes=200_000, document_max_bytes=100_000, requests_per_minute=1_000_000)
    await world.learn(TEXT)
    world.vectors.available = False
    world.objects.available = False
    world.embedder.error = EmbedderUnavailable()
    async with serving_world(world) as port:
        yield Server(world, port)


async def test_the_table_knows_every_door() -> None:
    """A new route has to be added here, or nobody knocks at it wrongly."""
    known = {(door.method, door.path.partition("?")[0]) for door in DOORS}
    assert known | {("GET", path) for path in OPEN} == all_routes()


by_door = pytest.mark.parametrize("door", DOORS, ids=str)


# -- who knocks -----------------------------------------------------------------------------------


@by_door
async def test_nobody_enters_without_a_token(server: Server, door: Door) -> None:
    """401 token_missing, the scheme named."""
    await server.refuses(door, 401, "token_missing", token=None)


@by_door
async def test_every_other_scope_is_not_enough(server: Server, door: Door) -> None:
    """403 scope_missing, and the detail names the scope that is needed."""
    token = server.world.token(scopes=sorted(SCOPES - door.scopes))
    body = await server.refuses(door, 403, "scope_missing", token=token)
    assert door.scope in body["detail"]


CREDENTIALS = {
    "empty": "",
    "bearer alone": "Bearer",
    "bearer and a space": "Bearer  ",
    "basic": "Basic YWxpY2U6cGFzc3dvcmQ=",
    "no scheme": "{token}",
    "token as scheme": "token {token}",
    "two tokens": "Bearer {token} {token}",
    "comma": "Bearer {token}, Bearer {token}",
    "quoted": 'Bearer "{token}"',
    "latin-1": "Bearer \xe9{token}",
}


@pytest.mark.parametrize("value", CREDENTIALS.values(), ids=CREDENTIALS)
@pytest.mark.parametrize("door", [door("POST", "/v1/answers"), door("GET", "/v1/search")], ids=str)
async def test_a_malformed_authorization_header_is_no_identity(
    server: Server, door: Door, value: str
) -> None:
    """401 token_invalid, at the stream as at the plain routes."""
    headers = door.headers | {"Authorization": value.format(token=server.world.token())}
    await server.refuses(door, 401, "token_invalid", token=None, headers=headers)


async def test_two_authorization_headers_are_as_bad_as_none(server: Server) -> None:
    """Whoever picks one of them may pick another than the proxy in front did."""
    token = server.world.token(scopes=ALL_SCOPES)
    headers = {"Authorization": f"Bearer {token}", "authorization": f"Bearer {token}"}
    await server.refuses(door("GET", "/v1/search"), 401, "token_invalid", token=None, headers=headers)


# -- the JSON of a question ----------------------------------------------------------------------

ASK = door("POST", "/v1/answers")


def q(**fields: object) -> bytes:
    return json_body(**{"question": "What is the limit?", **fields})


FORGED = (
    *("tenant_id", "tenant", "roles", "groups", "principals", "permitted_classes", "acl_class"),
    *("kb_revision", "knowledge_revision", "release_id", "embedding_space_id", "kb_id", "filter"),
    *("scope", "sub", "model", "messages", "stream", "Question", "question ", "__proto__", "", "\u202e"),
)
INVALID = {
    "question missing": json_body(),
    "question null": q(question=None),
    "question number": q(question=1),
    "question list": q(question=["a"]),
    "question object": q(question={"text": "a"}),
    "question boolean": q(question=True),
    "question empty": q(question=""),
    "question blank": q(question=" \t\r\n\u2003"),
    "question too long": q(question="x" * 4001),
    "question NUL": q(question="a\0b"),
    "knowledge_base number": q(knowledge_base=7),
    "knowledge_base list": q(knowledge_base=["handbook"]),
    "knowledge_base boolean": q(knowledge_base=False),
    "knowledge_base object": q(knowledge_base={}),
    "knowledge_base empty": q(knowledge_base=""),
    "knowledge_base blank": q(knowledge_base="   "),
    "knowledge_base long": q(knowledge_base="k" * 257),
    "knowledge_base NUL": q(knowledge_base="hand\0book"),
    "conversation_id number": q(conversation_id=1),
    "conversation_id empty": q(conversation_id=""),
    "conversation_id list": q(conversation_id=[]),
    "conversation_id long": q(conversation_id="c" * 257),
    "language number": q(language=1),
    "language unknown": q(language="tlh"),
    "language empty": q(language=""),
    "language list": q(language=["en"]),
    "max_output_tokens text": q(max_output_tokens="10"),
    "max_output_tokens fraction": q(max_output_tokens=1.5),
    "max_output_tokens boolean": q(max_output_tokens=True),
    "max_output_tokens zero": q(max_output_tokens=0),
    "max_output_tokens negative": q(max_output_tokens=-1),
    "max_output_tokens list": q(max_output_tokens=[1]),
}
MALFORMED = {
    "nothing": b"",
    "not JSON": b"question=What",
    "cut off": b'{"question": "What',
    "trailing comma": b'{"question": "What?",}',
    "two values": b'{"question": "a"} {"question": "b"}',
    "NaN": b'{"question": "a", "max_output_tokens": NaN}',
    "Infinity": b'{"question": "a", "max_output_tokens": Infinity}',
    "array": b'[{"question": "What?"}]',
    "string": b'"What?"',
    "number": b"1",
    "null": b"null",
    "latin-1": '{"question": "Größe?"}'.encode("latin-1"),
    "utf-16": '{"question": "What?"}'.encode("utf-16"),
    "overlong utf-8": b'{"question": "\xc0\xafetc"}',
    "utf-8 surrogate": b'{"question": "\xed\xa0\x80"}',
    "byte order mark": b'\xef\xbb\xbf{"question": "What?"}',
    "lone high surrogate": b'{"question": "\\ud800"}',
    "lone low surrogate": b'{"question": "\\udc00 what"}',
    "swapped surrogates": b'{"question": "\\ude00\\ud83d"}',
    "surrogate in a key": b'{"question": "What?", "\\ud800": 1}',
    "raw newline in a string": b'{"question": "a\nb"}',
    "deep array": b"[" * 30_000 + b"]" * 30_000,
    "deep object": b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    "deep question": b'{"question": ' + b"[" * 20_000 + b"]" * 20_000 + b"}",
}


@pytest.mark.parametrize("name", FORGED)
async def test_a_field_that_does_not_exist_is_refused_by_name(server: Server, name: str) -> None:
    """A forged tenant or role never gets as far as being ignored."""
    body = await server.refuses(ASK, 400, "unknown_field", body=q(**{name: ["admin"]}))
    assert "".join(c for c in name if c.isprintable()) in body["detail"]


@pytest.mark.parametrize("body", INVALID.values(), ids=INVALID)
async def test_a_field_of_the_wrong_type_or_size_is_refused(server: Server, body: bytes) -> None:
    """400 invalid_field; an empty knowledge base name is a mistake, never a wider search."""
    await server.refuses(ASK, 400, "invalid_field", body=body)


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED)
async def test_a_body_that_is_no_json_object_is_refused(server: Server, body: bytes) -> None:
    """400 malformed_body, however deep or broken it is."""
    await server.refuses(ASK, 400, "malformed_body", body=body)


TOO_LARGE = {
    "a question of 100 kB": q(question="x" * 100_000),
    "an array 100,000 deep": b"[" * 100_000,
    "blanks": b" " * 70_000,
}


@pytest.mark.parametrize("body", TOO_LARGE.values(), ids=TOO_LARGE)
@pytest.mark.parametrize(
    "door", [ASK, door("POST", "/v1/releases"), door("POST", "/v1/revocations")], ids=str
)
async def test_a_body_over_the_limit_is_refused(server: Server, door: Door, body: bytes) -> None:
    """413 before anybody parses it."""
    await server.refuses(door, 413, "body_too_large", body=body)


CONTENT_TYPES: dict[str, dict[str, str]] = {
    "none": {},
    "text": {"Content-Type": "text/plain"},
    "form": {"Content-Type": "application/x-www-form-urlencoded"},
    "multipart": {"Content-Type": MULTIPART},
    "json-ish": {"Content-Type": "application/jsonp"},
    "wildcard": {"Content-Type": "*/*"},
    "in a list": {"Content-Type": "text/plain, application/json"},
}
JSON_DOORS = [door for door in DOORS if door.content_type == JSON]


@pytest.mark.parametrize("headers", CONTENT_TYPES.values(), ids=CONTENT_TYPES)
@pytest.mark.parametrize("door", JSON_DOORS, ids=str)
async def test_json_doors_take_nothing_but_json(
    server: Server, door: Door, headers: Mapping[str, str]
) -> None:
    """415; a form that a foreign page could send never counts."""
    await server.refuses(door, 415, "unsupported_content_type", headers=headers)


@pytest.mark.parametrize("door", [d for d in JSON_DOORS if d is not ASK], ids=str)
@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"{", b'"x"', b"\xff"])
async def test_every_json_door_refuses_what_is_no_object(server: Server, door: Door, body: bytes) -> None:
    """The same reader stands behind all of them."""
    await server.refuses(door, 400, "malformed_body", body=body)


@pytest.mark.parametrize("door", JSON_DOORS, ids=str)
async def test_every_json_door_refuses_a_forged_tenant(server: Server, door: Door) -> None:
    """Nothing outside the token ever names a tenant."""
    body = json.dumps({**json.loads(door.body), "tenant": "globex"}).encode()
    await server.refuses(door, 400, "unknown_field", body=body)


RELEASES, ROLLBACK, ACTIVATE, REVOKE = (
    door("POST", "/v1/releases"),
    door("POST", "/v1/releases/rollback"),
    door("POST", "/v1/releases/{release_id}/activate"),
    door("POST", "/v1/revocations"),
)
FIELDS_OF_OTHERS: dict[str, tuple[Door, bytes]] = {
    "build: no name": (RELEASES, b"{}"),
    "build: null": (RELEASES, json_body(knowledge_base=None)),
    "build: empty": (RELEASES, json_body(knowledge_base="")),
    "build: list": (RELEASES, json_body(knowledge_base=["handbook"])),
    "rollback: no name": (ROLLBACK, b"{}"),
    "rollback: number": (ROLLBACK, json_body(knowledge_base=1)),
    "activate: text": (ACTIVATE, json_body(expected_sequence="1")),
    "activate: boolean": (ACTIVATE, json_body(expected_sequence=True)),
    "activate: fraction": (ACTIVATE, json_body(expected_sequence=1.0)),
    "revoke: nothing": (REVOKE, b"{}"),
    "revoke: unknown kind": (REVOKE, json_body(kind="role", id="x", reason="r")),
    "revoke: kind list": (REVOKE, json_body(kind=["user"], id="x", reason="r")),
    "revoke: no id": (REVOKE, json_body(kind="user", reason="r")),
    "revoke: empty id": (REVOKE, json_body(kind="user", id="", reason="r")),
    "revoke: NUL id": (REVOKE, json_body(kind="user", id="a\0", reason="r")),
    "revoke: long id": (REVOKE, json_body(kind="user", id="a" * 257, reason="r")),
    "revoke: number id": (REVOKE, json_body(kind="user", id=1, reason="r")),
    "revoke: no reason": (REVOKE, json_body(kind="user", id="x")),
    "revoke: long reason": (REVOKE, json_body(kind="user", id="x", reason="r" * 1001)),
}


@pytest.mark.parametrize(("door", "body"), FIELDS_OF_OTHERS.values(), ids=FIELDS_OF_OTHERS)
async def test_the_other_json_doors_check_their_fields(server: Server, door: Door, body: bytes) -> None:
    """400 invalid_field."""
    await server.refuses(door, 400, "invalid_field", body=body)


# -- paths, methods, queries ------------------------------------------------------------------------


@by_door
async def test_a_query_parameter_that_does_not_exist_is_refused(server: Server, door: Door) -> None:
    """A tenant or a role in the query is refused, not ignored."""
    path = door.at("none")
    path += ("&" if "?" in path else "?") + "tenant=globex"
    await server.refuses(door, 400, "unknown_field", path=path)


SEARCH, DOCUMENTS, RELEASE_LIST = (
    door("GET", "/v1/search"),
    door("GET", "/v1/documents"),
    door("GET", "/v1/releases"),
)
QUERIES: dict[str, tuple[Door, str]] = {
    "no query": (SEARCH, "/v1/search"),
    "empty query": (SEARCH, "/v1/search?query="),
    "blank query": (SEARCH, "/v1/search?query=%20%09"),
    "NUL": (SEARCH, "/v1/search?query=a%00b"),
    "long": (SEARCH, "/v1/search?query=" + "x" * 4001),
    "twice": (SEARCH, "/v1/search?query=a&query=b"),
    "kb twice": (SEARCH, "/v1/search?query=a&knowledge_base=handbook&knowledge_base=other"),
    "top_k zero": (SEARCH, "/v1/search?query=a&top_k=0"),
    "top_k negative": (SEARCH, "/v1/search?query=a&top_k=-1"),
    "top_k large": (SEARCH, "/v1/search?query=a&top_k=101"),
    "top_k huge": (SEARCH, "/v1/search?query=a&top_k=" + "9" * 5000),
    "top_k zeros": (SEARCH, "/v1/search?query=a&top_k=" + "0" * 9 + "9" * 50),
    "top_k zeros then much": (SEARCH, "/v1/search?query=a&top_k=000000001999"),
    "top_k text": (SEARCH, "/v1/search?query=a&top_k=ten"),
    "top_k fraction": (SEARCH, "/v1/search?query=a&top_k=1.5"),
    "top_k Arabic digits": (SEARCH, "/v1/search?query=a&top_k=%D9%A3"),
    "top_k empty": (SEARCH, "/v1/search?query=a&top_k="),
    "mode": (SEARCH, "/v1/search?query=a&mode=raw"),
    "category empty": (SEARCH, "/v1/search?query=a&category="),
    "category NUL": (SEARCH, "/v1/search?query=a&category=%00"),
    "category long": (SEARCH, "/v1/search?query=a&category=" + "c" * 257),
    "list without a base": (DOCUMENTS, "/v1/documents"),
    "list with an empty base": (DOCUMENTS, "/v1/documents?knowledge_base="),
    "list with two": (DOCUMENTS, "/v1/documents?knowledge_base=a&knowledge_base=b"),
    "releases without a base": (RELEASE_LIST, "/v1/releases"),
    "releases with a blank base": (RELEASE_LIST, "/v1/releases?knowledge_base=%20"),
}


@pytest.mark.parametrize(("door", "path"), QUERIES.values(), ids=QUERIES)
async def test_a_query_parameter_is_checked_like_a_field(server: Server, door: Door, path: str) -> None:
    """400 invalid_field, before anything is asked of a part."""
    await server.refuses(door, 400, "invalid_field", path=path)


UNKNOWN_PATHS = (
    *("/v1/search/", "/v1", "/v1/answer", "/v1/answers/a/b", "/v2/answers", "/V1/answers", "/admin", "/.env"),
    *("/static/", "/static/none.js", "/static/../app.py", "/static/%2e%2e/routing.py", "/static//etc/passwd"),
    *("/static/..%2f..%2fsettings.py", "/v1/documents/a/owner", "/%00", "/" + "a" * 3000, "/*"),
)


@pytest.mark.parametrize("path", UNKNOWN_PATHS, ids=lambda path: path[:40])
async def test_a_path_that_does_not_exist_is_a_problem_too(server: Server, path: str) -> None:
    """404 not_found in the same form as every other refusal."""
    await server.refuses(SEARCH, 404, "not_found", path=path)


@by_door
@pytest.mark.parametrize("method", ["PATCH", "PUT", "TRACE"])
async def test_a_method_that_a_path_does_not_take_is_refused(server: Server, door: Door, method: str) -> None:
    """405 method_not_allowed, and Allow names methods."""
    before = everything_kept(server.world)
    head, body = await server.send(door, method="PATCH" if method == door.method else method)
    assert (head.status, body["code"]) == (405, "method_not_allowed")
    assert head.headers["allow"]
    assert "access-control-allow-origin" not in head.headers
    assert everything_kept(server.world) == before


@pytest.mark.parametrize("path", ["/v1/search?query=limit", "/v1/sessions", "/healthz"])
async def test_head_is_a_get_without_a_body(server: Server, path: str) -> None:
    """The same status; a token is needed where a GET needs one."""
    async with connected(server.port) as wire:
        await wire.send("HEAD", path)
        head = await wire.read_head()
    assert head.status == (200 if path == "/healthz" else 401)


@by_door
async def test_a_get_of_a_door_that_only_changes_things_changes_nothing(server: Server, door: Door) -> None:
    """A link or an image in a page can't do anything."""
    before = everything_kept(server.world)
    head, _ = await server.send(door, method="GET", body=b"", headers={})
    assert head.status in {200, 400, 404, 405, 503}
    assert everything_kept(server.world) == before


# -- uploads -----------------------------------------------------------------------------------------

UPLOAD = door("POST", "/v1/documents")
FILE: tuple[str, bytes, str] = ("file", b"# Note\n", "note.md")
KB, ALLOW = ("knowledge_base", "handbook"), ("allow", "group:staff")

BAD_FORMS: dict[str, bytes] = {
    "empty form": multipart([]),
    "no file": multipart([KB, ALLOW]),
    "file without a name": multipart([("file", b"# Note\n"), KB, ALLOW]),
    "file with an empty name": multipart([("file", b"# Note\n", ""), KB, ALLOW]),
    "no knowledge base": multipart([FILE, ALLOW]),
    "no allow": multipart([FILE, KB]),
    "two knowledge bases": multipart([FILE, KB, KB, ALLOW]),
    "knowledge base as a file": multipart([FILE, ("knowledge_base", b"handbook", "kb.txt"), ALLOW]),
    "allow as a file": multipart([FILE, KB, ("allow", b"public", "a.txt")]),
    "two files and a source": multipart([FILE, FILE, KB, ALLOW, ("source", "one.md")]),
}
BAD_NAMES = {
    "parent": "../note.md",
    "parent inside": "a/../../note.md",
    "backslash parent": "a\\\\..\\\\note.md",
    "absolute": "/etc/passwd",
    "dot": ".",
    "dots": "..",
    "blank": "   ",
    "control character": "a\x07b.md",
    "tab": "a\tb.md",
    "right-to-left override": "a\u202egnp.md",
    "long": "n" * 498 + ".md",
}
BAD_SOURCES = {**BAD_NAMES, "NUL": "a\0.md", "empty": "", "surrogate": "\ud800.md", "newline": "a\nb.md"}
BAD_FIELDS: dict[str, dict[str, str | list[str]]] = {
    "allow empty": {"allow": ""},
    "allow blank": {"allow": " "},
    "allow without a kind": {"allow": "staff"},
    "allow without a name": {"allow": "group:"},
    "allow of another kind": {"allow": "role:admin"},
    "allow everybody": {"allow": "*"},
    "allow PUBLIC": {"allow": "PUBLIC"},
    "allow in a list": {"allow": "group:a,\x00"},
    "allow padded": {"allow": "group: staff"},
    "allow control": {"allow": "group:a\x07"},
    "allow NUL": {"allow": "group:a\0"},
    "allow surrogate": {"allow": "group:\ud800"},
    "allow long": {"allow": "group:" + "g" * 300},
    "one good and one bad": {"allow": ["group:staff", "staff"]},
    "deny bad": {"deny": "everyone"},
    "deny empty": {"deny": ""},
    "knowledge base empty": {"knowledge_base": ""},
    "knowledge base NUL": {"knowledge_base": "a\0b"},
    "knowledge base newline": {"knowledge_base": "a\nb"},
    "knowledge base long": {"knowledge_base": "k" * 257},
    "valid_from text": {"valid_from": "tomorrow"},
    "valid_from impossible": {"valid_from": "2026-02-30"},
    "valid_from old": {"valid_from": "1815-06-18"},
    "valid_from far": {"valid_from": "99999-01-01"},
    "valid_until first": {"valid_from": "2026-02-01", "valid_until": "2026-01-01"},
    "valid_until equal": {"valid_from": "2026-02-01", "valid_until": "2026-02-01"},
    "valid twice": {"valid_from": ["2026-01-01", "2026-02-01"]},
    "sensitivity 4": {"sensitivity": "4"},
    "sensitivity -1": {"sensitivity": "-1"},
    "sensitivity text": {"sensitivity": "secret"},
    "sensitivity fraction": {"sensitivity": "1.0"},
    "sensitivity twice": {"sensitivity": ["0", "3"]},
    "approval": {"approval": "yes"},
    "activate": {"activate": "maybe"},
    "activate empty": {"activate": ""},
    "allow_partial": {"allow_partial": "2"},
    "category long": {"category": "c" * 257},
    "category NUL": {"category": "a\0"},
    "risk empty": {"risk": ""},
}
UNKNOWN_FORM_FIELDS = ("tenant", "acl_class", "roles", "files", "NAMES", "document_id", "uri", "kb_revision")


@pytest.mark.parametrize("body", BAD_FORMS.values(), ids=BAD_FORMS)
async def test_a_form_that_lacks_something_is_refused(server: Server, body: bytes) -> None:
    """400, and no original is stored."""
    await server.refuses(UPLOAD, 400, "invalid_field", body=body)


@pytest.mark.parametrize("name", BAD_NAMES.values(), ids=BAD_NAMES)
async def test_a_file_name_is_a_plain_relative_path(server: Server, name: str) -> None:
    """400 for whatever could leave a folder or fool a reader; also when it isn't the first file."""
    await server.refuses(UPLOAD, 400, "invalid_field", body=upload_body(name=name))
    bad: tuple[str, bytes, str] = ("file", b"# Note\n", name)
    await server.refuses(UPLOAD, 400, "invalid_field", body=multipart([FILE, bad, KB, ALLOW]))


@pytest.mark.parametrize("name", BAD_SOURCES.values(), ids=BAD_SOURCES)
async def test_a_source_is_a_plain_relative_path(server: Server, name: str) -> None:
    """The field is held to the same rule as the file's name."""
    await server.refuses(UPLOAD, 400, "invalid_field", body=upload_body({"source": name}))


@pytest.mark.parametrize("fields", BAD_FIELDS.values(), ids=BAD_FIELDS)
async def test_a_bad_field_of_an_upload_is_refused(
    server: Server, fields: dict[str, str | list[str]]
) -> None:
    """400 before the first original is stored."""
    await server.refuses(UPLOAD, 400, "invalid_field", body=upload_body(fields))


@pytest.mark.parametrize("name", UNKNOWN_FORM_FIELDS)
async def test_a_form_field_that_does_not_exist_is_refused(server: Server, name: str) -> None:
    """400 unknown_field, as in a JSON body."""
    await server.refuses(UPLOAD, 400, "unknown_field", body=upload_body({name: "globex"}))


MALFORMED_FORMS: dict[str, tuple[bytes, str]] = {
    "no boundary": (upload_body(), "multipart/form-data"),
    "another boundary": (upload_body(), "multipart/form-data; boundary=other"),
    "nothing": (b"", MULTIPART),
    "text": (b"hello", MULTIPART),
    "part without a name": (upload_body().replace(b'name="file"; ', b""), MULTIPART),
    "cut off in a part": (upload_body()[:-40], MULTIPART),
    "not closed": (multipart([FILE, KB, ALLOW], close=False), MULTIPART),
    "a deny that got lost": (
        multipart([FILE, KB, ALLOW, ("deny", "group:contractors")], close=False)[:-10],
        MULTIPART,
    ),
    "charset that is no charset": (upload_body(), MULTIPART + "; charset=undefined"),
    "charset idna": (upload_body(), MULTIPART + "; charset=idna"),
    "charset utf-16": (upload_body(), MULTIPART + "; charset=utf-16"),
    "charset unicode_escape": (upload_body(), MULTIPART + "; charset=unicode_escape"),
    "1,001 fields": (upload_body({"allow": ["group:staff"] * 1000}), MULTIPART),
    "201 files": (multipart([FILE] * 201 + [KB, ALLOW]), MULTIPART),
}


@pytest.mark.parametrize(("body", "content_type"), MALFORMED_FORMS.values(), ids=MALFORMED_FORMS)
async def test_a_form_that_is_not_whole_is_refused(server: Server, body: bytes, content_type: str) -> None:
    """400 malformed_body: a form whose end is missing may have lost its deny list."""
    await server.refuses(UPLOAD, 400, "malformed_body", body=body, headers={"Content-Type": content_type})


@pytest.mark.parametrize(
    "content_type", ["application/json", "application/x-www-form-urlencoded", "multipart/mixed; boundary=x"]
)
async def test_an_upload_is_multipart(server: Server, content_type: str) -> None:
    """415 for everything else."""
    headers = {"Content-Type": content_type}
    await server.refuses(UPLOAD, 415, "unsupported_content_type", headers=headers)


@pytest.mark.parametrize("size", [100_001, 250_000], ids=["one document", "the whole upload"])
async def test_an_upload_over_the_limit_is_refused(server: Server, size: int) -> None:
    """413: one document over its limit, or the body over that of all."""
    await server.refuses(UPLOAD, 413, "body_too_large", body=upload_body(content=b"x" * size))


@pytest.mark.parametrize("key", ["", " ", "k" * 201], ids=["empty", "blank", "long"])
async def test_an_idempotency_key_is_a_short_text(server: Server, key: str) -> None:
    """400 invalid_field, before an original is stored."""
    headers = UPLOAD.headers | {"Idempotency-Key": key}
    await server.refuses(UPLOAD, 400, "invalid_field", headers=headers)


# -- and the good ones ---------------------------------------------------------------------------


async def test_the_same_doors_open_to_good_input(worlds: Worlds) -> None:
    """Otherwise everything above could be refused for a reason nobody meant."""
    async with worlds.world() as world, serving_world(world) as port:
        await world.learn(TEXT)
        statuses = {}
        for door in DOORS:
            async with connected(port) as wire:
                token = world.token(scopes=ALL_SCOPES)
                await wire.send(
                    door.method, door.at("none"), token=token, body=door.body, headers=door.headers
                )
                statuses[str(door)] = (await wire.read_head()).status
        assert not {name for name, status in statuses.items() if status not in {200, 201, 202, 404, 409}}
        assert sum(status == 404 for status in statuses.values()) == sum(d.takes_an_id for d in DOORS)
        assert world.model.called == 1


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def open_server(worlds: Worlds) -> AsyncIterator[Server]:
    """A gateway whose parts all work."""
    async with worlds.world() as world, serving_world(world) as port:
        await world.learn(TEXT)
        yield Server(world, port)


BINARIES = {
    "an executable": b"\x7fELF\x02\x01\x01" + bytes(200) + b"\x90" * 500,
    "a picture": b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4,
    "a zip": b"PK\x03\x04" + bytes(range(256)) * 4,
    "zeros": bytes(4096),
    "blanks": b" \n" * 500,
    "nothing": b"",
}


@pytest.mark.parametrize("content", BINARIES.values(), ids=BINARIES)
async def test_a_binary_that_claims_to_be_text_fails_its_task_with_a_reason(
    open_server: Server, content: bytes
) -> None:
    """202, then FAILED with a sentence for a person; the active release stays."""
    world = open_server.world
    body = upload_body({"activate": "true"}, content=content)
    head, accepted = await open_server.send(UPLOAD, body=body)
    assert head.status == 202
    await world.work()
    _, task = await open_server.send(
        door("GET", "/v1/tasks/{task_id}"), path=f"/v1/tasks/{accepted['task_id']}"
    )
    assert (task["state"], task["error"]["code"]) == ("FAILED", "documents_failed")
    (document,) = task["documents"]
    assert document["state"] == "FAILED"
    assert len(document["error"].split()) > 2
    releases = await world.catalog.releases("acme", "handbook")
    assert [release.state.value for release in releases] == ["ACTIVE"]
