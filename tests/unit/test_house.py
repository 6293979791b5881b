"""Rules of the house that no other tool checks."""

import ast
import functools
import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

import gateway
from gateway import errors
from gateway.web.problems import status_of

ROOT = Path(gateway.__file__).parent
PROJECT = ROOT.parent
MODULES = sorted(ROOT.rglob("*.py"))
MAX_LINES = 400
ERRORS = [
    kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.GatewayError)
]
#: classes that share the code of the defect they are a kind of
SHARED = {"internal_error"}


def name_of(path: Path) -> str:
    return path.relative_to(PROJECT).as_posix()


def imported(path: Path) -> set[str]:
    """Every module and name that a file imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_there_are_modules_to_look_at() -> None:
    """A moved folder would make every rule below hold for nothing."""
    assert len(MODULES) > 80


def test_no_module_uses_the_middleware_that_breaks_streams() -> None:
    """BaseHTTPMiddleware buffers, doubles the cost of an event and hides a disconnect."""
    for path in MODULES:
        text = path.read_text("utf-8")
        assert "BaseHTTPMiddleware" not in text, name_of(path)
        if "starlette" in text:  # reading a module takes long
            assert "starlette.middleware.base" not in imported(path), name_of(path)


def test_a_module_is_short_and_says_what_it_is() -> None:
    """One noun a file; its docstring begins with what it is."""
    for path in MODULES:
        text = path.read_text("utf-8")
        if "migrations" not in path.parts:
            assert len(text.splitlines()) <= MAX_LINES, name_of(path)
        docstring = ast.get_docstring(ast.parse(text))
        assert docstring, name_of(path)
        first, *_ = docstring.strip().splitlines()
        assert first.rstrip().endswith((".", ",", ";", ":", "…", ")")), name_of(path)


def test_nothing_names_a_machine_or_an_index() -> None:
    """Paths of a developer's machine and package hosts have no place in the product."""
    for path in MODULES:
        text = path.read_text("utf-8")
        hosts = re.findall(r"(?:pypi|pythonhosted|conda|npmjs|huggingface)\.(?:org|com|io|co)", text)
        assert hosts == [], name_of(path)
        assert not re.search(r"[\"'](?:/home/|/Users/|/root/|/work\b|C:\\\\)", text), name_of(path)


def test_every_error_has_a_code_of_its_own() -> None:
    """Clients branch on it, so no two mean different things by one code."""
    codes = Counter(kind.code for kind in ERRORS if kind.code not in SHARED)
    assert {code for code, count in codes.items() if count > 1} == set()
    shared = {kind for kind in ERRORS if kind.code in SHARED}
    assert shared == {errors.GatewayError, *subclasses(errors.InvariantViolated)}
    for kind in ERRORS:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", kind.code), kind
        assert kind.title
        assert not kind.title.endswith(".")
        assert "code" in vars(kind) or kind.code in SHARED, kind


def subclasses(kind: type[errors.GatewayError]) -> set[type[errors.GatewayError]]:
    """The class and everything below it in the tree; an adapter's private ones are its own business."""
    below = [sub for sub in kind.__subclasses__() if sub.__module__ == errors.__name__]
    return {kind} | {found for sub in below for found in subclasses(sub)}


def test_the_published_tree_is_complete() -> None:
    """Every class stands in the module's docstring, below its parent, and nothing else does."""
    docstring = errors.__doc__ or ""
    tree = docstring.partition("\n\n")[2].partition("\n\nA refusal")[0]
    named = set(re.findall(r"\b[A-Z][a-z]+[A-Za-z]*\b", tree))
    assert named == {kind.__name__ for kind in ERRORS}
    for family in (kind for kind in ERRORS if kind.__base__ is errors.GatewayError):
        branch = re.split(r"\n    [├└]── ", tree)
        (own,) = [part for part in branch if part.startswith(family.__name__)]
        assert set(re.findall(r"\b[A-Z][a-z]+[A-Za-z]*\b", own)) == {k.__name__ for k in subclasses(family)}


#: what may end as a 500: defects, and what never reaches a request
WITHOUT_STATUS = {
    *(errors.GatewayError, errors.ConfigurationError, errors.BackupDamaged, errors.DocumentUnusable),
    *subclasses(errors.InvariantViolated),
}


def test_every_error_that_can_reach_a_caller_has_a_status() -> None:
    """A new family that nobody mapped would be a 500."""
    for kind in set(ERRORS) - WITHOUT_STATUS:
        instance = kind.__new__(kind)
        assert status_of(instance) != 500, kind
    for kind in WITHOUT_STATUS:
        assert status_of(kind.__new__(kind)) == 500


# -- the manifest of requirements, and the locks ------------------------------------------------------

REQUIREMENTS = PROJECT / "tests" / "requirements.toml"


def claimed() -> dict[str, list[str]]:
    """Requirement id -> node ids of tests, ``path::function``."""
    assert REQUIREMENTS.exists(), f"{name_of(REQUIREMENTS)} is missing"
    found: dict[str, list[str]] = tomllib.loads(REQUIREMENTS.read_text("utf-8"))["requirements"]
    return found


def test_every_requirement_that_is_claimed_names_its_tests() -> None:
    """An id without a test is a claim without a proof."""
    for requirement, tests in claimed().items():
        assert re.fullmatch(r"[A-Z]+-\d+", requirement), requirement
        assert tests, f"{requirement} names no test"
        assert len(set(tests)) == len(tests), requirement


def test_every_test_that_is_named_exists() -> None:
    """A renamed test has to be renamed in the manifest."""
    missing = []
    for requirement, tests in claimed().items():
        for test in tests:
            path, _, function = test.partition("::")
            if function not in functions_of(PROJECT / path):
                missing.append(f"{requirement}: {test}")
    assert missing == []


@functools.cache
def functions_of(path: Path) -> set[str]:
    """Names of a test module's functions; empty when there is no such module, all of it for ``""``."""
    if not path.is_file():
        return set()
    names = {
        node.name
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }
    return names | ({""} if names else set())


LOCKS = sorted((PROJECT / "requirements").iterdir())


@pytest.mark.parametrize("path", LOCKS, ids=name_of)
def test_a_lock_names_no_index_and_pins_by_hash(path: Path) -> None:
    """Where packages come from is the business of whoever installs them; what they are is ours."""
    lines = [line.strip() for line in path.read_text("utf-8").splitlines()]
    entries = [line for line in lines if line and not line.startswith("#")]
    assert entries
    for line in entries:
        assert "://" not in line, line
        option = line.partition(" ")[0].partition("=")[0]
        assert option not in {
            "-i",
            "-f",
            "--index-url",
            "--extra-index-url",
            "--find-links",
            "--trusted-host",
        }
    assert not any("://" in line for line in lines)
    if path.suffix == ".txt":
        pinned = [line for line in entries if not line.startswith("--hash")]
        assert all("==" in line for line in pinned)
        assert sum(line.startswith("--hash=sha256:") for line in entries) >= len(pinned)
        versions = [line.partition("==")[2].split()[0] for line in pinned]
        assert not [v for v in versions if re.search(r"\d(?:a|b|rc)\d|dev", v)], "a pre-release"
