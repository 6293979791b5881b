"""Rounds of importing while something dies or freezes at a random moment, and what must be left of them."""

import contextlib
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import anyio
import httpx2
import psutil

from tests.harness.process import GatewayProcess, eventually, gateway_process, spawned, started
from tests.harness.sides import Servers

KNOWLEDGE_BASE = "handbook"
#: a frozen worker sleeps up to twice as long: another one takes its task over meanwhile
LEASE_S = 2
SETTINGS = {
    "GATEWAY_TASK_LEASE_S": str(LEASE_S),
    "GATEWAY_TASK_ATTEMPTS": "1000",  # a hundred kills are no reason to give a document up
    "GATEWAY_EMBED_CAP_MS": "5000",
    "GATEWAY_RETRIEVAL_CAP_MS": "10000",
    "GATEWAY_CATALOG_CAP_MS": "5000",
    "GATEWAY_REQUESTS_PER_MINUTE": "100000",
}
_SECTIONS = 12
#: about as long as one task takes: the fault lands anywhere in it, or between two
_SPREAD_S = 2.0
_FAULTS = ("kill", "freeze")


@dataclass
class Ledger:
    """What was sent under which source. A text has a word of its own that no other text has.

    ``unsure`` are uploads that got no answer, or that it can't be done now.
    """

    rng: random.Random
    texts: dict[str, str] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    tasks: list[str] = field(default_factory=list)
    unsure: list[dict[str, str]] = field(default_factory=list)
    _made: int = 0

    @classmethod
    def seeded(cls, seed: int) -> "Ledger":
        return cls(random.Random(seed))

    def batch(self) -> dict[str, str]:
        """Two new documents, and a new version of one that is there."""
        sources = [f"rule-{self._made + n}.md" for n in (1, 2)]
        if self.texts:
            sources.append(self.rng.choice(sorted(self.texts)))
        self._made += 2
        return {source: self._text(source) for source in sources}

    def _text(self, source: str) -> str:
        word = "".join(self.rng.choices("bcdfghjklmnpqrstvwxz", k=12))
        self.words[source] = word
        sections = "\n\n".join(
            f"## Part {n} of {source}\n\nThe rulebook of {source} says that part {n} has an owner."
            for n in range(_SECTIONS)
        )
        text = f"# {source}\n\nThe codeword of this rulebook is {word}.\n\n{sections}\n"
        self.texts[source] = text
        return text


class Hit(Protocol):
    """What may be hit in one round: a process by name."""

    def victims(self) -> Mapping[str, int]: ...

    @property
    def gateway(self) -> GatewayProcess: ...

    async def revive(self, name: str) -> None:
        """After a kill: returns once everything runs again."""
        ...


@dataclass
class Serving:
    """``serve`` on SQLite with its children. Killing it takes all of them."""

    folder: Path
    env: Mapping[str, str]
    stack: AsyncExitStack
    gateway: GatewayProcess

    def victims(self) -> dict[str, int]:
        found = {"serve": self.gateway.pid}
        for child in psutil.Process(self.gateway.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):  # gone meanwhile
                if child.status() != psutil.STATUS_ZOMBIE:
                    found[_program(child)] = child.pid
        return found

    async def revive(self, name: str) -> None:
        if name == "serve":
            await self.stack.aclose()
            self.gateway = await self.stack.enter_async_context(gateway_process(self.folder, env=self.env))
        await self.gateway.until_ready()


def _program(child: psutil.Process) -> str:
    command = child.cmdline()
    return command[command.index("-m") + 1].rpartition(".")[2]


@asynccontextmanager
async def serving(folder: Path, **changes: str) -> AsyncIterator[Serving]:
    env = {**SETTINGS, **changes}
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(gateway_process(folder, env=env))
        yield Serving(folder, env, stack, gateway)


@dataclass
class Workers:
    """Three ``worker`` processes on PostgreSQL, and a ``serve`` that only answers."""

    folder: Path
    env: Mapping[str, str]
    gateway: GatewayProcess
    pids: dict[str, int] = field(default_factory=dict)
    _lives: dict[str, AsyncExitStack] = field(default_factory=dict)

    def victims(self) -> dict[str, int]:
        return dict(self.pids)

    async def revive(self, name: str) -> None:
        """As a supervisor would; the new one needn't be ready before the next round."""
        await self._lives.pop(name, AsyncExitStack()).aclose()
        self._lives[name] = life = AsyncExitStack()
        ready, errors = self.folder / f"{name}.json", self.folder / f"{name}.txt"
        process = await life.enter_async_context(
            spawned("worker", "--ready-file", str(ready), errors=errors, env=self.env)
        )
        self.pids[name] = process.pid

    async def aclose(self) -> None:
        for life in self._lives.values():
            await life.aclose()


