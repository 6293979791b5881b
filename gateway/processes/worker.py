"""The worker process: imports documents and does nothing else, on any number of machines.

Its parts are opened by whoever starts it, so that a refusal needn't wait for their code to load.
"""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Protocol

import anyio

from gateway.errors import ConfigurationError
from gateway.observe.logging import configure_logging, get_logger
from gateway.settings import Settings
from gateway.web.readiness import Readiness

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_POSTGRESQL = frozenset({"postgres", "postgresql"})


class ImportWorker(Protocol):
    """``gateway.ingest.worker.Worker`` as this process sees it. ``name`` is unique among processes."""

    @property
    def name(self) -> str: ...

    async def run(self) -> None:
        """Until cancelled; gives back the task that it is at."""
        ...


class OpenedWorker(Protocol):
    """A worker over open parts, not running yet."""

    @property
    def worker(self) -> ImportWorker: ...

    @property
    def readiness(self) -> Readiness: ...


OpenWorker = Callable[[Settings], AbstractAsyncContextManager[OpenedWorker]]


def refuse_embedded(settings: Settings) -> None:
    """Embedded parts belong to the process that serves.

    Raises ConfigurationError("worker_needs_postgresql" | "worker_needs_milvus").
    """
    url = "" if settings.database_url is None else settings.database_url.get_secret_value()
    if url.partition(":")[0].partition("+")[0] not in _POSTGRESQL:
        raise ConfigurationError(
            "worker_needs_postgresql",
            "with SQLite the process that serves imports as well; a worker of its own needs PostgreSQL "
            "(set GATEWAY_DATABASE_URL)",
        )
    if settings.milvus_uri is None:
        raise ConfigurationError(
            "worker_needs_milvus",
            "Milvus Lite belongs to the process that serves; a worker of its own needs a Milvus server "
            "(set GATEWAY_MILVUS_URI)",
        )


def run_worker(settings: Settings, open_worker: OpenWorker, on_ready: Callable[[str], None]) -> None:
    """Blocks until SIGTERM or SIGINT; ``on_ready`` gets the worker's name once all its parts answer.

    A task in work is given back at once: another worker goes on from its last step. Raises
    ConfigurationError when the process must not start, Unavailable when a part can't be opened.
    """
    configure_logging(settings.log_level)
    with asyncio.Runner() as runner:
        runner.run(_until_told(settings, open_worker, on_ready))


async def _until_told(settings: Settings, open_worker: OpenWorker, on_ready: Callable[[str], None]) -> None:
    with _told_to_stop() as told:
        try:
            await _import(settings, open_worker, on_ready)
        except asyncio.CancelledError:
            if not told.is_set():
                raise


async def _import(settings: Settings, open_worker: OpenWorker, on_ready: Callable[[str], None]) -> None:
    log = get_logger("worker_process")
    async with open_worker(settings) as opened:
        name = opened.worker.name
        log.info("worker.starting", worker=name)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(opened.worker.run)
            await opened.readiness.until_up()
            log.info("worker.ready", worker=name)
            on_ready(name)
    log.info("worker.stopped", worker=name)


@contextmanager
def _told_to_stop() -> Iterator[anyio.Event]:
    """The first signal cancels the current task, once, so that what it has opened can close in peace; the
    second one ends the process as if nobody had handled it.
    """
    loop, task, told = asyncio.get_running_loop(), asyncio.current_task(), anyio.Event()
    assert task is not None  # noqa: S101 - this runs inside a coroutine

    def stop() -> None:
        told.set()
        task.cancel()
        unhandled()

    def unhandled() -> None:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)

    for number in _SIGNALS:
        loop.add_signal_handler(number, stop)
    try:
        yield told
    finally:
        unhandled()
