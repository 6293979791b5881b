"""The ports to the catalog as an operator keeps it: copied, loaded, and asked what it counts on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gateway.ingest.journal import JournalEntry
from gateway.ingest.plan import PlannedDocument, ReleasePlan
from gateway.release.model import EmbeddingSpace, ReleaseState

#: a backup holds every act that is so much older than itself: no transaction takes that long
SETTLED_S = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class CatalogDump:
    """One snapshot. ``rows`` counts each table's; ``objects`` are the keys that its documents name.

    Without those that are ``needed`` a release of the snapshot can't be brought back.
    ``journaled`` are the numbers of entries that the journal held by then, of the last ``SETTLED_S``.
    ``taken_at`` is seconds since the epoch, by the database's clock.
    """

    schema: str
    incarnation: str
    taken_at: float
    rows: Mapping[str, int]
    objects: frozenset[str]
    journaled: frozenset[int]
    needed: frozenset[str] = frozenset()


class DumpedCatalog(Protocol):
    """A catalog that others may be using. Raises CatalogUnavailable, ConfigurationError."""

    async def dump(self, folder: Path) -> CatalogDump:
        """Every table as ``<table>.jsonl`` in the folder."""
        ...

    async def needed_objects(self) -> frozenset[str]:
        """What can't be done without by now."""
        ...


class EmptyCatalog(Protocol):
    """A catalog to restore into."""

    @property
    def tables(self) -> frozenset[str]:
        """The names that a backup's tables may have."""
        ...

    async def load(self, folder: Path, dump: CatalogDump, note: Mapping[str, str]) -> None:
        """All or nothing; the catalog then waits for ``confirm``. ``note`` is kept with it.

        Raises ConfigurationError (``catalog_not_empty``, ``backup_of_other_schema``), BackupDamaged.
        """
        ...


@dataclass(frozen=True, slots=True)
class RetainedRelease:
    """A release that answers, or that an operator may switch to. ``moving``: some of its rows may be on
    their way to another ACL class.
    """

    tenant: str
    release_id: str
    kb_revision: str
    space: EmbeddingSpace
    state: ReleaseState
    moving: bool


class RestoredCatalog(Protocol):
    """Between ``load`` and ``confirm``. Each method is one transaction."""

    async def note(self) -> Mapping[str, str]:
        """What was kept at ``load``; empty when the catalog isn't from a backup."""
        ...

    async def unsent(self, incarnation: str) -> Sequence[JournalEntry]:
        """Acts of this incarnation, the backup's, that weren't in the journal by then."""
        ...

    async def sent(self, entries: Sequence[JournalEntry]) -> None:
        """They are in the journal."""
        ...

    async def replay(self, entry: JournalEntry) -> bool:
        """Does the act again; False when the catalog holds it already. Raises BackupDamaged."""
        ...

    async def give_up(self, release_id: str) -> None:
        """It isn't ACTIVE and can't be brought back: from now on it is RECLAIMED."""
        ...

    async def finish(self) -> None:
        """Everything is back: ``confirm`` may be called."""
        ...

    async def confirm(self) -> bool:
        """Gives the catalog its new incarnation: from now on it answers. False when it has one.

        Raises ConfigurationError ``restore_unfinished``.
        """
        ...


class KeptCatalog(Protocol):
    """What stored revisions and objects are compared with."""

    async def versions(self, after: str, limit: int) -> Sequence[PlannedDocument]:
        """Of the next ``limit`` live documents after this id the newest version and those in retained
        releases, by id and version. Without a chunk file they aren't built yet.
        """
        ...

    async def retained(self) -> Sequence[RetainedRelease]:
        """ACTIVE, RETIRED and READY ones, of all tenants."""
        ...

    async def spaces(self) -> Sequence[EmbeddingSpace]:
        """Every space that any release ever was of."""
        ...

    async def unfinished_revisions(self) -> frozenset[str]:
        """The revisions that are being built now."""
        ...

    async def plan(self, release_id: str) -> ReleasePlan:
        """What the release's rows are made from: its live documents, in the classes their rows have."""
        ...

    async def journal_lag_s(self) -> float: ...
