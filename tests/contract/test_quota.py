"""The quota's contract, over the in-process twin (which is the embedded part too) and over Redis."""

import random
from collections.abc import AsyncIterator, Awaitable, Callable

import anyio
import anyio.lowlevel
import pytest

from gateway.adapters.redis.quota import RedisQuota
from gateway.admission.quota import LocalQuota, Quota, QuotaLease, ReservationKey
from gateway.errors import QuotaExceeded
from tests.harness.redis_server import RedisServer

PATIENCE_S = 30
LEASE_S = 60
CAP_MS = 10_000

Open = Callable[[int], Awaitable[Quota]]


@pytest.fixture(params=["memory", "embedded", "real"])
async def open_quota(request: pytest.FixtureRequest) -> AsyncIterator[Open]:
    """Opens one quota with a limit."""
    opened: list[RedisQuota] = []

    async def open_one(limit: int) -> Quota:
        if request.param != "real":
            return LocalQuota(limit)
        redis: RedisServer = request.getfixturevalue("redis")
        quota = RedisQuota(redis.fresh(), limit, LEASE_S, CAP_MS)
        opened.append(quota)
        await quota.start_incarnation()
        return quota

    yield open_one
    for quota in opened:
        await quota.aclose()


def key(name: str, attempt: int = 1, endpoint: str = "m") -> ReservationKey:
    return ReservationKey(name, attempt, endpoint)


async def reserve(quota: Quota, name: str, tenant: str = "acme", model: str = "m") -> QuotaLease:
    return await quota.reserve(key(name), tenant, model, 100)


async def reserve_soon(quota: Quota, name: str, tenant: str = "acme", model: str = "m") -> QuotaLease:
    """Asks until there is a place: a release may still be on its way."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            try:
                return await reserve(quota, name, tenant, model)
            except QuotaExceeded:
                await anyio.lowlevel.checkpoint()


async def test_a_tenant_has_only_so_many_running_calls(open_quota: Open) -> None:
    """The next one is refused and told when to come again; a call that ended makes room for one."""
    quota = await open_quota(2)
    first = await reserve(quota, "r1")
    await reserve(quota, "r2")
    with pytest.raises(QuotaExceeded) as caught:
        await reserve(quota, "r3")
    assert caught.value.retry_after_ms
    first.release()
    await reserve_soon(quota, "r3")
    with pytest.raises(QuotaExceeded):
        await reserve(quota, "r4")


async def test_tenants_and_models_are_apart(open_quota: Open) -> None:
    """Also when their names, put together, read alike."""
    quota = await open_quota(1)
    pairs = [
        ("acme", "m"),
        ("globex", "m"),
        ("acme", "n"),
        ("a:b", "c"),
        ("a", "b:c"),
        ("a%3Ab", "c"),
        ("", ""),
    ]
    for tenant, model in pairs:
        await reserve(quota, "r1", tenant, model)
    for tenant, model in pairs:
        with pytest.raises(QuotaExceeded):
            await reserve(quota, "r2", tenant, model)


async def test_the_same_reservation_counts_once(open_quota: Open) -> None:
    """A step that is repeated takes no second place, also when there is none left."""
    quota = await open_quota(2)
    first = await reserve(quota, "r1")
    await reserve(quota, "r1")
    await reserve(quota, "r2")
    await reserve(quota, "r1")
    with pytest.raises(QuotaExceeded):
        await reserve(quota, "r3")
    first.release()
    await reserve_soon(quota, "r3")
    with pytest.raises(QuotaExceeded):
        await reserve(quota, "r4")


async def test_every_part_of_its_key_tells_a_reservation_from_others(open_quota: Open) -> None:
    """Another request, attempt or endpoint is another call."""
    keys = [
        key("r"),
        key("r", attempt=2),
        key("r", endpoint="n"),
        key("r:1"),
        key("r:1:m"),
        key("知识/🦊 {x}"),
    ]
    quota = await open_quota(len(keys))
    for each in keys:
        await quota.reserve(each, "acme", "m", 1)
    with pytest.raises(QuotaExceeded):
        await reserve(quota, "another")


async def test_settling_and_releasing_free_one_place(open_quota: Open) -> None:
    """In any order and number."""
    quota = await open_quota(2)
    first = await reserve(quota, "r1")
    await reserve(quota, "r2")
    first.settle(10)
    first.release()
    first.settle(None)
    first.release()
    await reserve_soon(quota, "r3")
    with pytest.raises(QuotaExceeded):
        await reserve(quota, "r4")


async def test_callers_at_once_never_pass_the_limit_together(open_quota: Open) -> None:
    """Exactly as many as there are places."""
    quota = await open_quota(5)
    outcomes: list[bool] = []

    async def ask(number: int) -> None:
        try:
            await reserve(quota, f"r{number}")
        except QuotaExceeded:
            outcomes.append(False)
        else:
            outcomes.append(True)

    async with anyio.create_task_group() as tasks:
        for number in range(40):
            tasks.start_soon(ask, number)
    assert sorted(outcomes) == [False] * 35 + [True] * 5


async def test_a_caller_cancelled_while_reserving_leaks_nothing(open_quota: Open) -> None:
    """300 callers, most of them cancelled after some turns; then every place is there, and no more."""
    rng = random.Random(3)
    quota = await open_quota(4)

    async def call(name: str, scope: anyio.CancelScope) -> None:
        with scope:
            try:
                lease = await reserve(quota, name)
            except QuotaExceeded:
                return
            try:
                await anyio.lowlevel.checkpoint()
            finally:
                lease.release()

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            for number in range(300):
                scope = anyio.CancelScope()
                tasks.start_soon(call, f"r{number}", scope)
                for _ in range(rng.randrange(30)):
                    await anyio.lowlevel.checkpoint()
                scope.cancel()
    for number in range(4):
        await reserve_soon(quota, f"after{number}")
    with pytest.raises(QuotaExceeded):
        await reserve(quota, "one more")
