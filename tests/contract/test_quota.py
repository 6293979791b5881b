"""The quota's contract, over the in-process twin (which is the embedded part too) and over Redis."""

import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import anyio
import anyio.lowlevel
import pytest

from gateway.adapters.redis.quota import RedisQuota
from gateway.adapters.redis.terms import QuotaTerms
from gateway.admission.quota import Quota, QuotaLease, QuotaLimits, ReservationKey
from gateway.admission.quota_local import LocalQuota
from gateway.bootstrap.quota import local_quota
from gateway.errors import QuotaExceeded
from gateway.settings import Settings
from tests.harness.redis_server import RedisServer

PATIENCE_S = 30
LEASE_S = 60
CAP_MS = 10_000
MINUTE_S = 60.0

Open = Callable[..., Awaitable[Quota]]


@pytest.fixture(params=["memory", "embedded", "real"])
async def open_quota(request: pytest.FixtureRequest) -> AsyncIterator[Open]:
    """Opens one quota with a tenant's limits, and a model's; ``window_s`` shortens the minute."""
    opened: list[RedisQuota] = []

    async def open_one(
        concurrency: int = 1000,
        requests: int | None = None,
        tokens: int | None = None,
        model: QuotaLimits = QuotaLimits(),  # noqa: B008 - it is frozen
        window_s: float = MINUTE_S,
    ) -> Quota:
        limits = QuotaLimits(concurrency, requests, tokens)
        if request.param == "embedded" and window_s == MINUTE_S:
            return local_quota(settings_of(limits, model))
        if request.param != "real":
            return LocalQuota(limits, model, window_s=window_s)
        redis: RedisServer = request.getfixturevalue("redis")
        terms = QuotaTerms(tenant=limits, model=model, lease_s=LEASE_S, total_cap_s=60, window_s=window_s)
        quota = RedisQuota(redis.fresh(), terms, "the-only-one", CAP_MS)
        opened.append(quota)
        await quota.start_incarnation()
        return quota

    yield open_one
    for quota in opened:
        await quota.aclose()


def settings_of(tenant: QuotaLimits, model: QuotaLimits) -> Settings:
    return Settings(
        quota_concurrency=tenant.concurrency or 1000,
        quota_requests_per_minute=tenant.requests_per_minute,
        quota_tokens_per_minute=tenant.tokens_per_minute,
        model_concurrency=model.concurrency,
        model_requests_per_minute=model.requests_per_minute,
        model_tokens_per_minute=model.tokens_per_minute,
    )


def key(name: str, attempt: int = 1, endpoint: str = "m") -> ReservationKey:
    return ReservationKey(name, attempt, endpoint)


async def reserve(
    quota: Quota, name: str, tenant: str = "acme", model: str = "m", tokens: int = 100
) -> QuotaLease:
    return await quota.reserve(key(name), tenant, model, tokens)


