"""docker-compose.yml and Dockerfile hold together: as far as that shows without an engine that runs them."""

import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import gateway
from gateway.bootstrap.fitness import refuse_unfit
from gateway.cli.owner import OwnerSettings
from gateway.settings import Settings

PROJECT = Path(gateway.__file__).parent.parent
COMPOSE: Mapping[str, Any] = import_module("yaml").safe_load((PROJECT / "docker-compose.yml").read_text())
SERVICES: Mapping[str, Mapping[str, Any]] = COMPOSE["services"]
OURS = [name for name, service in SERVICES.items() if "build" in service]
SERVING = [name for name, service in SERVICES.items() if service.get("command") == ["serve"]]
DOCKERFILE = (PROJECT / "Dockerfile").read_text()
_VARIABLE = re.compile(r"\$\{(\w+)(?::?[-?]([^}]*))?\}")


def given(name: str) -> dict[str, Any]:
    """The settings of a service by their fields: variables, and its secrets with something in them."""
    service = SERVICES[name]
    variables = {
        variable.removeprefix("GATEWAY_").lower(): _VARIABLE.sub("https://example.com", value)
        for variable, value in service["environment"].items()
        if variable.startswith("GATEWAY_")
    }
    secrets = {secret["target"].removeprefix("gateway_"): "a-secret" for secret in service["secrets"]}
    return {**variables, **secrets}


@pytest.mark.parametrize("name", OURS)
def test_every_setting_exists(name: str) -> None:
    """A misspelt one would be ignored in silence."""
    known = OwnerSettings if name == "migrate" else Settings
    assert set(given(name)) - set(known.model_fields) == set()
    assert all(secret["target"].startswith("gateway_") for secret in SERVICES[name]["secrets"])


@pytest.mark.parametrize("name", [*SERVING, "worker"])
def test_a_start_in_production_has_all_it_needs(name: str, tmp_path: Path) -> None:
    """What ``serve`` and ``worker`` refuse before they open anything."""
    chosen = Settings(**(given(name) | {"secrets_dir": tmp_path}))
    assert chosen.env == "production"
    refuse_unfit(chosen)


def test_nginx_asks_the_gateways_that_there_are() -> None:
    """By name and port."""
    text = (PROJECT / "nginx" / "qa-gateway" / "upstreams.conf").read_text()
    ports = {name: SERVICES[name]["environment"]["GATEWAY_PORT"] for name in SERVING}
    assert re.findall(r"server ([\w-]+):(\d+) ", text) == 2 * list(ports.items())  # a second time as backups
    assert len(ports) == 2
    (port,) = SERVICES["nginx"]["ports"]
    inside = port.rpartition(":")[2]
    assert f"listen {inside} " in (PROJECT / "nginx" / "qa-gateway.conf").read_text()


def test_only_nginx_can_be_reached_from_outside() -> None:
    """And the servers not even from the network of nginx."""
    assert [name for name, service in SERVICES.items() if "ports" in service] == ["nginx"]
    assert COMPOSE["networks"]["data"] == {"internal": True}
    apart = {name for name, service in SERVICES.items() if "edge" not in service["networks"]}
    assert apart == {"postgres", "redis", "milvus", "etcd", "minio", "bucket"}
    assert SERVICES["nginx"]["networks"] == ["edge"]


@pytest.mark.parametrize("name", SERVICES)
def test_what_a_service_waits_for_can_come(name: str) -> None:
    """A service with a health check, or one that ends."""
    for other, how in SERVICES[name].get("depends_on", {}).items():
        awaited = SERVICES[other]
        if how["condition"] == "service_healthy":
            assert awaited["healthcheck"]["test"][0] in {"CMD", "CMD-SHELL"}, other
        else:
            assert how["condition"] == "service_completed_successfully"
            assert awaited["restart"] == "no", other


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_bounded_and_named_by_version(name: str) -> None:
    """No tag that moves; memory, processors and processes have an end."""
    service = SERVICES[name]
    image = _VARIABLE.sub(lambda found: found[2], service["image"])
    assert re.search(r":(?:v|RELEASE\.)?\d+[.\d-]", image), image
    assert set(service["deploy"]["resources"]["limits"]) == {"cpus", "memory", "pids"}
    assert "no-new-privileges:true" in service.get("security_opt", []) or name not in {*OURS, "nginx"}
    if name in OURS:
        assert image == f"qa-gateway:{gateway.__version__}"


@pytest.mark.parametrize("name", [*OURS, "nginx"])
def test_what_is_ours_has_no_powers(name: str) -> None:
    """No root, no capability, nothing to write to but /tmp."""
    service = SERVICES[name]
    assert service["user"].split(":")[0] not in {"0", "root"}
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert all(mount.endswith(":ro") for mount in service.get("volumes", []))


@pytest.mark.parametrize("kind", ["networks", "volumes", "secrets", "configs"])
def test_what_is_declared_is_used_and_the_other_way_round(kind: str) -> None:
    """Names that lead nowhere are mistakes."""
    used = {entry for service in SERVICES.values() for entry in map(source_of, service.get(kind, []))}
    assert {name for name in used if not name.startswith(".")} == set(COMPOSE[kind])


def source_of(entry: str | Mapping[str, str]) -> str:
    return entry.partition(":")[0] if isinstance(entry, str) else entry["source"]


def test_no_secret_is_written_down() -> None:
    """Neither a password in the file, nor one with a default."""
    for service in SERVICES.values():
        for variable, value in service.get("environment", {}).items():
            secret = re.search(r"PASSWORD|SECRET_|TOKEN|_KEY\b", variable)
            assert not secret or variable.endswith("_FILE"), (variable, value)
    assert {entry["file"].split("/")[1] for entry in COMPOSE["secrets"].values()} == {"secrets"}


# -- the image ---------------------------------------------------------------------------------------


def test_the_image_is_made_of_the_locks_and_run_by_nobody() -> None:
    """Hashes for all that is installed, one base by version, no root, a health check."""
    bases = set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE))
    assert len(bases) == 1
    assert re.fullmatch(r"python:3\.11\.\d+-slim-\w+", bases.pop())
    installs = re.findall(r"pip install (.*?)(?: \\)?$", DOCKERFILE, re.MULTILINE)
    assert installs == ["--require-hashes -r requirements/base.txt", "--no-deps --no-build-isolation ."]
    last = DOCKERFILE.rpartition("\nFROM ")[2]
    (user,) = re.findall(r"^USER (\d+):\d+$", last, re.MULTILINE)
    assert f"--uid {user}" in last
    assert {service["user"].partition(":")[0] for name, service in SERVICES.items() if name in OURS} == {user}
    assert "\nHEALTHCHECK " in last


def test_what_is_copied_is_there_and_not_ignored() -> None:
    """Everything is ignored but what the image is made of."""
    ignored, *allowed = [
        line for line in (PROJECT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"
    ]
    assert ignored == "*"
    copied = [
        source
        for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE)
        for source in line.split()[:-1]
    ]
    assert {f"!{source}" for source in copied} == {line for line in allowed if line[0] == "!"}
    assert all((PROJECT / source).exists() for source in copied)


def test_the_image_sets_only_what_exists() -> None:
    """As in the compose file."""
    names = re.findall(r"GATEWAY_(\w+)=", DOCKERFILE)
    assert names
    assert {name.lower() for name in names} - set(Settings.model_fields) == set()
