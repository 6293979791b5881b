"""Addresses of a Redis that is more than one server: behind Sentinel, or a Redis Cluster."""

from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import parse_qs, unquote, urlsplit

_SENTINEL_PORT = 26379
_REDIS_PORT = 6379


@dataclass(frozen=True, slots=True)
class Addresses:
    """``redis+sentinel://[user:password@]host:port,host:port/service[/db][?sentinel_password=…]`` or
    ``redis+cluster://[user:password@]host:port,host:port``; ``rediss+…`` speaks TLS.
    """

    kind: Literal["sentinel", "cluster"]
    hosts: tuple[tuple[str, int], ...]
    tls: bool = False
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    sentinel_password: str | None = field(default=None, repr=False)
    service: str = ""
    database: int = 0

    @classmethod
    def parse(cls, url: str) -> "Addresses | None":
        """None for a URL of one server. Raises ValueError for one that means nothing."""
        parts = urlsplit(url)
        client, plus, kind = parts.scheme.partition("+")
        if not plus:
            return None
        if client not in ("redis", "rediss"):
            raise ValueError("no Redis")
        login, _, hosts = parts.netloc.rpartition("@")
        username, _, password = login.partition(":")
        given: dict[str, Any] = {
            "tls": client == "rediss",
            "username": unquote(username) or None,
            "password": unquote(password) or None,
        }
        if kind == "cluster":
            if parts.path.strip("/"):
                raise ValueError("a cluster has one database")
            return cls("cluster", _hosts(hosts, _REDIS_PORT), **given)
        if kind != "sentinel":
            raise ValueError("neither Sentinel nor Cluster")
        service, _, database = parts.path.strip("/").partition("/")
        if not service:
            raise ValueError("no service")
        return cls(
            "sentinel",
            _hosts(hosts, _SENTINEL_PORT),
            sentinel_password=parse_qs(parts.query).get("sentinel_password", [None])[0],
            service=unquote(service),
            database=int(database or 0),
            **given,
        )


def _hosts(listed: str, default_port: int) -> tuple[tuple[str, int], ...]:
    """Each ``host``, ``host:port`` or ``[address]:port``."""
    found = []
    for entry in listed.split(","):
        parts = urlsplit(f"//{entry}")
        if not parts.hostname:
            raise ValueError("no host")
        found.append((parts.hostname, parts.port or default_port))
    return tuple(found)