async def reserve_soon(quota: Quota, name: str, tenant: str = "acme", tokens: int = 100) -> QuotaLease:
    """Asks until there is room: what was given back may still be on its way."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            try:
                return await reserve(quota, name, tenant, tokens=tokens)
            except QuotaExceeded:
                await anyio.lowlevel.checkpoint()


async def refused(quota: Quota, name: str, **arguments: object) -> QuotaExceeded:
    with pytest.raises(QuotaExceeded) as caught:
        await reserve(quota, name, **arguments)  # type: ignore[arg-type]  # passed on as they are
    return caught.value


# -- running calls ----------------------------------------------------------------------------------


async def test_a_tenant_has_only_so_many_running_calls(open_quota: Open) -> None:
    """The next one is refused and told when to come again; a call that ended makes room for one."""
    quota = await open_quota(2)
    first = await reserve(quota, "r1")
    await reserve(quota, "r2", model="n")
    error = await refused(quota, "r3")
    assert error.retry_after_ms
    assert error.budget is not None
    assert (error.budget.policy, error.budget.limit, error.budget.remaining) == ("tenant-concurrency", 2, 0)
    first.release()
    await reserve_soon(quota, "r3")
    await refused(quota, "r4")


async def test_tenants_are_apart(open_quota: Open) -> None:
    """Also when their names read much alike."""
    quota = await open_quota(1)
    tenants = ["acme", "globex", "a:b", "a", "a%3Ab", "", "知识 {x}"]
    for tenant in tenants:
        await reserve(quota, "r1", tenant)
    for tenant in tenants:
        await refused(quota, "r2", tenant=tenant)


async def test_a_model_has_a_budget_of_its_own_over_all_tenants(open_quota: Open) -> None:
    """A call needs room in both; other models aren't touched."""
    quota = await open_quota(3, model=QuotaLimits(concurrency=2))
    first = await reserve(quota, "r1", "acme", "m")
    await reserve(quota, "r2", "globex", "m")
    error = await refused(quota, "r3", tenant="initech", model="m")
    assert error.budget is not None
    assert (error.budget.policy, error.budget.limit) == ("model-concurrency", 2)
    await reserve(quota, "r3", "initech", "n")
    first.release()
    await reserve_soon(quota, "r4", "initech")


async def test_a_refused_call_takes_nothing_of_the_other_budget(open_quota: Open) -> None:
    """Not of the tenant's when it is the model's that is spent."""
    quota = await open_quota(2, requests=2, tokens=200, model=QuotaLimits(concurrency=1))
    await reserve(quota, "r1", "globex", "m")
    for number in range(5):
        await refused(quota, f"no-{number}", model="m")
    await reserve(quota, "r2", model="n")
    await reserve(quota, "r3", model="o")


async def test_the_same_reservation_counts_once(open_quota: Open) -> None:
    """A step that is repeated takes no second place and no second tokens, also when there are none left."""
    quota = await open_quota(2, requests=3, tokens=300)
    first = await reserve(quota, "r1")
    await reserve(quota, "r1")
    await reserve(quota, "r2")
    await reserve(quota, "r1")
    await refused(quota, "r3")
    first.release()
    await reserve_soon(quota, "r3")
    await refused(quota, "r4")


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
    await refused(quota, "another")


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
    await refused(quota, "r4")


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
    """300 callers, most of them cancelled after some turns; then every place and token is there, and no
    more.
    """
    rng = random.Random(3)
    quota = await open_quota(4, tokens=400)

    async def call(name: str, scope: anyio.CancelScope) -> None:
        with scope:
            try:
                lease = await reserve(quota, name)
            except QuotaExceeded:
                return
            try:
                await anyio.lowlevel.checkpoint()
            finally:
                lease.settle(0)

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
    await refused(quota, "one more")


# -- rates ------------------------------------------------------------------------------------------


async def test_requests_of_the_last_minute_are_limited(open_quota: Open) -> None:
    """Also those that are over and have used nothing; the refusal says when the first one leaves."""
    quota = await open_quota(requests=3)
    for number in range(3):
        (await reserve(quota, f"r{number}")).settle(0)
    error = await refused(quota, "r4")
    assert error.budget is not None
    assert (error.budget.policy, error.budget.limit) == ("tenant-requests", 3)
    assert (error.budget.window_s, error.budget.remaining) == (60, 0)
    assert 30_000 < (error.retry_after_ms or 0) <= 61_000
    assert 30 < error.budget.reset_s <= 61
    await reserve(quota, "r4", "globex")


async def test_tokens_are_reserved_before_they_are_used(open_quota: Open) -> None:
    """By the most that the call may use: it is too late when they have been used."""
    quota = await open_quota(tokens=250)
    await reserve(quota, "r1")
    await reserve(quota, "r2")
    error = await refused(quota, "r3")
    assert error.budget is not None
    assert (error.budget.policy, error.budget.remaining) == ("tenant-tokens", 50)
    await reserve(quota, "r3", tokens=50)
    await refused(quota, "r4", tokens=1)


