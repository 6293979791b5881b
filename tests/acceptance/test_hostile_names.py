"""Hostile names on both real vector stores: each is matched literally or refused, and finds no more rows."""

import itertools
import json
import time
from dataclasses import dataclass
from typing import Any

import pytest

from gateway.access.principal import SCOPES
from tests.acceptance.conftest import Demo

TENANT = "hostile"
SECRET = "The blue lamp of the lighthouse is lit at nineteen minutes past seven."
OWN = "The red lamp of the harbour is lit at eleven minutes past six."
QUERY = "When is the lamp lit?"
ALL_SCOPES = tuple(SCOPES)
ENDED = {"SUCCEEDED", "FAILED", "CANCELLED"}
PATIENCE_S = 60

#: names that mean something in a filter, a query, a path, a pattern or a page
NAMES = {
    "or true": '") or true or ("',
    "or true, single": "') or true or ('",
    "closing": 'a") or tenant_id != ("',
    "always": "pk >= 0) or (pk >= 0",
    "comment": "a' --",
    "union": "x' UNION SELECT * FROM documents; DROP TABLE documents; --",
    "backslash": "a\\",
    "backslash quote": 'a\\"',
    "two backslashes": "a\\\\",
    "quote": 'a"b',
    "only a quote": '"',
    "backtick": "a`b",
    "unicode escape": "a\\u0022 or true",
    "percent": "%",
    "underscore": "_",
    "star": "*",
    "braces": "{x} {0} %s ${x}",
    "brackets": "a[0] in [1, 2]",
    "list": 'x", "public',
    "colon": "group:staff:x",
    "comma": "staff,admin",
    "emoji": "🙈👩‍👩‍👧".replace("\u200d", ""),
    "Chinese": "知识库",
    "accent, composed": "caf\u00e9",
    "accent, apart": "cafe\u0301",
    "page": "<img src=x onerror=alert(1)>",
    "spaces inside": "a  b",
    "null": "null",
    "number": "0",
    "long": "n" * 240,
}
#: no store can match these literally, so they are refused
REFUSED = {
    "NUL": "a\0b",
    "10 kB": "n" * 10_240,
}


#: callers without a name of their own are all different ones, each with a rate of his own
_NUMBERS = itertools.count()


@dataclass
class Hostile:
    demo: Demo

    def token(self, subject: str = "", groups: tuple[str, ...] = ()) -> str:
        return self.demo.sign(TENANT, subject or f"eve-{next(_NUMBERS)}", groups, ALL_SCOPES)

    def upload(self, source: str, text: str, **fields: Any) -> dict[str, Any]:
        """Uploads, waits for the task, and returns it; a problem is returned as it is."""
        form = {"knowledge_base": "harbour", "allow": "group:sailors", "activate": "true"} | fields
        response = self.demo.request(
            "POST", "/v1/documents", self.token(), data=form, files=[("file", (source, text.encode()))]
        )
        answer: dict[str, Any] = response.json()
        if response.status_code != 202:
            return answer
        return self.ended(answer["task_id"])

    def ended(self, task_id: str) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            task: dict[str, Any] = self.demo.request("GET", f"/v1/tasks/{task_id}", self.token()).json()
            if task["state"] in ENDED:
                return task
        raise AssertionError(f"the task did not end: {task}")

    def search(self, token: str, **params: str) -> tuple[int, list[str]]:
        """Status and the contents found."""
        response = self.demo.request("GET", "/v1/search", token, params={"query": QUERY, **params})
        if response.status_code != 200:
            return response.status_code, []
        return 200, [result["content"] for result in response.json()["results"]]


@pytest.fixture(scope="module")
def hostile(demo: Demo) -> Hostile:
    """A tenant with one secret that nobody here may see, and one harbour that sailors see."""
    hostile = Hostile(demo)
    secret = hostile.upload("lighthouse.md", SECRET, allow="user:keeper", category="secret")
    assert secret["state"] == "SUCCEEDED", secret
    own = hostile.upload("harbour.md", OWN, allow="group:sailors", category="plain")
    assert own["state"] == "SUCCEEDED", own
    return hostile


def test_the_world_is_as_the_tests_believe(hostile: Hostile) -> None:
    """Sailors see the harbour, the keeper the lighthouse, nobody else anything."""
    assert hostile.search(hostile.token(groups=("sailors",))) == (200, [OWN])
    assert hostile.search(hostile.token("keeper")) == (200, [SECRET])
    assert hostile.search(hostile.token()) == (404, [])


EVERY = {**NAMES, **REFUSED}
by_name = pytest.mark.parametrize("name", EVERY.values(), ids=EVERY)
matched = pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)


