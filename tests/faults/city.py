"""City: a town under fault, and how its behaviour is seen from outside."""

import asyncio
import functools
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import anyio
import httpx2
import redis as redis_client

from gateway.client import StreamEvent
from loadtest.town import Town
from loadtest.town_resident import GatewayResident
from tests.harness.process import eventually
from tests.harness.wire import ask
from tests.integration.production_world import QUESTION

KNOWLEDGE_BASE = "handbook"
LEASE_S, TOTAL_CAP_MS, LIMIT = 2, 6000, 6
#: short times: what is closed for a lease and a total cap is closed for seconds here
SETTINGS: dict[str, Any] = {
    "quota_concurrency": str(LIMIT),
    "quota_lease_s": str(LEASE_S),
    "quota_cap_ms": "800",
    "total_cap_ms": str(TOTAL_CAP_MS),
    "drain_s": "2",
    "retrieval_cap_ms": "2000",
    "catalog_cap_ms": "2000",
    "breaker_open_s": "1",
    "first_token_cap_ms": "2000",
    "idle_cap_ms": "2000",
}


@dataclass(frozen=True)
class Answered:
    """How one question ended. ``code`` is that of the problem or of the last event, None for an answer."""

    status: int
    events: Sequence[StreamEvent]
    code: str | None

    @property
    def whole(self) -> bool:
        return bool(self.events) and self.events[-1].name == "done"


class City:
    """Asks through nginx unless told otherwise."""

    def __init__(self, town: Town) -> None:
        self.town = town

    async def ask(self, question: str = QUESTION, *, port: int | None = None, **who: Any) -> Answered:
        """Cut off counts as an end: status 0, code ``cut``."""
        try:
            head, events = await ask(
                port or self.town.nginx.port, self.town.token(**who), question, knowledge_base=KNOWLEDGE_BASE
            )
        except (OSError, EOFError, ValueError):
            return Answered(0, (), "cut")
        if head.status != 200:
            return Answered(head.status, (), str(head.headers.get("content-type")))
        last = events[-1] if events else None
        code = (
            None if last is None or last.name == "done" else str(last.data.get("code") or last.data["reason"])
        )
        return Answered(200, events, "cut" if last is None else code)

    async def several(self, count: int, **arguments: Any) -> list[Answered]:
        """Side by side, each of another asker."""
        return list(
            await asyncio.gather(*(self.ask(subject=f"asker-{n}", **arguments) for n in range(count)))
        )

    async def problem(self, gateway: GatewayResident) -> dict[str, Any]:
        """What a question to this gateway is refused with; empty when it is answered."""
        return (await gateway.client.ask(QUESTION, knowledge_base=KNOWLEDGE_BASE))[2]

    async def metric(self, name: str, **labels: str) -> float:
        """Summed over both gateways and all series with these labels."""
        total = 0.0
        for gateway in self.town.gateways:
            async with httpx2.AsyncClient(base_url=gateway.client.base_url, trust_env=False) as http:
                text = (await http.get("/metrics")).text
            for line in text.splitlines():
                series, _, value = line.rpartition(" ")
                if series.partition("{")[0] == name and all(
                    f'{k}="{v}"' in series for k, v in labels.items()
                ):
                    total += float(value)
        return total

    # the model

    async def script_model(self, **script: Any) -> None:
        await self._model("POST", "/_script", json=script)

    async def reset_model(self) -> None:
        await self._model("POST", "/_reset")

    async def calls(self) -> list[dict[str, Any]]:
        """Chat calls since the last reset, as the model logged them."""
        found: list[dict[str, Any]] = (await self._model("GET", "/_log")).json()
        return [call for call in found if call["kind"] == "chat"]

    async def _model(self, method: str, path: str, **arguments: Any) -> httpx2.Response:
        url = str(self.town.model.ready["base_url"]).removesuffix("/v1")
        async with httpx2.AsyncClient(base_url=url, trust_env=False, timeout=30) as http:
            answer = await http.request(method, path, **arguments)
            answer.raise_for_status()
            return answer

    # the whole

    async def whole(self) -> None:
        """Every part is up and both gateways answer; nothing is running."""
        await self.reset_model()
        for gateway in self.town.gateways:
            await eventually(functools.partial(self._answers, gateway))
        await eventually(self._idle)
        await self.reset_model()

    async def _answers(self, gateway: GatewayResident) -> bool:
        with suppress(httpx2.HTTPError, OSError, EOFError):
            return not await self.problem(gateway)
        return False

    async def _idle(self) -> bool:
        return await self.metric("gateway_active_streams") == 0

    async def flush_redis(self) -> None:
        """Everything that the quota knew is gone."""

        def flush() -> None:
            with redis_client.Redis(port=self.town.redis.port) as client:
                client.flushall()

        await anyio.to_thread.run_sync(flush)


def most_at_once(calls: Sequence[dict[str, Any]]) -> int:
    """The most calls that ran at one moment; one that has no end yet runs on."""
    moments = sorted(
        (moment, step)
        for call in calls
        for moment, step in ((call["started"], 1), (call["closed_at"] or float("inf"), -1))
    )
    running, most = 0, 0
    for _, step in moments:
        running += step
        most = max(most, running)
    return most


def counted(answers: Sequence[Answered]) -> str:
    """``12 answered, 3 x 429``: for the evidence."""
    kinds = Counter(
        "answered" if a.whole else a.code if a.status == 200 else str(a.status or "cut") for a in answers
    )
    return ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