async def test_zero_used_and_unknown_differ(open_quota: Open) -> None:
    """Nothing used gives the tokens back, something the rest, and what nobody knows stands as reserved."""
    quota = await open_quota(tokens=100)
    (await reserve(quota, "nothing")).settle(0)
    (await reserve_soon(quota, "some")).settle(30)
    (await reserve_soon(quota, "unknown", tokens=60)).settle(None)
    await reserve_soon(quota, "rest", tokens=10)
    await refused(quota, "one more", tokens=1)


async def test_the_first_word_about_a_call_counts(open_quota: Open) -> None:
    """A release after a settlement, as every call ends, takes nothing back and books nothing."""
    quota = await open_quota(tokens=100)
    lease = await reserve(quota, "r1")
    lease.settle(40)
    lease.release()
    lease.settle(0)
    await reserve_soon(quota, "r2", tokens=60)
    await refused(quota, "r3", tokens=1)


async def test_more_than_was_reserved_is_booked_too(open_quota: Open) -> None:
    """It was used: later calls wait for it."""
    quota = await open_quota(tokens=100)
    (await reserve(quota, "r1", tokens=10)).settle(90)

    async def ask_on() -> None:
        for number in range(1_000_000):  # until the store has heard of it
            (await reserve(quota, f"early-{number}", tokens=11)).settle(0)

    with anyio.fail_after(PATIENCE_S), pytest.raises(QuotaExceeded):
        await ask_on()
    await reserve_soon(quota, "r2", tokens=10)
    await refused(quota, "r3", tokens=1)


async def test_a_model_has_rates_of_its_own_over_all_tenants(open_quota: Open) -> None:
    """Requests and tokens."""
    quota = await open_quota(model=QuotaLimits(requests_per_minute=3, tokens_per_minute=250))
    await reserve(quota, "r1", "acme")
    await reserve(quota, "r2", "globex")
    error = await refused(quota, "r3", tenant="initech")
    assert error.budget is not None
    assert (error.budget.policy, error.budget.remaining) == ("model-tokens", 50)
    await reserve(quota, "r3", "initech", tokens=1)
    error = await refused(quota, "r4", tenant="initech", tokens=1)
    assert error.budget is not None
    assert error.budget.policy == "model-requests"
    await reserve(quota, "r4", "initech", "n")


async def test_a_call_that_asks_for_more_than_the_limit_is_told_that_it_never_can(open_quota: Open) -> None:
    """It gets no time to come again: there is none."""
    quota = await open_quota(tokens=99)
    error = await refused(quota, "r1")
    assert error.retry_after_ms is None
    assert "100 tokens of 99" in error.detail
    await reserve(quota, "r2", tokens=99)


async def test_never_more_than_the_limit_in_any_window(open_quota: Open) -> None:
    """Callers that come all the time, over five windows of a shortened minute, and use all of it."""
    window_s, limit, tokens = 0.3, 5, 40
    quota = await open_quota(requests=limit, tokens=tokens, window_s=window_s)
    admitted: list[tuple[float, float, int]] = []
    rng = random.Random(5)
    started = time.monotonic()
    number = 0
    while time.monotonic() < started + 5 * window_s:
        number += 1
        asked, wanted = time.monotonic(), rng.randint(5, 12)
        try:
            lease = await reserve(quota, f"r{number}", tokens=wanted)
        except QuotaExceeded as error:
            await anyio.sleep(min(0.01, (error.retry_after_ms or 0) / 1000))
            continue
        used = rng.choice([0, wanted // 2, wanted])
        lease.settle(used)
        admitted.append((asked, time.monotonic(), used))
    for first, _, _ in admitted:
        inside = [used for asked, got, used in admitted if first <= asked and got < first + window_s]
        assert len(inside) <= limit
        assert sum(inside) <= tokens
    assert len(admitted) >= 4 * limit * 0.5
