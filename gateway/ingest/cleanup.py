"""The clean-up after a deletion or a revocation: what is taken away, and a report of what remains."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from anyio import to_thread

from gateway.access.authorizer import DocumentRef
from gateway.errors import NotFound, ObjectStoreUnavailable
from gateway.ingest import chunkfile
from gateway.ingest.catalog import TaskStore
from gateway.ingest.erasure import AnswerErasure
from gateway.ingest.objects import ObjectStore
from gateway.ingest.references import (
    CHUNKS,
    ORIGINALS,
    VECTORS,
    DeletedVersion,
    DocumentTerms,
    Remains,
    RemainsStore,
    owner_of,
)
from gateway.ingest.remaining import (
    ANSWERS_LEFT,
    ANSWERS_NOT_KEPT,
    ANSWERS_UNDER_WAY,
    Remainder,
    after_deletion,
    after_revocation,
)
from gateway.ingest.removal import Removal
from gateway.ingest.task import Ending, TaskClaim, TaskState
from gateway.retrieval.chunk import embedded_text
from gateway.retrieval.store import ChunkWriter
from gateway.retrieval.terms import terms_of

#: what a report counts under which name
_COUNTED = {ORIGINALS: "originals", CHUNKS: "chunk_files", VECTORS: "vector_files"}
#: condemned in one transaction: each is asked about by itself, and a revocation waits
_BATCH = 25


class CleanupWork:
    """Rows first, then the statistics and files that they were made of. Stopped anywhere, another run goes
    on with what is left; its report counts what it has removed itself.

    A version imported after the deletion is another one: none of its rows and files is touched.
    """

    def __init__(
        self,
        tasks: TaskStore,
        remains: RemainsStore,
        objects: ObjectStore,
        writer: ChunkWriter,
        removal: Removal,
        answers: AnswerErasure | None = None,
    ) -> None:
        """``answers``: None where none are kept."""
        self._tasks = tasks
        self._remains = remains
        self._objects = objects
        self._writer = writer
        self._removal = removal
        self._answers = answers

    async def run(self, claim: TaskClaim) -> Ending:
        remains = None if claim.target is None else await self._remains.remains(claim)
        if remains is None:  # a revocation: until it is lifted nothing may be lost that can't be made again
            answers, answers_left = await self._forget_answers(claim.target)
            return _ended(Counter(answers=answers), after_revocation(claim.target, answers_left))
        versions = [version.version for version in remains.versions]
        removed = Counter(quotes=await self._remains.erase_quotes(claim, versions))
        uncounted = await self._empty_revisions(claim, remains, removed)
        shared = await self._remove_objects(claim, remains, removed)
        removed["answers"], answers_left = await self._forget_answers(remains.document_id)
        await self._remains.erase(claim, versions)
        return _ended(removed, after_deletion(shared, uncounted, answers_left))

    async def _forget_answers(self, document_id: str | None) -> tuple[int, Remainder]:
        """How many, and what to say of those that are left: all of them when it is about a whole knowledge
        base, which nobody is let into.
        """
        if self._answers is None:
            return 0, ANSWERS_NOT_KEPT
        forgotten = None if document_id is None else await self._answers.forget(document_id)
        return (0, ANSWERS_LEFT) if forgotten is None else (forgotten, ANSWERS_UNDER_WAY)

    async def _empty_revisions(self, claim: TaskClaim, remains: Remains, removed: Counter[str]) -> int:
        """How many revisions still count terms that nobody can tell any more."""
        uncounted = 0
        versions = {version.version: version for version in remains.versions}
        for done, holding in enumerate(remains.holdings):
            await self._tasks.progress(claim, "emptying revisions", done, len(remains.holdings))
            revision = holding.revision
            removed["rows"] += await self._writer.delete_document(
                revision.space, revision.kb_revision, claim.tenant, claim.kb_id, remains.document_id
            )
            if holding.version is not None:
                terms = await self._terms(versions[holding.version])
                await self._remains.forget(claim, holding, terms)
                uncounted += terms is None
        return uncounted

    async def _terms(self, version: DeletedVersion) -> DocumentTerms | None:
        """Counted again from the chunk file; None when that is lost."""
        try:
            content = await self._objects.get(version.chunks_key)
            return await to_thread.run_sync(_counted, version.title, content)
        except (NotFound, ValueError, KeyError, TypeError):
            return None

    async def _remove_objects(
        self, claim: TaskClaim, remains: Remains, removed: Counter[str]
    ) -> Mapping[str, int]:
        """How many of each kind stay, because somebody else needs them."""
        keys = list(dict.fromkeys(await self._objects_of(remains)))
        shared: Counter[str] = Counter()
        for start in range(0, len(keys), _BATCH):
            await self._tasks.progress(claim, "deleting files", start, len(keys))
            sentence = await self._removal.take_away(keys[start : start + _BATCH])
            if sentence.busy:
                raise ObjectStoreUnavailable("somebody else is deleting some of these objects")
            removed.update(map(_name, sentence.condemned))
            shared.update(map(_name, sentence.needed))
        return shared

    async def _objects_of(self, remains: Remains) -> list[str]:
        """That are there: the catalog's, and what attempts that failed have left beside them."""
        document, deleted = remains.document_id, {version.version for version in remains.versions}
        keys = []
        for folder in (CHUNKS, *(f"{VECTORS}/{space}" for space in remains.spaces)):
            async for found in self._objects.list(f"{folder}/{document}"):
                keys.append(found.key)
        mine = {DocumentRef(document, version) for version in deleted}
        keys = [key for key in keys if owner_of(key) in mine]
        named = [*_named(remains.versions), *remains.vector_files]
        return keys + [key for key in named if key not in keys and await self._objects.exists(key)]


def _named(versions: Sequence[DeletedVersion]) -> Iterable[str]:
    for version in versions:
        yield version.original_key
        if version.chunks_key:
            yield version.chunks_key


def _counted(title: str, content: bytes) -> DocumentTerms:
    passages = chunkfile.load(content).passages
    texts = (embedded_text(title, passage.section, passage.content) for passage in passages)
    return DocumentTerms(len(passages), Counter(term for text in texts for term in set(terms_of(text))))


def _name(key: str) -> str:
    return _COUNTED[key.partition("/")[0]]


def _ended(removed: Mapping[str, int], remaining: Sequence[Remainder]) -> Ending:
    counted = {name: removed.get(name, 0) for name in ("rows", *_COUNTED.values(), "quotes", "answers")}
    told = [{"what": one.what, "why": one.why, "until": one.until} for one in remaining]
    return Ending(TaskState.SUCCEEDED, report={"removed": counted, "remains": told})
