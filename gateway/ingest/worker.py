"""The worker: claims tasks, keeps the lease alive, records how each one ended."""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import anyio

from gateway.errors import (
    CatalogUnavailable,
    DeadlineExceeded,
    GatewayError,
    Rejection,
    StaleFence,
    Unavailable,
)
from gateway.ingest.catalog import TaskStore
from gateway.ingest.task import (
    CANCELLED,
    WAIT_S,
    Ending,
    TaskClaim,
    TaskKind,
    TaskState,
    TaskWork,
    back_off_s,
    out_of_time,
)
from gateway.observe.logging import get_logger

_CLEANUP_S = 5.0
#: a cancel is noticed within that, however long the lease
_BEAT_S = 2.0
#: no end of a task: it rests and is tried again, until it was accepted too long ago
_PASSING = (Unavailable, DeadlineExceeded, Rejection)


class Worker:
    """Runs one task at a time. Killed at any point, another run of the task loses nothing."""

    def __init__(
        self,
        name: str,
        tasks: TaskStore,
        works: Mapping[TaskKind, TaskWork],
        *,
        lease_s: float,
        attempts: int,
        wait_s: float = WAIT_S,
        poll_s: float = 1.0,
        retry_s: float = 1.0,
        retry_max_s: float = 60.0,
        chores: Sequence[Callable[[], Coroutine[Any, Any, None]]] = (),
    ) -> None:
        """``wait_s``: see ``TaskStore.claim``. ``retry_s``: how long a task rests after its first trouble,
        twice that after the next one, up to ``retry_max_s``. ``chores`` run beside the tasks, until cancelled
        like them; one that fails by a defect begins again after ``retry_max_s``.
        """
        self._name = name
        self._tasks = tasks
        self._works = works
        self._lease_s = lease_s
        self._attempts = attempts
        self._wait_s = wait_s
        self._poll_s = poll_s
        self._retry_s = retry_s
        self._retry_max_s = retry_max_s
        self._chores = tuple(chores)
        self._wake = anyio.Event()
        self._log = get_logger("ingest.worker")

    @property
    def name(self) -> str:
        """Stands in the catalog beside the tasks it holds."""
        return self._name

    def wake(self) -> None:
        """New work was accepted in this process: don't wait for the next poll."""
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        async with anyio.create_task_group() as group:
            for chore in self._chores:
                group.start_soon(self._tend, chore)
            await self._serve()

    async def _tend(self, chore: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            try:
                return await chore()
            except Exception:  # noqa: BLE001 - a defect in a chore ends neither the tasks nor the process
                self._log.exception("worker.chore_defect", chore=getattr(chore, "__qualname__", ""))
            await anyio.sleep(self._retry_max_s)

    async def _serve(self) -> None:
        while True:
            self._wake = anyio.Event()
            try:
                # Shielded: a claim that commits while nobody waits for it would block its knowledge base.
                with anyio.CancelScope(shield=True):
                    claim = await self._tasks.claim(self._name, self._lease_s, self._attempts, self._wait_s)
            except CatalogUnavailable as error:
                self._log.warning("worker.catalog_unavailable", detail=error.detail)
                claim = None
            if claim is None:
                with anyio.move_on_after(self._poll_s):
                    await self._wake.wait()
            else:
                await self.work(claim)

    async def work(self, claim: TaskClaim) -> None:
        """Runs one claimed task to its end; gives it back when this process is told to stop."""
        self._log.info("task.claimed", task=claim.task_id, kind=claim.kind.value, fence=claim.fence)
        try:
            await self._leased(claim)
        except StaleFence:
            self._log.warning("task.lost", task=claim.task_id, fence=claim.fence)
        except _PASSING as error:
            with anyio.move_on_after(_CLEANUP_S, shield=True):
                await self._put_off(claim, error)
        except asyncio.CancelledError:
            with anyio.move_on_after(_CLEANUP_S, shield=True):
                await self._give_back(claim)
            raise

    async def _put_off(self, claim: TaskClaim, trouble: GatewayError) -> None:
        """When not even that can be written down, its lease runs out: this start counts as an attempt."""
        chance = random.random()  # noqa: S311 - spreads retries, guards nothing
        rest_s = back_off_s(claim.put_offs, self._retry_s, self._retry_max_s, chance)
        asked_s = min((trouble.retry_after_ms or 0) / 1000, self._retry_max_s)
        try:
            await self._tasks.put_off(claim, trouble.code, max(rest_s, asked_s))
        except (StaleFence, CatalogUnavailable) as error:
            self._log.warning("task.not_put_off", task=claim.task_id, code=error.code, trouble=trouble.code)
        else:
            self._log.warning("task.put_off", task=claim.task_id, trouble=trouble.code, rest_s=rest_s)

    async def _give_back(self, claim: TaskClaim) -> None:
        try:
            await self._tasks.release_claim(claim)
        except (StaleFence, CatalogUnavailable) as error:
            self._log.warning("task.not_given_back", task=claim.task_id, code=error.code)

    async def _leased(self, claim: TaskClaim) -> None:
        """The work and its heartbeat: whichever ends first ends the other."""
        ending = out_of_time(claim.trouble)
        failure: GatewayError | None = None
        attempted = False

        async def beat() -> None:
            nonlocal ending, failure
            try:
                await self._keep(claim)
                if not attempted:  # else it has come too late: what is done is done
                    ending = CANCELLED
            except (StaleFence, CatalogUnavailable) as error:
                failure = error
            group.cancel_scope.cancel()

        # The catalog's clock gave both moments: ours may be another.
        left_s = claim.deadline_at - (claim.lease_until - self._lease_s)
        with anyio.move_on_after(max(0.0, left_s)):
            async with anyio.create_task_group() as group:
                group.start_soon(beat)
                try:
                    ending = await self._attempt(claim)
                    attempted = True
                except (StaleFence, *_PASSING) as error:
                    failure = error
                group.cancel_scope.cancel()
        if failure is not None:
            raise failure
        await self._tasks.finish(claim, ending)
        self._log.info("task.ended", task=claim.task_id, state=ending.state.value, code=ending.code)

    async def _keep(self, claim: TaskClaim) -> None:
        """Extends the lease until the task is to be cancelled. A catalog that doesn't answer for a while
        is nothing yet; raises CatalogUnavailable when the lease may be over, and StaleFence.
        """
        pause_s = min(self._lease_s / 3, _BEAT_S)
        kept_until = time.monotonic() + self._lease_s
        while True:
            await anyio.sleep(pause_s)
            begun = time.monotonic()
            try:
                if await self._tasks.heartbeat(claim, self._lease_s):
                    return
                kept_until = begun + self._lease_s
            except CatalogUnavailable:
                if time.monotonic() + pause_s >= kept_until:
                    raise

    async def _attempt(self, claim: TaskClaim) -> Ending:
        """Does the work and says how it ended. Raises what is no end: StaleFence and passing trouble."""
        try:
            return await self._works[claim.kind].run(claim)
        except (StaleFence, *_PASSING):
            raise
        except GatewayError as error:
            return Ending(TaskState.FAILED, error.code, error.detail or error.title)
        except Exception:  # noqa: BLE001 - a defect ends this task with a record, not the whole worker
            self._log.exception("task.defect", task=claim.task_id)
            return Ending(TaskState.FAILED, GatewayError.code, GatewayError.title)
