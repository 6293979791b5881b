"""The rows that the index check writes and the questions it asks: clustered, seeded, of several tenants.

Vectors: a topic's centre is an area's direction plus noise (cosine 0.78 between the two), a row is its
topic's centre plus noise (0.82), normalised; 20 topics an area and 200 rows a topic. Two rows of a topic
have a cosine of 0.67, of an area 0.41, others 0. The noise fills every dimension, which is harder for a
graph index than text is.

Words: a row has 40 to 100 of them, two thirds from a common vocabulary with Zipf-like frequencies (the most
frequent in a quarter of the rows, as stop words are gone), one third from its topic's 40, and a code
that three rows share.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gateway.access.scope import AccessScope
from gateway.release.model import EmbeddingSpace, RetrievalConfig, RetrievalRelease
from gateway.retrieval.chunk import FOREVER, Chunk, row_id
from gateway.retrieval.query import ScopedQuery
from gateway.retrieval.store import Row

Vectors = NDArray[np.float32]
Numbers = NDArray[np.int64]
Mask = NDArray[np.bool_]

NOW = 1_000_000
_EXPIRED = NOW - 1
_ROWS_A_TOPIC = 200
_TOPICS_AN_AREA = 20
_COMMON_WORDS = 5_000
_TOPICAL_WORDS = 20_000
_WORDS_A_TOPIC = 40
_LENGTHS = (40, 100)
_TOPICAL_SHARE = 1 / 3
_ROWS_A_CODE = 3


@dataclass(frozen=True, slots=True)
class Group:
    """Rows of one revision that share a fate: their share of all rows and the classes they are spread over.

    With ``few_topics`` all of them are of the first few topics.
    """

    tenant: str
    kb: str
    revision: str
    classes: tuple[int, ...]
    share: float
    expired: bool = False
    few_topics: bool = False


_HANDBOOK = ("acme", "handbook", "handbook-2")
_EVERYBODY = tuple(range(1, 11))
GROUPS = (
    Group(*_HANDBOOK, _EVERYBODY, 0.50),
    Group(*_HANDBOOK, _EVERYBODY, 0.03, expired=True),
    Group(*_HANDBOOK, (11,), 0.01),
    Group(*_HANDBOOK, (12,), 0.01, few_topics=True),
    Group(*_HANDBOOK, (13,), 0.0001),
    Group(*_HANDBOOK, tuple(range(20, 40)), 0.15),
    Group("acme", "handbook", "handbook-1", (*_EVERYBODY, 11, 12, 13), 0.10),
    Group("acme", "small", "small-1", _EVERYBODY, 0.01),
    Group("globex", "tiny", "tiny-1", _EVERYBODY, 0.0001),
    *(Group("globex", f"kb-{n}", f"kb-{n}-1", _EVERYBODY, 0.0237) for n in range(8)),
)


@dataclass(frozen=True, slots=True)
class Case:
    """One caller: what may be seen there, as the share of all rows it is meant to be."""

    name: str
    tenant: str
    kb: str
    revision: str
    classes: tuple[int, ...]


CASES = (
    Case("50 %", *_HANDBOOK, _EVERYBODY),
    Case("1 %, one class", *_HANDBOOK, (11,)),
    Case("1 %, one class, few topics", *_HANDBOOK, (12,)),
    Case("1 %, own knowledge base", "acme", "small", "small-1", _EVERYBODY),
    Case("0.01 %, one class", *_HANDBOOK, (13,)),
    Case("0.01 %, own knowledge base", "globex", "tiny", "tiny-1", _EVERYBODY),
)


@dataclass(frozen=True, slots=True)
class Question:
    """``kind``: near a permitted row, near a hidden one, or off every topic."""

    kind: str
    vector: Vectors
    terms: tuple[str, ...]


def unit(vectors: Vectors) -> Vectors:
    """Each at length 1."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / lengths, dtype=np.float32)


