"""A Redis Cluster of two nodes for tests, each with half of the slots."""

import contextlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from tests.harness.redis_server import RedisServer

_SLOTS = 16384
_START_S = 30.0
_LOOK_S = 0.02


class ClusterNode(RedisServer):
    """One of a cluster, without a slot."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.bus_port = RedisServer(folder).port  # a free one

    def _options(self) -> list[str]:
        return [
            *super()._options(),
            *("--cluster-enabled", "yes", "--cluster-port", str(self.bus_port), "--databases", "1"),
        ]


@contextmanager
def redis_cluster(folder: Path) -> Iterator[list[ClusterNode]]:
    """Two nodes that know each other and agree on who has which slot."""
    with contextlib.ExitStack() as stack:
        nodes, clients = [], []
        for number in range(2):
            place = folder / f"node-{number}"
            place.mkdir()
            node = ClusterNode(place)
            stack.callback(node.stop)
            node.start()
            nodes.append(node)
            clients.append(stack.enter_context(contextlib.closing(redis.Redis.from_url(node.url))))
        for client, (first, last) in zip(clients, _halves(), strict=True):
            _tell(client, "CLUSTER", "ADDSLOTSRANGE", first, last)
        _tell(clients[0], "CLUSTER", "MEET", "127.0.0.1", nodes[1].port, nodes[1].bus_port)
        _until_ready(clients)
        yield nodes


def _tell(client: redis.Redis, *words: str | int) -> object:
    return client.execute_command(*words)  # type: ignore[no-untyped-call]  # redis-py's


def _halves() -> list[tuple[int, int]]:
    return [(0, _SLOTS // 2 - 1), (_SLOTS // 2, _SLOTS - 1)]


def _until_ready(clients: list[redis.Redis]) -> None:
    until, pause = time.monotonic() + _START_S, threading.Event()
    while not all("cluster_state:ok" in str(_tell(client, "CLUSTER", "INFO")) for client in clients):
        if time.monotonic() > until:
            raise RuntimeError("the cluster doesn't become one")
        pause.wait(_LOOK_S)
