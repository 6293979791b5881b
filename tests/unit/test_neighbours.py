"""Neighbours: which passages are asked for, and how hits and neighbours become one passage."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from gateway.access.authorizer import DocumentRef, DropReason
from gateway.access.principal import Principal
from gateway.access.scope import AccessScope
from gateway.adapters.memory.vectors import MemoryVectors
from gateway.admission.bulkhead import Bulkhead
from gateway.answer.citation import cite_all
from gateway.answer.evidence import Evidence
from gateway.answer.neighbours import Completed, NeighbourLimits, Neighbours, joined, missing_ids
from gateway.answer.prompt import build_prompt
from gateway.context import Deadline, RequestContext
from gateway.errors import CatalogUnavailable, GatewayError, VectorStoreUnavailable
from gateway.observe.metrics import Metrics
from gateway.observe.trace import Trace
from gateway.release.model import EmbeddingSpace, RetrievalConfig, RetrievalRelease
from gateway.retrieval.chunk import Chunk, chunk_id, row_id
from gateway.retrieval.query import ScopedQuery
from gateway.retrieval.risk import RiskPolicy
from tests.harness.chunks import sample_chunk

ONE = NeighbourLimits(reach=1, hits=2, retrieval_ms=5000, catalog_ms=5000)
PLENTY = 10_000
#: the space of ``sample_chunk``
SPACE = EmbeddingSpace("space", "test", 3)


def at(index: int, **changes: Any) -> Chunk:
    """Passage ``index`` of a document, with the id an import gives it."""
    document = changes.get("document_id", "d1")
    name = chunk_id("acme", "kb", document, changes.get("document_version", 1), "p1", "s1", index)
    content = changes.pop("content", f"Words of passage {index}.")
    fields = {"row_id": row_id("r1", name), "chunk_index": index, "section": "Fees", **changes}
    return sample_chunk(content, name, **fields)


def hits(*chunks: Chunk) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(n, chunk, 0.5, 1 / n, "rrf", f"dense #{n}") for n, chunk in enumerate(chunks, start=1)
    )


def places(evidence: Sequence[Evidence]) -> list[list[int]]:
    return [[part.chunk_index for part in item.parts] for item in evidence]


def test_a_passage_knows_its_neighbours_ids() -> None:
    """Both sides, the nearer ones first, none before the beginning, and nothing that is there already."""
    found = hits(at(0), at(5), at(6))
    assert missing_ids(found, found, 1) == (at(1).chunk_id, at(4).chunk_id, at(7).chunk_id)
    assert missing_ids(found[:1], found, 2) == (at(1).chunk_id, at(2).chunk_id)


def test_neighbours_are_joined_in_the_documents_order() -> None:
    """One number, the hit's own scores, and all that was joined in its text."""
    (whole,) = joined(hits(at(5)), [at(6), at(4)], ONE, PLENTY)
    assert places([whole]) == [[4, 5, 6]]
    assert (whole.n, whole.chunk, whole.raw_score) == (1, at(5), 1.0)
    assert whole.text == "Words of passage 4.\n\nWords of passage 5.\n\nWords of passage 6."


@pytest.mark.parametrize(
    "changes",
    [
        {"section": "Refunds"},
        {"document_id": "d2"},
        {"document_version": 2},
        {"splitter_version": "s2"},
        {"parser_version": "p2"},
    ],
)
def test_nothing_is_joined_across_a_border(changes: dict[str, Any]) -> None:
    """Another section, document, version or way of splitting."""
    assert places(joined(hits(at(5)), [at(6, **changes)], ONE, PLENTY)) == [[5]]


def test_nothing_is_joined_across_a_gap() -> None:
    """What stands further away needs everything in between."""
    two = replace(ONE, reach=2)
    assert places(joined(hits(at(5)), [at(7), at(4), at(3)], two, PLENTY)) == [[3, 4, 5]]


def test_hits_that_touch_become_one_passage() -> None:
    """Under the better one's number, whichever comes first in the document; the others close ranks."""
    whole = joined(hits(at(6), at(2, document_id="d2"), at(5)), [], ONE, PLENTY)
    assert places(whole) == [[5, 6], [2]]
    assert [(item.n, item.chunk.chunk_index) for item in whole] == [(1, 6), (2, 2)]


def test_a_neighbour_between_two_hits_makes_them_one() -> None:
    """It is in the prompt once."""
    assert places(joined(hits(at(5), at(7)), [at(6)], ONE, PLENTY)) == [[5, 6, 7]]


def test_only_the_best_hits_get_neighbours() -> None:
    """The room of a prompt is for what was found."""
    found = hits(at(5), at(5, document_id="d2"), at(5, document_id="d3"))
    around = [at(6), at(6, document_id="d2"), at(6, document_id="d3")]
    assert places(joined(found, around, ONE, PLENTY)) == [[5, 6], [5, 6], [5]]


def test_a_neighbour_fits_whole_or_stays_out() -> None:
    """No hit is lost for one, and none is cut."""
    long = at(6, content="A long passage with a qualifier at its end. " * 40)
    assert places(joined(hits(at(5)), [long, at(4)], ONE, 40)) == [[4, 5]]
    assert places(joined(hits(at(5)), [at(4), at(6)], ONE, 0)) == [[5]]


def test_the_whole_passage_is_as_sensitive_and_as_risky_as_its_parts() -> None:
    """Clearance and markers are asked of all of it, and the prompt tells the markers."""
    (whole,) = joined(hits(at(5)), [at(6, sensitivity=2, risk=("external",))], ONE, PLENTY)
    assert (whole.sensitivity, whole.risk) == (2, ("external",))
    prompt = build_prompt("q", [whole], language="en", max_output_tokens=10).messages[1].content
    assert "risk: external" in prompt
    assert "passage 6" in prompt


