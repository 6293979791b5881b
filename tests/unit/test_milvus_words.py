"""Scores made from rows' words, and which layout a server gets by its version."""

from collections.abc import Mapping
from typing import cast

import pytest

from gateway.adapters.memory.vectors import MemoryVectors
from gateway.adapters.milvus.layout import SERVER, SERVER_WITHOUT_BM25, server_layout
from gateway.adapters.milvus.reading import Reading
from gateway.adapters.milvus.rows import as_entity, word_id
from gateway.adapters.milvus.seal import seal_filter, seal_row
from gateway.adapters.milvus.words import bm25, search_words
from gateway.errors import InvariantViolated, VectorStoreUnavailable
from tests.contract.vector_world import SPACE, fill, query, row, soon

_TEXTS = {
    "both": ("reset", "password", "now"),
    "one": ("reset", "router", "now", "now"),
    "none": ("holiday", "calendar"),
}
_ASKED = ("reset", "password", "now")


async def test_scores_over_all_rows_are_those_of_the_twin() -> None:
    """One formula: the in-memory store's, when every passage was read."""
    twin = MemoryVectors()
    await twin.prepare(SPACE)
    await fill(twin, "r1", *(row(name, terms=terms) for name, terms in _TEXTS.items()))
    expected = {hit.chunk.chunk_id: hit.score for hit in await twin.lexical(query(), _ASKED, 10, soon())}
    frequencies = {word: sum(word in text for text in _TEXTS.values()) for word in _ASKED}
    assert bm25(_ASKED, _TEXTS, frequencies, 3) == pytest.approx(expected)


def test_rows_without_any_asked_word_have_no_score() -> None:
    """A word id that two words share finds a row, and its words don't score."""
    assert bm25(["absent"], _TEXTS, {}, 3) == {}
    assert bm25(["absent"], {}, {"absent": 3}, 3) == {}


def test_a_count_that_is_behind_makes_no_negative_score() -> None:
    """Passages are counted at another moment than the words in them."""
    scores = bm25(["reset"], _TEXTS, {"reset": 2}, 1)
    assert set(scores) == {"both", "one"}
    assert min(scores.values()) > 0


class FewAtOnce:
    """A Reading over rows in memory: gives the first ``limit`` rows that hold any of the asked words."""

    def __init__(self, texts: Mapping[str, tuple[str, ...]]) -> None:
        self._texts = texts

    def _matching(self, expression: str) -> list[str]:
        if "row_id in" in expression:
            return [row_id for row_id in self._texts if f'"{row_id}"' in expression]
        if "array_contains" not in expression:
            return list(self._texts)
        return [
            row_id
            for row_id, text in self._texts.items()
            if any(str(word_id(word)) in expression for word in text)
        ]

    async def query(self, expression: str, fields: list[str], limit: int) -> list[dict[str, str]]:
        found = self._matching(expression)[:limit]
        return [{"row_id": row_id, "terms": " ".join(self._texts[row_id])} for row_id in found]

    async def count(self, expression: str) -> int:
        return len(self._matching(expression))


async def test_a_rare_word_counts_though_no_sampled_row_holds_it() -> None:
    """Common words fill the sample; the three rows with the code come first all the same."""
    texts: dict[str, tuple[str, ...]] = {f"common{n:05}": ("service", "timeout") for n in range(2000)}
    texts |= {f"rare{n}": ("err_foo_1", "service") for n in range(2)} | {"alone": ("err_foo_1",)}
    reading = cast("Reading", FewAtOnce(texts))
    hits = await search_words(reading, "scope", ("service", "timeout", "err_foo_1"), [], 3)
    assert {row["row_id"] for row, _ in hits} == {"rare0", "rare1", "alone"}


@pytest.mark.parametrize(
    ("version", "layout"),
    [
        ("v2.3.5-lite", SERVER_WITHOUT_BM25),
        ("2.4.23", SERVER_WITHOUT_BM25),
        ("v2.5.0", SERVER),
        ("2.6.1-dev", SERVER),
        ("3.0", SERVER),
    ],
)
def test_the_layout_follows_from_the_version(version: str, layout: object) -> None:
    """BM25 is the server's own from 2.5 on."""
    assert server_layout(version) == layout


@pytest.mark.parametrize("version", ["2.2.16", "v2.3.4", "", "unknown"])
def test_a_server_that_is_too_old_or_names_none_is_refused(version: str) -> None:
    """Its arrays, or nothing about it, can be relied on."""
    with pytest.raises(VectorStoreUnavailable):
        server_layout(version)


def test_words_have_ids_that_fit_and_differ() -> None:
    """Signed 64 bits, the same on every run."""
    assert word_id("reset") == word_id("reset") != word_id("resets")
    assert all(-(2**63) <= word_id(f"w{i}") < 2**63 for i in range(1_000))


def test_a_row_carries_the_ids_of_its_distinct_words_where_the_gateway_scores() -> None:
    """And none where the server does."""
    written = row(terms=("a1", "b2", "a1"))
    entity = as_entity(written, SPACE, "r1", bm25=False)
    assert entity["term_ids"] == [word_id("a1"), word_id("b2")]
    assert "term_ids" not in as_entity(written, SPACE, "r1", bm25=True)
    with pytest.raises(InvariantViolated):
        as_entity(row(terms=tuple(f"w{i}" for i in range(4_097))), SPACE, "r1", bm25=False)


def test_a_seal_is_of_its_revision_and_of_no_tenant() -> None:
    """No query names an empty tenant or a negative class."""
    seal = seal_row(SPACE, "r1", bm25=False)
    assert (seal["tenant_id"], seal["kb_revision"]) == ("", "r1")
    assert seal["acl_class"] < 0
    assert seal["row_id"] in seal_filter("r1")
    assert seal["row_id"] not in seal_filter("r2")