@asynccontextmanager
async def workers(folder: Path, side: Servers, **changes: str) -> AsyncIterator[Workers]:
    env = {**await side.fresh(), **SETTINGS, **changes, "GATEWAY_DATA_DIR": str(folder / "data")}
    async with started(
        *("serve", "--port", "0"),
        ready_file=folder / "ready.json",
        errors=folder / "stderr.txt",
        env=env,
        side=side,
    ) as gateway:
        here = Workers(folder, env, gateway)
        try:
            for n in range(3):
                await here.revive(f"worker-{n}")
            yield here
        finally:
            await here.aclose()


async def run_rounds(hit: Hit, rounds: int, ledger: Ledger) -> Counter[str]:
    """Each round imports while one process is killed or frozen; how often which of them was."""
    counts: Counter[str] = Counter()
    for _ in range(rounds):
        batch = ledger.batch()
        async with anyio.create_task_group() as group:
            group.start_soon(_send, hit.gateway, batch, ledger)
            await anyio.sleep(ledger.rng.uniform(0, _SPREAD_S))  # the fault's moment, not a wait for anything
            victims = hit.victims()
            name = ledger.rng.choice(sorted(victims))
            fault = ledger.rng.choice(_FAULTS)
            await _do(fault, victims[name], ledger.rng.uniform(0.1, 2 * LEASE_S))
            counts[f"{fault} {name}"] += 1
        if fault == "kill":
            await hit.revive(name)
    return counts


async def _do(fault: str, pid: int, for_s: float) -> None:
    with contextlib.suppress(ProcessLookupError):
        if fault == "kill":
            os.kill(pid, signal.SIGKILL)
            return
        os.kill(pid, signal.SIGSTOP)
        try:
            await anyio.sleep(for_s)
        finally:
            os.kill(pid, signal.SIGCONT)


async def _send(gateway: GatewayProcess, batch: dict[str, str], ledger: Ledger) -> None:
    """A client whose connection breaks doesn't know whether it was heard, and will say it again."""
    try:
        answer = await gateway.upload(dict(batch))
    except (httpx2.TransportError, OSError):
        ledger.unsure.append(batch)
        return
    if answer.status_code == 202:
        ledger.tasks.append(answer.json()["task_id"])
    else:
        assert answer.status_code in {503, 504}, answer.text
        ledger.unsure.append(batch)


async def settle(gateway: GatewayProcess, ledger: Ledger) -> None:
    """What nobody knows of is sent again, every task ends, and the last state of all is released."""
    for batch in ledger.unsure:
        answer = await gateway.upload({source: ledger.texts[source] for source in batch})
        assert answer.status_code == 202, answer.text
        ledger.tasks.append(answer.json()["task_id"])
    for task_id in ledger.tasks:
        task = await gateway.task_ended(task_id)
        assert task["state"] == "SUCCEEDED", task
    build = await gateway.call("POST", "/v1/releases", "release", json={"knowledge_base": KNOWLEDGE_BASE})
    task = await gateway.task_ended(build.json()["task_id"])
    assert task["state"] == "SUCCEEDED", task
    path = f"/v1/releases/{task['release_id']}/activate"
    assert (await gateway.call("POST", path, "release", json={})).status_code == 200
    await nothing_is_lost_or_doubled(gateway, ledger)
    await reclaimed(gateway, retired=1)
    await nothing_is_lost_or_doubled(gateway, ledger)


async def nothing_is_lost_or_doubled(gateway: GatewayProcess, ledger: Ledger) -> None:
    """Each document is ready in its newest version, and its codeword is found in exactly one passage."""
    listing = await gateway.call("GET", f"/v1/documents?knowledge_base={KNOWLEDGE_BASE}", "ingest")
    states = {d["source"]: d["state"] for d in listing.json()["documents"]}
    assert states == dict.fromkeys(ledger.texts, "READY")
    for source, word in ledger.words.items():
        query = f"/v1/search?query=codeword+{word}&knowledge_base={KNOWLEDGE_BASE}&top_k=20"
        found = (await gateway.call("GET", query)).json()["results"]
        holding = [hit["uri"] for hit in found if word in hit["content"]]
        assert holding == [source], (source, holding)


async def reclaimed(gateway: GatewayProcess, retired: int) -> None:
    """Returns once no more releases than that may still be gone back to, and no failed one is left."""

    async def look() -> bool:
        path = f"/v1/releases?knowledge_base={KNOWLEDGE_BASE}"
        releases = (await gateway.call("GET", path, "release")).json()["releases"]
        states = [release["state"] for release in releases]
        return states.count("RETIRED") <= retired and not {"FAILED", "READY"} & set(states)

    await eventually(look)
