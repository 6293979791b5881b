"""The reader of an import: parses documents in groups, one group ahead of the one that is being stored."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from anyio import to_thread
from anyio.streams.memory import MemoryObjectSendStream

from gateway.errors import DocumentRejected, GatewayError, ObjectStoreUnavailable
from gateway.ingest.building import DocumentParser
from gateway.ingest.catalog import VersionStore
from gateway.ingest.document import BuiltDocument
from gateway.ingest.objects import ObjectStore
from gateway.ingest.originals import ORIGINAL_LOST, original
from gateway.ingest.parsed import ParsedDocument, ParsedGroup, parsed
from gateway.ingest.reasons import DOCUMENT_REASONS
from gateway.ingest.task import TaskClaim
from gateway.ingest.version import VersionJob
from gateway.release.model import VersionState

# A group is what a crash costs, what memory holds twice of, and how often progress is seen.
_GROUP_DOCUMENTS = 16
_GROUP_BYTES = 4 * 1024 * 1024
_GROUP_S = 0.5


class DocumentReader:
    """Small documents share a group, and with it their transactions and their wait for the disk; one that
    is large or takes long ends its group.
    """

    def __init__(
        self, versions: VersionStore, objects: ObjectStore, parser: DocumentParser, max_sensitivity: int
    ) -> None:
        """Documents more sensitive than ``max_sensitivity`` are rejected."""
        self._versions = versions
        self._objects = objects
        self._parser = parser
        self._max_sensitivity = max_sensitivity

    async def read(
        self, claim: TaskClaim, jobs: Sequence[VersionJob], groups: MemoryObjectSendStream[ParsedGroup]
    ) -> None:
        """Sends what becomes of every job, in order, and closes ``groups``.

        Trouble is sent as well, behind the documents before it: those are stored, whatever comes after them.
        """
        with groups:
            group = _Group()
            trouble = None
            try:
                for number, job in enumerate(jobs):
                    if number % _GROUP_DOCUMENTS == 0:
                        await self._begin(claim, jobs[number : number + _GROUP_DOCUMENTS])
                    await self._read(claim, job, group)
                    if group.is_full():
                        await groups.send(await group.ended(claim))
                        group = _Group()
            except GatewayError as error:
                trouble = error
            await groups.send(await group.ended(claim, trouble))

    async def _begin(self, claim: TaskClaim, jobs: Sequence[VersionJob]) -> None:
        refs = [job.ref for job in jobs if job.state is not VersionState.VALIDATING]  # of an earlier attempt
        await self._versions.advance_versions(claim, refs, VersionState.BUILDING)

    async def _read(self, claim: TaskClaim, job: VersionJob, group: "_Group") -> None:
        try:
            if job.sensitivity > self._max_sensitivity:
                raise DocumentRejected("too_sensitive", DOCUMENT_REASONS["too_sensitive"])
            content = await original(self._objects, job.original_key)
            built = await self._parser.build(job.source, job.media_type, content)
            if not built.passages:
                raise DocumentRejected("blank", "no text was found in it")
        except DocumentRejected as error:
            if error.reason == ORIGINAL_LOST and not claim.put_offs:
                # whoever sent bytes that were just being cleaned up is putting them again: look once more
                raise ObjectStoreUnavailable("an original isn't there yet") from error
            group.rejected.append((job, error))
        else:
            group.built.append((job, built))
            group.bytes_ += len(content)


@dataclass(slots=True)
class _Group:
    """A group that grows."""

    built: list[tuple[VersionJob, BuiltDocument]] = field(default_factory=list)
    rejected: list[tuple[VersionJob, DocumentRejected]] = field(default_factory=list)
    bytes_: int = 0
    ends_at: float = field(default_factory=lambda: time.monotonic() + _GROUP_S)

    def is_full(self) -> bool:
        count = len(self.built) + len(self.rejected)
        return count >= _GROUP_DOCUMENTS or self.bytes_ >= _GROUP_BYTES or time.monotonic() >= self.ends_at

    async def ended(self, claim: TaskClaim, trouble: GatewayError | None = None) -> ParsedGroup:
        documents = await to_thread.run_sync(self._parsed, claim) if self.built else ()
        return ParsedGroup(documents, tuple(self.rejected), trouble)

    def _parsed(self, claim: TaskClaim) -> tuple[ParsedDocument, ...]:
        return tuple(parsed(claim, job, built) for job, built in self.built)
