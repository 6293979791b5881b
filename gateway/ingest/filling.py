"""Filling: the rows of a new revision, in batches; what has no vector in its space yet is embedded here."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

from gateway.errors import DocumentUnusable
from gateway.ingest.catalog import TaskStore, VersionStore
from gateway.ingest.embedding import TextVectors
from gateway.ingest.objects import ObjectStore
from gateway.ingest.passages import Rebuild, passages_of
from gateway.ingest.plan import PlannedDocument, ReleasePlan
from gateway.ingest.reasons import DOCUMENT_REASONS
from gateway.ingest.rows import BATCH_ROWS, TermCounter, groups_of, rows_of, texts_of
from gateway.ingest.task import TaskClaim
from gateway.ingest.validator import sample_positions
from gateway.ingest.version import VectorPlace
from gateway.retrieval.chunk import embedded_text
from gateway.retrieval.store import Row

#: texts whose vectors go into one file: what a crash costs at the most
_EMBEDDED_AT_ONCE = 512


class Filling:
    """One build's rows, and what is counted while they pass: ``written``, ``terms``, ``samples`` to read
    back, and how many of their vectors this task had to make (``vectors``).
    """

    def __init__(
        self,
        claim: TaskClaim,
        plan: ReleasePlan,
        *,
        tasks: TaskStore,
        versions: VersionStore,
        objects: ObjectStore,
        vectors: TextVectors,
        rebuild: Rebuild,
    ) -> None:
        self._claim = claim
        self._plan = plan
        self._tasks = tasks
        self._versions = versions
        self._objects = objects
        self._vectors = vectors
        self._rebuild = rebuild
        self._files = vectors.files()
        self._sampled = sample_positions(sum(len(document.manifest) for document in plan.documents))
        self.written = 0
        self.terms = TermCounter()
        self.samples: list[Row] = []
        self.vectors: Counter[str] = Counter(reused=0, embedded=0)

    async def batches(self) -> AsyncIterator[list[Row]]:
        """All rows. Raises DocumentUnusable, what the parts raise, and StaleFence."""
        batch: list[Row] = []
        done = 0
        for group in groups_of(self._plan.documents):
            await self._progress("indexing", done)
            await self._embed_missing(group, done)
            async for row in rows_of(
                self._plan, group, self._objects, self._versions, self._files, self._rebuild
            ):
                batch.append(self._counted(row))
                if len(batch) == BATCH_ROWS:
                    yield batch
                    batch = []
            done += len(group)
        if batch:
            yield batch

    def _counted(self, row: Row) -> Row:
        if self.written in self._sampled:
            self.samples.append(row)
        self.written += 1
        self.terms.add(row)
        return row

    async def _progress(self, stage: str, done: int) -> None:
        await self._tasks.progress(self._claim, stage, done, len(self._plan.documents))

    async def _embed_missing(self, group: Sequence[PlannedDocument], done: int) -> None:
        """Vectors that lack in this space, or were lost; each batch's places are kept as they are made."""
        known = await self._versions.vector_places(self._plan.space.space_id, texts_of(group))
        lost = set(await self._vectors.lost(known, self._files))
        for number, document in enumerate(group, start=done):
            texts = [entry.text_hash for entry in document.manifest]
            missing = {name for name in texts if name not in known or name in lost}
            if missing:
                await self._progress("embedding", number)
                known = {**known, **await self._embed(document, missing, known)}
                lost -= missing
            made = sum(known[name].made_by == self._claim.task_id for name in texts)
            self.vectors.update(embedded=made, reused=len(texts) - made)

    async def _embed(
        self, document: PlannedDocument, missing: set[str], known: Mapping[str, VectorPlace]
    ) -> dict[str, VectorPlace]:
        """The places of those that had none."""
        if document.sensitivity > self._vectors.max_sensitivity:
            raise DocumentUnusable(document.source, DOCUMENT_REASONS["too_sensitive"])
        built = await passages_of(document, self._objects, self._rebuild)
        texts = {
            entry.text_hash: embedded_text(document.title, passage.section, passage.content)
            for entry, passage in zip(document.manifest, built.passages, strict=True)
            if entry.text_hash in missing
        }
        made: dict[str, VectorPlace] = {}
        for names in _parts(list(texts)):
            part = {name: texts[name] for name in names}
            places = await self._vectors.complete(document.ref, part, known, self._files)
            await self._versions.add_vector_places(self._claim, self._plan.space.space_id, places)
            made |= {
                name: VectorPlace(place.object_key, place.position, self._claim.task_id)
                for name, place in places.items()
            }
        return made


def _parts(names: Sequence[str]) -> Iterator[Sequence[str]]:
    return (names[start : start + _EMBEDDED_AT_ONCE] for start in range(0, len(names), _EMBEDDED_AT_ONCE))
