"""The two sides that the acceptance suite runs on: embedded parts, and servers as production has them."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from gateway.adapters.identity.tokens import LocalKey
from gateway.settings import Settings

if TYPE_CHECKING:
    from tests.harness.issuer import Issuer
    from tests.harness.milvus_server import MilvusServer
    from tests.harness.postgres import PostgresServer
    from tests.harness.redis_server import RedisServer
    from tests.harness.s3 import S3Server

#: the fixtures and the ids of the tests that run on both
SIDES = ("embedded", "servers")

AUDIENCE: str = Settings.model_fields["token_audience"].default
#: what is promised on a machine of its own isn't what a busy test machine can keep
PATIENT = {
    "GATEWAY_EMBED_CAP_MS": "5000",
    "GATEWAY_RETRIEVAL_CAP_MS": "5000",
    "GATEWAY_CATALOG_CAP_MS": "5000",
}
_PREFIX = "GATEWAY_"


class Side(Protocol):
    """Where gateways get their parts from. ``imports_apart``: a process of its own does the imports."""

    @property
    def name(self) -> str: ...

    @property
    def imports_apart(self) -> bool: ...

    async def fresh(self) -> dict[str, str]:
        """The environment of one gateway whose parts are ready and empty."""
        ...

    def fresh_catalog(self, folder: Path) -> dict[str, str]:
        """The environment that leads to an empty catalog; an embedded one lies in ``folder``."""
        ...

    def sign(
        self,
        data_dir: Path,
        *,
        tenant: str,
        subject: str,
        groups: Sequence[str],
        scopes: Sequence[str],
        ttl_s: float,
    ) -> str:
        """A token that gateways of this side believe; ``data_dir`` is the gateway's own."""
        ...


def settings_of(environment: Mapping[str, str], **changes: Any) -> Settings:
    """The settings of a process with this environment and no other."""
    given = {n.removeprefix(_PREFIX).lower(): v for n, v in environment.items() if n.startswith(_PREFIX)}
    return Settings(**{**given, **changes})


@dataclass(frozen=True)
class Embedded:
    """SQLite, Milvus Lite, the bundled models, a folder and the local key: all of it in the data folder."""

    name: str = "embedded"
    imports_apart: bool = False

    async def fresh(self) -> dict[str, str]:
        return {}

    def fresh_catalog(self, folder: Path) -> dict[str, str]:
        return {"GATEWAY_DATA_DIR": str(folder)}

    def sign(self, data_dir: Path, **who: Any) -> str:
        return LocalKey.load(data_dir).sign(**who, audience=AUDIENCE)


EMBEDDED = Embedded()


@dataclass(frozen=True)
class Servers:
    """PostgreSQL, a Milvus server, Redis, an S3-compatible store, an OIDC issuer, and an endpoint that
    makes the bundled model's vectors, at ``embedding_url``.

    Each gateway has a database, a bucket and a Redis database of its own. The collection is one for all:
    the ids of knowledge bases keep their rows apart.
    """

    postgres: "PostgresServer"
    milvus: "MilvusServer"
    redis: "RedisServer"
    s3: "S3Server"
    issuer: "Issuer"
    embedding_url: str
    name: str = "servers"
    imports_apart: bool = True

    async def fresh(self) -> dict[str, str]:
        from gateway.bootstrap.migrating import migrate_parts  # loads every adapter

        environment = {
            "GATEWAY_DATABASE_URL": self.postgres.migrated(),
            "GATEWAY_MILVUS_URI": self.milvus.uri,
            "GATEWAY_REDIS_URL": self.redis.fresh(),
            "GATEWAY_OBJECT_STORE_URL": self.s3.fresh_bucket(),
            "GATEWAY_OIDC_ISSUER": self.issuer.url,
            "GATEWAY_OIDC_AUDIENCE": AUDIENCE,
            "GATEWAY_EMBEDDING_BASE_URL": self.embedding_url,
            "GATEWAY_EMBEDDING_NAME": "wordllama-l2-supercat",
            "GATEWAY_EMBEDDING_DIMENSION": "256",
            "GATEWAY_EMBEDDING_MAX_SENSITIVITY": "3",
            "GATEWAY_SERVE_IMPORTS": "false",
            "GATEWAY_RETRIEVAL_MODE": "sdk",  # the extra takes each process over a second to load
            **PATIENT,
            **self.s3.environment,
        }
        await migrate_parts(settings_of(environment), lambda _said: None)
        return environment

    def fresh_catalog(self, folder: Path) -> dict[str, str]:
        return {"GATEWAY_DATABASE_URL": self.postgres.migrated()}

    def sign(self, data_dir: Path, **who: Any) -> str:
        return self.issuer.sign(
            tenant=who["tenant"],
            sub=who["subject"],
            groups=list(who["groups"]),
            scope=" ".join(who["scopes"]),
            exp=int(time.time() + who["ttl_s"]),
        )


@contextmanager
def embedding_endpoint() -> Iterator[str]:
    """The base URL of the model stub, which makes the bundled model's vectors in a thread of its own."""
    from anyio.from_thread import start_blocking_portal

    from loadtest.model_stub import serve_stub

    with start_blocking_portal() as portal, portal.wrap_async_context_manager(serve_stub()) as stub:
        yield stub.base_url
