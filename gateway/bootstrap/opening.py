"""Opening: settings -> the services of a web process, or an import worker; parts close in reverse order."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import anyio

from gateway.adapters.children.build_child import ChildParser
from gateway.bootstrap.answer_store import open_answers
from gateway.bootstrap.composition import ImportParts, Parts, compose, compose_worker
from gateway.bootstrap.fitness import refuse_other_space, refuse_powerful, refuse_unfit
from gateway.bootstrap.journal import journal_writer
from gateway.bootstrap.parts import PartsOpener, process_name
from gateway.ingest.worker import Worker
from gateway.retrieval.embedding import Embedder
from gateway.settings import Settings
from gateway.web.readiness import Readiness
from gateway.web.services import Services


@dataclass(frozen=True, slots=True)
class OpenedWorker:
    """An import worker over open parts, not running yet."""

    worker: Worker
    readiness: Readiness


@asynccontextmanager
async def open_services(settings: Settings) -> AsyncIterator[Services]:
    """Everything one process serves with, and an import worker beside it where the settings want one.

    Raises ConfigurationError when the process must not start like this, Unavailable when a part still
    doesn't answer after ``start_wait_s``.
    """
    refuse_unfit(settings)
    async with AsyncExitStack() as stack:
        parts = await _serving_parts(settings, stack)
        services, worker = compose(settings, parts, process_name())
        journal = journal_writer(settings, parts.catalog)
        services.metrics.watch_journal(lambda: journal.lag_s)
        async with anyio.create_task_group() as tasks:
            await tasks.start(services.feed.run)
            tasks.start_soon(services.orders.run)
            tasks.start_soon(services.traces.run)
            tasks.start_soon(journal.run)
            if imports_inside(settings):
                tasks.start_soon(worker.run)
            try:
                yield services
            finally:
                tasks.cancel_scope.cancel()


@asynccontextmanager
async def open_worker(settings: Settings) -> AsyncIterator[OpenedWorker]:
    """An import worker of its own. Raises as ``open_services`` does."""
    refuse_unfit(settings)
    async with AsyncExitStack() as stack:
        parts = await _import_parts(settings, PartsOpener(settings, stack), stack)
        worker = compose_worker(settings, parts, process_name())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(journal_writer(settings, parts.catalog).run)
            try:
                yield OpenedWorker(worker, Readiness(parts.checks))
            finally:
                tasks.cancel_scope.cancel()


def imports_inside(settings: Settings) -> bool:
    """Whether the serving process imports as well: it must where it alone may open SQLite or Lite."""
    if settings.database_url is None or settings.milvus_uri is None:
        return True
    if settings.serve_imports is not None:
        return settings.serve_imports
    return settings.env == "development" and settings.workers == 1


async def _import_parts(
    settings: Settings,
    opener: PartsOpener,
    stack: AsyncExitStack,
    answering: Sequence[Embedder] = (),
) -> ImportParts:
    """``answering`` are the embedders of questions: none for a worker, who may build what nobody can ask."""
    catalog = await opener.catalog()
    offline_embedder = opener.models.offline_embedder()
    space = offline_embedder.space
    if settings.env == "production":
        refuse_powerful("the database's account", await catalog.excess_privileges())
        if answering:
            made = [embedder.space.space_id for embedder in answering]
            refuse_other_space(made, await catalog.active_spaces())
    vectors = await opener.runtime_vectors(space)
    objects = await opener.objects()
    parser = ChildParser(
        cap_s=settings.parse_cap_s,
        max_bytes=settings.document_max_bytes,
        memory_mb=settings.parse_memory_mb,
    )
    stack.push_async_callback(parser.aclose)
    return ImportParts(
        catalog=catalog,
        objects=objects,
        vectors=vectors,
        offline_embedder=offline_embedder,
        parser=parser,
        config=opener.config(space),
        answers=open_answers(settings, stack),
        checks=opener.checks,
    )


async def _serving_parts(settings: Settings, stack: AsyncExitStack) -> Parts:
    opener = PartsOpener(settings, stack)
    embedder = await opener.models.embedder()
    previous = await opener.models.previous_embedder()
    answering = [embedder] if previous is None else [embedder, previous]
    importing = await _import_parts(settings, opener, stack, answering)
    pepper = opener.pepper()
    return Parts(
        catalog=importing.catalog,
        objects=importing.objects,
        vectors=importing.vectors,
        offline_embedder=importing.offline_embedder,
        parser=importing.parser,
        config=importing.config,
        answers=importing.answers,
        checks=opener.checks,
        verifier=opener.verifier(importing.catalog, pepper),
        api_keys=pepper,
        embedder=embedder,
        previous_embedder=previous,
        reranker=opener.models.reranker(embedder),
        vectorstore=await opener.vectorstore(),
        model=opener.models.model(embedder),
        second_model=opener.models.second_model(),
        moderator=opener.models.moderator(),
        quota=await opener.answering_quota(),
        hints=opener.hints(),
        orders=None if settings.database_url is None else importing.catalog,
        tell_searches=opener.tell_searches,
        optional_checks=opener.optional,
    )