class Corpus:
    """Rows as arrays: row ``i`` is chunk ``c<i>``. ``words`` is rows x longest, -1 where there is none."""

    def __init__(self, rows: int, dimension: int, seed: int = 7) -> None:
        self._rng = np.random.default_rng(seed)
        self.space = EmbeddingSpace(f"index-check-{dimension}", "synthetic", dimension)
        sizes = [max(1, round(group.share * rows)) for group in GROUPS]
        self.group: Numbers = np.repeat(np.arange(len(GROUPS)), sizes)
        self.size = len(self.group)
        self._topics = max(8, rows // _ROWS_A_TOPIC)
        self.acl_class: Numbers = np.concatenate(
            [self._rng.choice(group.classes, size) for group, size in zip(GROUPS, sizes, strict=True)]
        )
        self.topic = self._rng.integers(0, self._topics, self.size)
        few = np.array([group.few_topics for group in GROUPS])[self.group]
        self.topic[few] %= max(1, self._topics // 100)
        areas = unit(self._noise(max(2, self._topics // _TOPICS_AN_AREA)))
        self._centres = self._around(areas[np.arange(self._topics) % len(areas)], 0.8)
        self.vectors = self._around(self._centres[self.topic], 0.7)
        self._topic_words = _COMMON_WORDS + self._rng.integers(
            0, _TOPICAL_WORDS, (self._topics, _WORDS_A_TOPIC)
        )
        self.words = self._written()

    def _noise(self, count: int) -> Vectors:
        return self._rng.standard_normal((count, self.space.dimension), dtype=np.float32)

    def _around(self, centres: Vectors, spread: float) -> Vectors:
        """``spread`` is the noise's length beside a centre of length 1."""
        return unit(centres + np.float32(spread) * unit(self._noise(len(centres))))

    def _common(self, *shape: int) -> Numbers:
        weights = 1 / (np.arange(_COMMON_WORDS) + 50.0)
        return self._rng.choice(_COMMON_WORDS, shape, p=weights / weights.sum())

    def _written(self) -> Numbers:
        shape = (self.size, _LENGTHS[1])
        places = self._rng.integers(0, _WORDS_A_TOPIC, shape)
        topical = self._rng.random(shape) < _TOPICAL_SHARE
        words = np.where(topical, self._topic_words[self.topic[:, None], places], self._common(*shape))
        words[:, 0] = _COMMON_WORDS + _TOPICAL_WORDS + np.arange(self.size) % (self.size // _ROWS_A_CODE + 1)
        lengths = self._rng.integers(_LENGTHS[0], _LENGTHS[1] + 1, self.size)
        words[np.arange(_LENGTHS[1])[None, :] >= lengths[:, None]] = -1
        return words

    # what is written

    def revisions(self) -> Iterator[tuple[str, Numbers]]:
        """Each revision with its rows, in order of their first group."""
        for revision in dict.fromkeys(group.revision for group in GROUPS):
            of_it = [number for number, group in enumerate(GROUPS) if group.revision == revision]
            yield revision, np.flatnonzero(np.isin(self.group, of_it))

    def rows(self, numbers: Sequence[int] | Numbers) -> list[Row]:
        """These rows as the store takes them."""
        return [self._row(int(number)) for number in numbers]

    def _row(self, number: int) -> Row:
        group = GROUPS[self.group[number]]
        terms = tuple(f"w{word}" for word in self.words[number] if word >= 0)
        chunk = Chunk(
            row_id=row_id(group.revision, f"c{number}"),
            chunk_id=f"c{number}",
            tenant_id=group.tenant,
            kb_id=group.kb,
            kb_revision=group.revision,
            embedding_space_id=self.space.space_id,
            document_id=f"d{number // 10}",
            document_version=1,
            chunk_index=number % 10,
            acl_class=int(self.acl_class[number]),
            category="",
            valid_from=0,
            valid_until=_EXPIRED if group.expired else FOREVER,
            sensitivity=0,
            revocation_epoch=0,
            title=f"Document {number // 10}",
            section="Chapter > Part",
            page=0,
            source_uri=f"documents/{number // 10}.md",
            parser_version="p1",
            splitter_version="s1",
            content_hash=f"h{number}",
            author="",
            approval="approved",
            risk=(),
            content=" ".join(terms),
        )
        return Row(chunk, tuple(self.vectors[number].tolist()), terms)

    # what is asked

    def permitted(self, case: Case) -> Mask:
        """Told from the groups, and by none of the store's code."""
        wanted = [
            (group.tenant, group.kb, group.revision) == (case.tenant, case.kb, case.revision)
            and not group.expired
            for group in GROUPS
        ]
        return np.array(wanted)[self.group] & np.isin(self.acl_class, case.classes)

    def query(self, case: Case) -> ScopedQuery:
        release = RetrievalRelease(
            release_id="release",
            tenant=case.tenant,
            kb_id=case.kb,
            knowledge_base=case.kb,
            kb_revision=case.revision,
            sequence=1,
            space=self.space,
            collection=self.space.collection,
            config=RetrievalConfig("1", 1.0, 1.0, 1.0),
        )
        caller, classes = frozenset({"caller"}), frozenset(case.classes)
        return ScopedQuery(
            AccessScope(case.tenant, case.kb, case.kb, 1, 1, "check", caller, classes), release, NOW
        )

    def questions(self, case: Case, count: int) -> list[Question]:
        """Half of them near a permitted row, a quarter near a hidden one, a quarter off every topic."""
        permitted = self.permitted(case)
        rows = {"near": np.flatnonzero(permitted), "hidden": np.flatnonzero(~permitted)}
        kinds = ("near", "hidden", "near", "off")
        return [self._question(kinds[n % 4], rows.get(kinds[n % 4]), code=n % 8 < 2) for n in range(count)]

    def _question(self, kind: str, rows: Numbers | None, *, code: bool) -> Question:
        """Two common words and three of a topic; some name a code as well."""
        if rows is None:
            one, other = self._rng.choice(self._topics, 2, replace=False)
            vector = self._around(unit(self._centres[[one]] + self._centres[[other]]), 1.5)[0]
            words = [*self._topic_words[one, :2], *self._topic_words[other, :1]]
        else:
            row = int(self._rng.choice(rows))
            vector = self._around(self.vectors[[row]], 0.5)[0]
            written = self.words[row]
            words = [*self._rng.choice(written[written >= _COMMON_WORDS][1:], 3), *written[: int(code)]]
        return Question(kind, vector, tuple(dict.fromkeys(f"w{word}" for word in (*words, *self._common(2)))))
