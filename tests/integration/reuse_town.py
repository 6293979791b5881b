"""A town whose rights keep changing, and an oracle that says from the rules alone who may see what.

Every version of a document holds a word of its own, so whatever is told names where it comes from. The oracle
reads nothing but what the town itself did, and which revision is bound.
"""

import random
import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.access.classes import Acl
from gateway.access.principal import Principal
from gateway.errors import ReleaseConflict
from gateway.ingest.governance import AclChange
from gateway.stream.protocol import Done
from gateway.stream.revocation import RevocationKind
from tests.harness.world import World
from tests.integration.cache_world import Told, person
from tests.integration.reuse_parts import SECRET_LEVEL, Engine

TENANT, KB = "acme", "handbook"
GROUPS = ("red", "green", "blue")
TOPICS = ("upload", "holiday", "parking")
#: names that a question may try out; a passage has at most one of them
NAMES = ("Zebra", "Lion", "Tiger")
_WORD = re.compile(r"\bsecret\d+\b")
_RANK = re.compile(r"#(\d+)")


@dataclass
class Version:
    """As it was imported. Times are seconds since the epoch."""

    word: str
    name: str
    allow: frozenset[str]
    deny: frozenset[str]
    sensitivity: int
    valid_from: float
    valid_until: float
    withdrawn: bool = False


@dataclass
class Document:
    source: str
    document_id: str
    allow: frozenset[str]
    deny: frozenset[str]
    versions: list[Version] = field(default_factory=list)
    deleted: bool = False