@by_name
def test_a_knowledge_base_of_that_name_is_not_found(hostile: Hostile, name: str) -> None:
    """404 or 400 from both doors, with the sailors' rights; never a row."""
    token = hostile.token(groups=("sailors",))
    status, found = hostile.search(token, knowledge_base=name)
    assert (status, found) in [(404, []), (400, [])]
    answer = hostile.demo.ask(token, QUERY, knowledge_base=name)
    assert answer.status in {404, 400}
    assert not answer.events


@by_name
def test_a_category_of_that_name_finds_nothing(hostile: Hostile, name: str) -> None:
    """A literal match of nothing, or 400."""
    token = hostile.token(groups=("sailors",))
    assert hostile.search(token, category=name) in [(200, []), (400, [])]


@by_name
def test_a_chunk_of_that_name_is_not_found(hostile: Hostile, name: str) -> None:
    """404, or 400 for what can't be matched; never somebody's passage."""
    path = "/v1/sources/" + "".join(f"%{byte:02X}" for byte in name.encode())
    response = hostile.demo.request("GET", path, hostile.token(groups=("sailors",)))
    assert response.status_code in {404, 400}
    assert "lamp" not in response.text


@by_name
def test_a_caller_of_that_name_sees_nothing(hostile: Hostile, name: str) -> None:
    """As subject and as group: signed by the issuer, and still only a literal name."""
    for token in (
        hostile.token(subject=name),
        hostile.token(groups=(name,)),
        hostile.token("eve", (name, "x")),
    ):
        status, found = hostile.search(token)
        assert (status, found) in [(404, []), (401, [])]


@by_name
def test_a_tenant_of_that_name_has_nothing(hostile: Hostile, name: str) -> None:
    """Its token opens its own, empty tenant."""
    token = hostile.demo.sign(name, "eve", ("sailors",), ALL_SCOPES)
    status, found = hostile.search(token, knowledge_base="harbour")
    assert (status, found) in [(404, []), (401, [])]


def test_names_that_can_be_matched_are_matched_literally(hostile: Hostile) -> None:
    """Every name at once as knowledge base, group, user, category and source of a document of its own.

    Each caller then sees exactly the one document that names him, by exactly its own category.
    """
    tasks = {}
    for label, name in NAMES.items():
        text = f"The lamp number {label} is lit at noon."
        form = {"knowledge_base": name, "category": name, "activate": "true", "allow": [f"group:{name}"]}
        response = hostile.demo.request(
            "POST",
            "/v1/documents",
            hostile.token(),
            data=form | {"source": source_of(name)},
            files=[("file", ("a.md", text.encode()))],
        )
        assert response.status_code == 202, (label, response.text)
        tasks[label] = response.json()["task_id"]
    for label, task_id in tasks.items():
        task = hostile.ended(task_id)
        assert task["state"] == "SUCCEEDED", (label, task)
    for label, name in NAMES.items():
        expected = [f"The lamp number {label} is lit at noon."]
        token = hostile.token(groups=(name,))
        for params in ({}, {"knowledge_base": name}, {"knowledge_base": name, "category": name}):
            assert hostile.search(token, **params) == (200, expected), (label, params)
        assert hostile.search(token, knowledge_base=name, category=name + "x") == (200, [])
        for other in ("harbour", name + "x", name[:-1] or "y"):
            assert hostile.search(token, knowledge_base=other) == (404, []), (label, other)
        assert hostile.search(hostile.token(groups=(name + "x",)), knowledge_base=name) == (404, [])


def source_of(name: str) -> str:
    """A source is a relative path, so a slash or a backslash in it separates folders."""
    return f"{name}/a.md".replace("\\", "-")


def test_a_revocation_of_a_hostile_name_hits_nobody_else(hostile: Hostile) -> None:
    """Revoking `%`, `*` or a quote as user and group leaves the sailors as they are."""
    for name in NAMES.values():
        for kind in ("user", "group"):
            body = {"kind": kind, "id": name, "reason": name}
            response = hostile.demo.request("POST", "/v1/revocations", hostile.token(), json=body)
            assert response.status_code == 201, (name, response.text)
            assert hostile.search(hostile.token(groups=(name, "sailors")))[0] in {200, 400}
            if kind == "group":
                assert hostile.search(hostile.token(groups=(name,))) == (404, [])
        assert hostile.search(hostile.token(subject=name, groups=("sailors",)))[0] == 403
    assert OWN in hostile.search(hostile.token(groups=("sailors",)))[1]
    listed = hostile.demo.request("GET", "/v1/revocations", hostile.token()).json()["revocations"]
    assert {r["id"] for r in listed} == set(NAMES.values())
    assert json.dumps(listed)
