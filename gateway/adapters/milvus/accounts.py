"""Accounts: what the store's own account may do that a runtime one must not, and how one is made."""

import secrets
from collections.abc import Callable, Mapping, Sequence

from pymilvus import MilvusException

from gateway.adapters.milvus.client import Connection, admits_strangers, denied

NO_AUTHORIZATION = "no authorization: anyone who reaches the server may do anything"

_ROLE = "qa_gateway_runtime"
#: what imports and questions need, as (object, privilege) of Milvus; no create, drop or alter among them
_RUNTIME = (
    ("Global", "DescribeCollection"),
    ("Global", "ShowCollections"),
    ("Collection", "IndexDetail"),
    ("Collection", "Search"),
    ("Collection", "Query"),
    ("Collection", "Insert"),
    ("Collection", "Upsert"),
    ("Collection", "Delete"),
    ("Collection", "Flush"),
    ("Collection", "GetFlushState"),
    ("Collection", "GetStatistics"),
    ("Collection", "Load"),
    ("Collection", "GetLoadState"),
    ("Collection", "GetLoadingProgress"),
)


def excess_privileges(connection: Connection, cap_s: float) -> list[str]:
    """Empty for an account fit to serve. Asks for what can't be done: names that nobody has.

    The server answers for the account before it looks for the thing. Raises what pymilvus raises.
    """
    if admits_strangers(connection.endpoint):
        return [NO_AUTHORIZATION]
    probes = _probes(connection, f"qa_gateway_probe_{secrets.token_hex(8)}", cap_s)
    return [name for name, probe in probes.items() if not denied(probe)]


def _probes(connection: Connection, nobody: str, cap_s: float) -> Mapping[str, Callable[[], object]]:
    client = connection.writer
    place = {"collection_name": nobody, "timeout": cap_s}
    index = client.prepare_index_params(field_name="vector", index_type="FLAT", metric_type="COSINE")
    return {
        "alter a collection": lambda: client.alter_collection_properties(
            properties={"collection.ttl.seconds": "0"}, **place
        ),
        "create an index": lambda: client.create_index(index_params=index, **place),
        "drop an index": lambda: client.drop_index(index_name="vector", **place),
        "create a partition": lambda: client.create_partition(partition_name="p", **place),
        "drop a collection": lambda: client.drop_collection(**place),
        "rename a collection": lambda: client.rename_collection(nobody, f"{nobody}_", timeout=cap_s),
        "drop a user": lambda: client.drop_user(nobody, timeout=cap_s),
    }


def make_runtime_account(connection: Connection, user: str, password: str, cap_s: float) -> None:
    """An account with nothing but what serving needs; one that exists keeps its password.

    Raises what pymilvus raises.
    """
    client = connection.writer
    _ensure(
        user,
        listed=lambda: client.list_users(timeout=cap_s),
        create=lambda: client.create_user(user, password, timeout=cap_s),
    )
    _ensure(
        _ROLE,
        listed=lambda: client.list_roles(timeout=cap_s),
        create=lambda: client.create_role(_ROLE, timeout=cap_s),
    )
    for kind, privilege in _RUNTIME:
        client.grant_privilege(_ROLE, kind, privilege, "*", timeout=cap_s)
    client.grant_role(user, _ROLE, timeout=cap_s)


def _ensure(name: str, *, listed: Callable[[], Sequence[str]], create: Callable[[], object]) -> None:
    """Creates what isn't there; another process may have been faster, which is as good."""
    if name in listed():
        return
    try:
        create()
    except MilvusException:
        # the server has no code of its own for a name that is taken: what is there now decides
        if name not in listed():
            raise
