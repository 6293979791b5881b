"""The journal: revocations, lifts, deletions and narrowings, kept where no restore of a backup reaches.

An act leaves an entry in the outbox, in its own transaction; a loop sends entries on from there. An entry
has one name for ever, so that sending it twice changes nothing. A marker says whose journal it is: one
without entries would look like any empty place.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import anyio

from gateway.errors import BackupDamaged, CatalogUnavailable, ObjectStoreUnavailable
from gateway.ingest.objects import ObjectStore
from gateway.observe.logging import get_logger

#: of the outbox; what follows is the entry's kind
TOPIC_PREFIX = "journal."
_FORMAT = 1
_DIGEST = 16
_BATCH = 100
_POLL_S = 1.0
#: longer than a batch may take to be sent; after it another process tries
_CLAIM_S = 15.0
#: a marker is written again, lest a rule that removes what is old takes it
_MARK_S = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One act. ``seq`` rises within an incarnation of the catalog; ``at`` is seconds since the epoch.

    Its name ends with a digest of what it says: whatever becomes of numbers when a database is put back to
    an earlier moment, no entry takes the place of another.
    """

    incarnation: str
    seq: int
    kind: str
    at: float
    payload: Mapping[str, Any]

    @property
    def name(self) -> str:
        act = json.dumps([self.kind, self.at, self.payload], sort_keys=True)
        digest = hashlib.sha256(act.encode()).hexdigest()[:_DIGEST]
        return f"{_numbered(self.incarnation, self.seq)}-{digest}.json"


def _numbered(incarnation: str, seq: int) -> str:
    """How an entry's name begins."""
    return f"{incarnation}/{seq:020d}"


def _marker_name(incarnation: str) -> str:
    return f"{incarnation}/marker"


class JournalOutbox(Protocol):
    """Where acts leave their entries. Every method raises CatalogUnavailable."""

    async def journal_incarnation(self) -> str:
        """Whose acts they are; empty while a restore is unconfirmed."""
        ...

    async def claim_journal(self, lease_s: float, limit: int) -> list[JournalEntry]:
        """The oldest entries that nobody has sent or is sending; nobody else gets them for ``lease_s``.

        None while a restore is unconfirmed: the entries' incarnation isn't known yet.
        """
        ...

    async def journaled(self, entries: Sequence[JournalEntry]) -> None:
        """They are in the journal."""
        ...

    async def journal_lag_s(self) -> float:
        """The age of the oldest entry that isn't in the journal yet; 0 when all are."""
        ...


class Journal:
    """Entries as small objects of a store of their own."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    async def append(self, entry: JournalEntry) -> None:
        """Raises ObjectStoreUnavailable."""
        content = json.dumps({"format": _FORMAT, **asdict(entry)}, sort_keys=True)
        await self._objects.put(entry.name, content.encode())

    async def mark(self, incarnation: str) -> None:
        """This is the journal of that incarnation; again changes nothing. Raises ObjectStoreUnavailable."""
        await self._objects.put(_marker_name(incarnation), json.dumps({"format": _FORMAT}).encode())

    async def lacking(self, incarnation: str, seqs: Collection[int]) -> list[str]:
        """Which of an incarnation's marker and these entries aren't there. Raises ObjectStoreUnavailable."""
        there = {found.key.partition("-")[0] async for found in self._objects.list(incarnation)}
        wanted = {_marker_name(incarnation), *(_numbered(incarnation, seq) for seq in seqs)}
        return sorted(wanted - there)

    async def entries(self, since: float = 0.0) -> list[JournalEntry]:
        """Those that were sent since then, in the order of their acts: incarnations one after the other.

        Raises ObjectStoreUnavailable, BackupDamaged.
        """
        stored = [found async for found in self._objects.list("") if found.key.endswith(".json")]
        names = [found.key for found in stored if found.modified >= since]
        by_incarnation: dict[str, list[JournalEntry]] = {}
        for name in names:
            entry = _parsed(name, await self._objects.get(name))
            by_incarnation.setdefault(entry.incarnation, []).append(entry)
        runs = sorted(by_incarnation.values(), key=lambda run: min(entry.at for entry in run))
        return [entry for run in runs for entry in sorted(run, key=lambda entry: (entry.seq, entry.at))]


def _parsed(name: str, content: bytes) -> JournalEntry:
    try:
        raw = json.loads(content)
        entry = JournalEntry(raw["incarnation"], raw["seq"], raw["kind"], raw["at"], raw["payload"])
    except (ValueError, KeyError, TypeError) as error:
        raise BackupDamaged(f"{name} is no entry") from error
    if entry.name != name:
        raise BackupDamaged(f"{name} holds another entry")
    return entry


class JournalWriter:
    """Sends entries on until cancelled; what can't be sent stays in the outbox.

    ``open_journal`` is called until it gives one. ``lag_s`` is how old the oldest entry was that wasn't
    sent at the last look.
    """

    def __init__(
        self, outbox: JournalOutbox, open_journal: Callable[[], Journal], *, poll_s: float = _POLL_S
    ) -> None:
        self._outbox = outbox
        self._open_journal = open_journal
        self._journal: Journal | None = None
        self._poll_s = poll_s
        self._marked = ""
        self._mark_again_at = 0.0
        self._trouble = ""
        self._log = get_logger("journal")
        self.lag_s = 0.0

    async def run(self) -> None:
        while True:
            try:
                sent = await self.step()
                self._tell("")
            except (CatalogUnavailable, ObjectStoreUnavailable) as error:
                sent = 0
                self._tell(error.code)
            if not sent:
                await anyio.sleep(self._poll_s)

    async def step(self) -> int:
        """Sends one batch; how many entries it had. Raises Unavailable, and then they are claimed for a
        while, as they may be half-way.
        """
        if self._journal is None:
            self._journal = self._open_journal()
        self.lag_s = await self._outbox.journal_lag_s()
        await self._mark(self._journal)
        entries = await self._outbox.claim_journal(_CLAIM_S, _BATCH)
        for entry in entries:
            await self._journal.append(entry)
        if entries:
            await self._outbox.journaled(entries)
        return len(entries)

    async def _mark(self, journal: Journal) -> None:
        """A restore elsewhere may give the catalog its incarnation, or another one, while this runs."""
        incarnation = await self._outbox.journal_incarnation()
        if not incarnation or (incarnation == self._marked and anyio.current_time() < self._mark_again_at):
            return
        await journal.mark(incarnation)
        self._marked, self._mark_again_at = incarnation, anyio.current_time() + _MARK_S

    def _tell(self, code: str) -> None:
        """Once when the journal falls behind, once when it goes on."""
        if code != self._trouble:
            self._trouble = code
            if code:
                self._log.warning("journal.behind", code=code, lag_s=round(self.lag_s, 1))
            else:
                self._log.info("journal.goes_on")
