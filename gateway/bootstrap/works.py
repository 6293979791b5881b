"""Works: what an import worker does for each kind of task. Opens and starts nothing."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gateway.admission.bulkhead import Bulkhead
from gateway.bootstrap.answer_store import answer_erasure
from gateway.bootstrap.models import import_batch
from gateway.ingest.cleanup import CleanupWork
from gateway.ingest.embedding import TextVectors
from gateway.ingest.importing import ImportWork, ReleaseWork
from gateway.ingest.mover import MoveWork
from gateway.ingest.pipeline import ImportPipeline
from gateway.ingest.reclaimer import ObjectSweep, ReclaimSchedule, ReclaimWork
from gateway.ingest.references import ReclaimPolicy
from gateway.ingest.releaser import Releaser
from gateway.ingest.removal import Removal
from gateway.ingest.task import TaskKind, TaskWork
from gateway.ingest.validator import Validator
from gateway.settings import Settings

if TYPE_CHECKING:
    from gateway.bootstrap.composition import ImportParts


def works_of(settings: Settings, parts: "ImportParts", offline: Bulkhead) -> Mapping[TaskKind, TaskWork]:
    """``offline`` bounds the batches that are embedded at a time."""
    catalog, objects, parser, store = parts.catalog, parts.objects, parts.parser, parts.vectors
    vectors = TextVectors(objects, parts.offline_embedder, offline, import_batch(settings))
    validator = Validator(store, store)
    model, *_ = settings.model_adapters
    releaser = Releaser(
        catalog, catalog, catalog, objects, parser, store, validator, vectors, parts.config, model
    )
    pipeline = ImportPipeline(catalog, catalog, objects, parser, vectors)
    return {
        TaskKind.IMPORT: ImportWork(pipeline, releaser),
        TaskKind.RELEASE: ReleaseWork(releaser),
        TaskKind.MOVE: MoveWork(catalog, catalog, catalog, objects, store),
        TaskKind.CLEANUP: CleanupWork(
            catalog,
            catalog,
            objects,
            store,
            _removal(settings, parts),
            answer_erasure(settings, parts.answers),
        ),
        TaskKind.RECLAIM: ReclaimWork(catalog, catalog, store, _policy(settings)),
    }


def reclaim_schedule(settings: Settings, parts: "ImportParts") -> ReclaimSchedule:
    """What makes tasks of what is due, beside a worker."""
    removal = _removal(settings, parts)
    return ReclaimSchedule(
        parts.catalog,
        removal,
        ObjectSweep(parts.objects, removal, settings.orphan_grace_s),
        _policy(settings),
        poll_s=settings.reclaim_poll_s,
        deadline_s=settings.task_deadline_s,
    )


def _policy(settings: Settings) -> ReclaimPolicy:
    return ReclaimPolicy(settings.rollback_window_s, settings.rollback_releases)


def _removal(settings: Settings, parts: "ImportParts") -> Removal:
    return Removal(parts.catalog, parts.objects, settings.rollback_window_s)
