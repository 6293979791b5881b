"""A process of its own that reserves places of the shared quota and keeps them until it is killed."""

import asyncio
import sys

from gateway.adapters.redis.quota import RedisQuota
from gateway.adapters.redis.terms import QuotaTerms
from gateway.admission.quota import QuotaLimits, ReservationKey


async def hold(url: str, limit: int, lease_s: float, places: int) -> None:
    terms = QuotaTerms(tenant=QuotaLimits(limit), lease_s=lease_s, total_cap_s=0)
    quota = RedisQuota(url, terms, "child", cap_ms=10_000)
    for number in range(places):
        await quota.reserve(ReservationKey(f"child-{number}", 1, "m"), "acme", "m", 1)
    sys.stdout.write("holding\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    _, url, limit, lease_s, places = sys.argv
    asyncio.run(hold(url, int(limit), float(lease_s), int(places)))
