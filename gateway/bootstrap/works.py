"""Works: what an import worker does for each kind of task. Opens and starts nothing."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gateway.admission.bulkhead import Bulkhead
from gateway.ingest.importing import ImportWork, ReleaseWork
from gateway.ingest.pipeline import ImportPipeline
from gateway.ingest.releaser import Releaser
from gateway.ingest.task import TaskKind, TaskWork
from gateway.ingest.validator import Validator

if TYPE_CHECKING:
    from gateway.bootstrap.composition import ImportParts


def works_of(parts: "ImportParts", offline: Bulkhead) -> Mapping[TaskKind, TaskWork]:
    """``offline`` bounds the batches that are embedded at a time."""
    catalog, vectors, embedder = parts.catalog, parts.vectors, parts.offline_embedder
    validator = Validator(vectors, vectors)
    releaser = Releaser(
        catalog, catalog, catalog, parts.objects, vectors, validator, embedder.space, parts.config
    )
    pipeline = ImportPipeline(catalog, catalog, parts.objects, parts.parser, embedder, offline)
    return {
        TaskKind.IMPORT: ImportWork(pipeline, releaser),
        TaskKind.RELEASE: ReleaseWork(releaser),
    }