class Town:
    """Acts on a world at random, and remembers what it did."""

    def __init__(self, world: World, engine: Engine, seed: int) -> None:
        self.world = world
        self.engine = engine
        self.seed = seed
        self.random = random.Random(seed)
        self.people = [person(f"p{n}", self._some(GROUPS, most=2)) for n in range(6)]
        self.documents: list[Document] = []
        self.snapshots: dict[str, dict[str, Version]] = {}
        self.revoked: dict[str, tuple[RevocationKind, str]] = {}
        self._words = 0

    # -- acts ----------------------------------------------------------------------------------------

    async def begin(self) -> None:
        for _ in range(4):
            await self.import_one()

    async def act(self) -> None:
        acts = (
            (self.rest, 20),
            (self.import_one, 1),
            (self.change_acl, 2),
            (self.revoke, 3),
            (self.lift, 5),
            (self.roll_back, 1),
            (self.delete, 0.5),
            (self.move_rows, 1),
            (self.deny_one, 1),
        )
        chosen = self.random.choices([act for act, _ in acts], [weight for _, weight in acts])[0]
        await chosen()

    async def rest(self) -> None:
        pass

    async def import_one(self) -> None:
        """A new document, or a new version of one, for its own people and time."""
        if (RevocationKind.KNOWLEDGE_BASE, KB) in self.revoked.values():
            return
        self._words += 1
        living = [document for document in self.documents if not document.deleted]
        again = living and (len(living) >= 6 or self.random.random() < 0.3)
        known = self.random.choice(living) if again else None
        source = known.source if known else f"{self._words}.md"
        version = self._version(known)
        task = await self.world.learn(
            {source: self._text(version)},
            allow=sorted(version.allow),
            deny=sorted(version.deny),
            sensitivity=version.sensitivity,
            valid_from=int(version.valid_from) or None,
            valid_until=None if version.valid_until == float("inf") else int(version.valid_until),
        )
        assert task is not None
        if known is None:
            stored = await self.world.catalog.documents(TENANT, KB)
            document_id = next(one.document_id for one in stored if one.source == source)
            known = Document(source, document_id, version.allow, version.deny)
            self.documents.append(known)
        known.allow, known.deny = version.allow, version.deny
        known.versions.append(version)
        await self._remember_release()

    async def change_acl(self) -> None:
        for document in self._one_living():
            allow, deny = self._acl()
            acl = Acl.parse(allow, deny)
            await self.world.catalog.set_acl(AclChange(TENANT, document.document_id, acl, "owner", 600))
            document.allow, document.deny = allow, deny

    async def revoke(self) -> None:
        kind, subject = self.random.choice(
            [
                (RevocationKind.USER, self.random.choice(self.people).subject),
                (RevocationKind.GROUP, self.random.choice(GROUPS)),
                *((RevocationKind.DOCUMENT, d.document_id) for d in self.random.choices(self.documents, k=3)),
                *[(RevocationKind.KNOWLEDGE_BASE, KB)] * (self.random.random() < 0.3),
            ]
        )
        made = await self.world.catalog.revoke(TENANT, kind, subject, "", "owner")
        self.revoked[made.revocation_id] = (kind, subject)

    async def lift(self) -> None:
        if self.revoked:
            revocation = self.random.choice(list(self.revoked))
            await self.world.catalog.lift(TENANT, revocation)
            del self.revoked[revocation]

    async def roll_back(self) -> None:
        try:
            await self.world.catalog.roll_back(TENANT, KB)
        except ReleaseConflict:
            return
        snapshot = self.snapshots[await self._revision()]
        for document in self.documents:
            held = snapshot.get(document.source)
            newest = -1 if held is None else document.versions.index(held)
            for version in document.versions[newest + 1 :]:
                version.withdrawn = True

    async def delete(self) -> None:
        for document in self._one_living():
            await self.world.catalog.delete_document(TENANT, document.document_id)
            document.deleted = True

    async def move_rows(self) -> None:
        """What was put off: rows follow their documents' new classes, deleted ones are cleaned up."""
        await self.world.work()

    async def deny_one(self) -> None:
        """The engine's word on one person and one document, or all of its words taken back."""
        if self.random.random() < 0.3:
            self.engine.denied.clear()
        for document in self._one_living():
            self.engine.denied.add((f"user:{self.random.choice(self.people).subject}", document.document_id))

    # -- the oracle ----------------------------------------------------------------------------------

    async def sights(
        self, people: Sequence[Principal], since: float | None = None
    ) -> Mapping[Principal, Mapping[str, Version]]:
        """For each of them the versions that he may see now, or since then, by their words."""
        snapshot, now = self.snapshots[await self._revision()], time.time()
        seen = {who: self._visible(who, snapshot, now if since is None else since, now) for who in people}
        return {who: {version.word: version for version in versions} for who, versions in seen.items()}

    def _visible(
        self, who: Principal, snapshot: Mapping[str, Version], since: float, until: float
    ) -> list[Version]:
        if (RevocationKind.KNOWLEDGE_BASE, KB) in self.revoked.values():
            return []
        if (RevocationKind.USER, who.subject) in self.revoked.values():
            return []
        gone = {subject for kind, subject in self.revoked.values() if kind is RevocationKind.GROUP}
        lets_in = {f"user:{who.subject}", "public", *(f"group:{name}" for name in who.groups - gone)}
        keeps_out = {f"user:{who.subject}", "public", *(f"group:{name}" for name in who.groups)}
        seen = []
        for document in self.documents:
            version = snapshot.get(document.source)
            if version is None or version.withdrawn or document.deleted:
                continue
            if (RevocationKind.DOCUMENT, document.document_id) in self.revoked.values():
                continue
            if (f"user:{who.subject}", document.document_id) in self.engine.denied:
                continue
            acls = [(document.allow, document.deny), (version.allow, version.deny)]
            permitted = all(allow & lets_in and not deny & keeps_out for allow, deny in acls)
            if permitted and version.valid_from <= until and since < version.valid_until:
                seen.append(version)
        return seen

    def wrongly_told(self, told: Told, question: str, seen: Collection[Version]) -> list[str]:
        """What was told and comes from something else than ``seen``."""
        wrong = sorted(
            words_in(told) - {version.word for version in seen if version.sensitivity < SECRET_LEVEL}
        )
        if not told.events:
            return wrong
        ranks = [int(rank) for source in told.meta.sources for rank in _RANK.findall(source.hit_reason)]
        if max(ranks, default=0) > len(seen):
            wrong.append(f"a rank of {max(ranks)} among {len(seen)}")
        done = told.events[-1]
        searched = done.searched if isinstance(done, Done) else None
        if searched is not None:
            if searched.passages > len(seen):
                wrong.append(f"{searched.passages} passages of {len(seen)}")
            asked = [name for name in NAMES if name in question and name not in searched.missing]
            wrong += [name for name in asked if name not in {version.name for version in seen}]
        return wrong

    # ------------------------------------------------------------------------------------------------

    def question(self) -> str:
        topic = self.random.choice(TOPICS)
        name = self.random.choice((*NAMES, "", ""))
        return f"What is the {topic} rule of {name}?" if name else f"What is the {topic} rule?"

    async def _revision(self) -> str:
        stamp = await self.world.catalog.tenant_stamp(TENANT)
        release = await self.world.catalog.active(TENANT, stamp.knowledge_bases[0].kb_id)
        assert release is not None
        return str(release.kb_revision)

    async def _remember_release(self) -> None:
        """At most what an import brings into a release: of each document the newest that isn't withdrawn."""
        newest = {}
        for document in self.documents:
            valid = [version for version in document.versions if not version.withdrawn]
            if valid and not document.deleted:
                newest[document.source] = valid[-1]
        self.snapshots.setdefault(await self._revision(), newest)

    def _one_living(self) -> list[Document]:
        living = [document for document in self.documents if not document.deleted]
        return self.random.sample(living, min(1, len(living)))

    def _version(self, known: Document | None) -> Version:
        allow, deny = self._acl()
        if known is not None and self.random.random() < 0.5:
            allow, deny = known.allow, known.deny
        now, moment = time.time(), self.random.random()
        return Version(
            word=f"secret{self._words}",
            name=self.random.choice(NAMES),
            allow=allow,
            deny=deny,
            sensitivity=self.random.choice((0, 0, 0, 1, SECRET_LEVEL)),
            valid_from=int(now) + 2 if moment < 0.1 else 0,
            valid_until=int(now) + 2 if moment > 0.8 else float("inf"),
        )

    def _text(self, version: Version) -> str:
        topic = self.random.choice(TOPICS)
        return f"# The {topic} rule {version.word}\n\nThe {topic} rule of {version.name} is {version.word}.\n"

    def _acl(self) -> tuple[frozenset[str], frozenset[str]]:
        names = [f"group:{name}" for name in GROUPS]
        names += ["public", "public", f"user:{self.random.choice(self.people).subject}"]
        deny = self._some(names, most=1) if self.random.random() < 0.3 else ()
        return frozenset(self._some(names, most=3)), frozenset(deny) - {"public"}

    def _some(self, names: Collection[Any], most: int) -> list[Any]:
        return self.random.sample(sorted(names), self.random.randint(1, most))


def words_in(told: Told) -> set[str]:
    """The words of versions in everything that was told."""
    return set(_WORD.findall(f"{told.events} {told.text}"))
