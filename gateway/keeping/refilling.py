"""Refilling: a retained revision's rows, written again from chunk files and vector files."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from gateway.errors import InvariantViolated
from gateway.ingest.catalog import VersionStore
from gateway.ingest.objects import ObjectStore
from gateway.ingest.passages import Rebuild
from gateway.ingest.plan import ReleasePlan
from gateway.ingest.rows import BATCH_ROWS, TermCounter, groups_of, rows_of
from gateway.ingest.validator import Validator, sample_positions
from gateway.ingest.vectors import VectorFiles
from gateway.retrieval.store import ChunkWriter, Row


class Refill:
    """Under the revision's own name, so that releases, chunk ids and citations stay what they were."""

    def __init__(
        self,
        objects: ObjectStore,
        versions: VersionStore,
        writer: ChunkWriter,
        validator: Validator,
        rebuild: Rebuild | None = None,
    ) -> None:
        """``rebuild`` makes lost chunk files again."""
        self._objects = objects
        self._versions = versions
        self._writer = writer
        self._validator = validator
        self._rebuild = rebuild

    async def ensure(self, plan: ReleasePlan) -> int:
        """Leaves the revision whole, whatever was there; how many sampled passages were read back.

        Rows that pass the validation are left as they are, so a refill that was cut short goes on with
        the next revision. Raises InvariantViolated, NotFound when an object is gone, Unavailable.
        """
        await self._writer.prepare(plan.space)
        expected = await self.expected(plan)
        if not await self.is_whole(plan, expected):
            await self.write(plan)
        if not await self.is_whole(plan, expected):  # there are rows that don't belong to it
            await self._writer.drop(plan.space, plan.kb_revision)
            await self.write(plan)
            await self._validate(plan, expected)
        return len(expected.samples)

    async def write(self, plan: ReleasePlan) -> None:
        """Over what is there: whoever reads the revision meanwhile finds at least what he found before."""
        async for batch in self._batches(plan, Expected()):
            await self._writer.write(plan.space, plan.kb_revision, batch)
        await self._writer.seal(plan.space, plan.kb_revision)

    async def remove(self, plan: ReleasePlan, document_id: str) -> None:
        """The document's rows, out of the revision."""
        await self._writer.delete_document(plan.space, plan.kb_revision, plan.tenant, plan.kb_id, document_id)
        await self._writer.seal(plan.space, plan.kb_revision)

    async def stored(self, plan: ReleasePlan) -> int:
        """How many rows the revision has."""
        return await self._writer.count(plan.space, plan.kb_revision)

    async def expected(self, plan: ReleasePlan) -> "Expected":
        """What the revision must hold. Raises InvariantViolated, NotFound when an object is gone."""
        expected = Expected()
        async for _ in self._batches(plan, expected):
            pass
        return expected

    async def is_whole(self, plan: ReleasePlan, expected: "Expected") -> bool:
        """As far as counting and reading back samples can tell."""
        try:
            await self._validate(plan, expected)
        except InvariantViolated:
            return False
        return True

    async def _validate(self, plan: ReleasePlan, expected: "Expected") -> None:
        await self._validator.validate(plan, expected.rows, expected.samples, expected.terms)

    async def _batches(self, plan: ReleasePlan, seen: "Expected") -> AsyncIterator[list[Row]]:
        """All rows, one batch of them in memory at a time."""
        files = VectorFiles(self._objects, plan.space.dimension)
        wanted = sample_positions(sum(len(document.manifest) for document in plan.documents))
        batch: list[Row] = []
        for group in groups_of(plan.documents):
            async for row in rows_of(plan, group, self._objects, self._versions, files, self._rebuild):
                if seen.rows in wanted:
                    seen.samples.append(row)
                seen.rows += 1
                seen.terms.add(row)
                batch.append(row)
                if len(batch) == BATCH_ROWS:
                    yield batch
                    batch = []
        if batch:
            yield batch


@dataclass(slots=True)
class Expected:
    """A revision's rows, counted while they pass, and those among them to read back."""

    rows: int = 0
    samples: list[Row] = field(default_factory=list)
    terms: TermCounter = field(default_factory=TermCounter)
