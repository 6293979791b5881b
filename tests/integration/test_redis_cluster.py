"""What Redis is used for, in a Redis Cluster of two nodes."""

import contextlib
from collections.abc import Iterator

import anyio
import pytest

from gateway.adapters.redis.answers import RedisAnswers
from gateway.errors import QuotaExceeded
from tests.harness.redis_cluster import ClusterNode, redis_cluster
from tests.integration.quota_world import PATIENCE_S, quota_at, raw, reserve, reserve_soon, terms

LONG_S = 600.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ClusterNode]]:
    """Each node has half of the slots."""
    with redis_cluster(tmp_path_factory.mktemp("cluster")) as nodes:
        yield nodes


async def test_a_quota_is_in_one_slot(cluster: list[ClusterNode]) -> None:
    """The node that doesn't have the slot sends us to the other."""
    for node in cluster:
        url = f"redis+cluster://127.0.0.1:{node.port}"
        async with quota_at(url, terms(1), cap_ms=5000) as quota:
            assert not (await quota.server()).evicts
            lease = await reserve(quota, f"r-{node.port}")
            with pytest.raises(QuotaExceeded):
                await reserve(quota, "one more")
            lease.release()
            (await reserve_soon(quota, "after")).release()
    counts = await _counts(cluster, "qa-gateway:{quota}:*")
    assert (min(counts), max(counts) > 0) == (0, True)


async def test_answers_are_spread_over_all_nodes(cluster: list[ClusterNode]) -> None:
    """The lists of documents lie in one slot; and everything is found again, and forgotten."""
    names = [f"answer-{number}" for number in range(20)]
    answers = RedisAnswers(f"redis+cluster://127.0.0.1:{cluster[1].port}", 2**30, 10_000)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(answers.aclose)
        stack.enter_context(anyio.fail_after(PATIENCE_S))
        for name in names:
            assert await answers.write(name, b"answer", LONG_S, ["d1", "d2", name])
            assert await answers.claim(name, "ann", LONG_S)
        assert [await answers.read(name) for name in names] == [b"answer"] * len(names)
        counts = await _counts(cluster, "qa-gateway:answer:*")
        assert (sum(counts), min(counts) > 0) == (len(names), True)
        assert await answers.forget(["d1"]) == len(names)
        assert await answers.forget(["d2"]) == 0
        for name in names:
            await answers.unclaim(name, "ann")
            assert await answers.claim(name, "bob", LONG_S)


async def _counts(cluster: list[ClusterNode], pattern: str) -> list[int]:
    """How many such keys each node has."""
    counts = []
    for node in cluster:
        async with raw(node.url) as client:
            counts.append(len(await client.keys(pattern)))
    return counts