def test_a_citation_names_the_passage_its_quote_stands_in() -> None:
    """The neighbour's id and page, though the number is the hit's."""
    hit, neighbour = at(5, page=3), at(6, page=4, content="The fee is 12 EUR a month. It rises in May.")
    (cited,) = cite_all("The fee is 12 EUR a month [1].", {1: (hit, neighbour)})
    assert (cited.chunk_id, cited.page, cited.supported) == (neighbour.chunk_id, 4, True)
    assert cited.quote == "The fee is 12 EUR a month."
    (unsaid,) = cite_all("No claim.", {1: (hit, neighbour)})
    assert (unsaid.chunk_id, unsaid.quote, unsaid.supported) == (hit.chunk_id, "", False)


class Forgetful(MemoryVectors):
    """A store whose filter is forgotten: it gives whatever it is asked for by id, and one passage more."""

    def __init__(self, *chunks: Chunk, error: GatewayError | None = None) -> None:
        super().__init__()
        self._chunks = chunks
        self._error = error

    async def fetch(self, query: ScopedQuery, chunk_ids: Sequence[str], deadline: Deadline) -> list[Chunk]:
        if self._error is not None:
            raise self._error
        return list(self._chunks)


class Rechecked:
    """The catalog's word: ``reason`` for every document, None = permitted."""

    def __init__(self, reason: DropReason | None = None, error: GatewayError | None = None) -> None:
        self._reason = reason
        self._error = error

    async def check(
        self, scope: AccessScope, refs: Sequence[DocumentRef], now: float
    ) -> Mapping[DocumentRef, DropReason | None]:
        if self._error is not None:
            raise self._error
        return dict.fromkeys(refs, self._reason)


async def completed(
    vectors: Forgetful, recheck: Rechecked, *, limits: NeighbourLimits = ONE, max_sensitivity: int = 3
) -> Completed:
    """The passage at 5 with what may be joined to it, for somebody permitted class 1 alone."""
    scope = AccessScope(
        tenant="acme",
        kb_id="kb",
        knowledge_base="handbook",
        acl_revision=1,
        revocation_epoch=0,
        incarnation="i",
        principals=frozenset({"user:ann"}),
        permitted_classes=frozenset({1}),
    )
    release = RetrievalRelease(
        "rel", "acme", "kb", "handbook", "r1", 1, SPACE, "c", RetrievalConfig.uncalibrated(SPACE)
    )
    principal = Principal("acme", "ann", frozenset(), frozenset({"ask"}), 2**31)
    context = RequestContext("r1", "t1", principal, scope, release, Deadline.after(60_000))
    retrieval = Bulkhead("retrieval", 1, 1000)
    part = Neighbours(vectors, recheck, retrieval, limits, RiskPolicy.WITHHOLD)
    trace = Trace("r1", "t1", Metrics(close_reasons=(), statuses=()))
    whole = await part.join(context, trace, hits(at(5)), max_sensitivity=max_sensitivity, tokens=PLENTY)
    assert retrieval.in_use == 0
    return whole


async def test_a_permitted_neighbour_is_joined() -> None:
    """And nothing else that a store throws in."""
    whole = await completed(Forgetful(at(6), at(7), at(8, document_id="d2")), Rechecked())
    assert (places(whole.evidence), whole.skipped) == ([[5, 6]], False)


@pytest.mark.parametrize(
    "changes",
    [
        {"acl_class": 2},
        {"acl_class": 0},
        {"tenant_id": "globex"},
        {"kb_id": "other"},
        {"embedding_space_id": "other"},
        {"valid_until": 1},
        {"valid_from": 2**40},
        {"sensitivity": 3},
        {"risk": ("injection-like",)},
    ],
)
async def test_a_neighbour_that_may_not_be_shown_is_not_joined(changes: dict[str, Any]) -> None:
    """Each for a reason of its own, whatever the store returns: class 0 is that of revoked documents."""
    vectors = Forgetful(at(6, **changes), at(4))
    assert places((await completed(vectors, Rechecked(), max_sensitivity=2)).evidence) == [[4, 5]]


@pytest.mark.parametrize(
    "reason", [DropReason.REVOKED, DropReason.ACL, DropReason.DELETED, DropReason.EXPIRED]
)
async def test_a_neighbour_is_rechecked_itself(reason: DropReason) -> None:
    """By the catalog's word when it is fetched, not when its hit was found."""
    assert places((await completed(Forgetful(at(6)), Rechecked(reason))).evidence) == [[5]]


@pytest.mark.parametrize(
    ("vectors", "recheck"),
    [
        (Forgetful(error=VectorStoreUnavailable()), Rechecked()),
        (Forgetful(at(6)), Rechecked(error=CatalogUnavailable())),
    ],
)
async def test_what_cant_be_checked_is_left_out(vectors: Forgetful, recheck: Rechecked) -> None:
    """The evidence is what it was, and says so."""
    whole = await completed(vectors, recheck)
    assert (places(whole.evidence), whole.skipped) == ([[5]], True)


async def test_neighbours_can_be_switched_off() -> None:
    """Then nothing is asked for."""
    off = await completed(
        Forgetful(error=VectorStoreUnavailable()), Rechecked(), limits=replace(ONE, reach=0)
    )
    assert (places(off.evidence), off.skipped) == ([[5]], False)
