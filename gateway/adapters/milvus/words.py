"""Words: BM25 for servers that have none, scored here over the rows that hold a question's words.

Rows carry the ids of their distinct words, and the filter finds those that hold any of the asked ones.
Only rows the caller may see are read or counted, so no score tells of hidden passages.

How many rows one question may pull over is bounded. When more match, the ones read are a sample (row ids
are hashes), from which the rarer words are told; rows that hold those are read as well, and the common
words count where they occur in them. Then the frequencies of common words are estimates.

The formula is Okapi BM25 (Robertson et al., TREC-3) with Lucene's positive idf; the average length is
that of the rows read.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from anyio import to_thread

from gateway.adapters.milvus.filter import literal
from gateway.adapters.milvus.reading import Reading
from gateway.adapters.milvus.rows import word_id
from gateway.retrieval.bm25 import saturated

#: rows one question may read the words of, at most twice
_ROWS = 500

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Matched:
    """Rows' words by row id, and in how many permitted rows each asked word occurs."""

    texts: Mapping[str, Sequence[str]]
    frequencies: Mapping[str, float]


async def search_words(
    reading: Reading, scope: str, words: Sequence[str], fields: list[str], limit: int
) -> list[tuple[dict[str, Any], float]]:
    """The ``limit`` best rows under the filter ``scope``, each with its score, best first."""
    matched, passages = await _both(_matched(reading, scope, words), reading.count(scope))
    # hundreds of rows take tens of milliseconds, which every stream of this process would wait for
    scores = await to_thread.run_sync(bm25, words, matched.texts, matched.frequencies, passages)
    best = sorted(scores, key=lambda row_id: (-scores[row_id], row_id))[:limit]
    if not best:
        return []
    chosen = ", ".join(map(literal, best))
    rows = await reading.query(f"{scope} and row_id in [{chosen}]", fields, len(best))
    return [(row, scores[row["row_id"]]) for row in rows]


async def _matched(reading: Reading, scope: str, words: Sequence[str]) -> _Matched:
    texts = await _texts(reading, f"{scope} and {_holding('any', words)}")
    asked = frozenset(words)
    seen = Counter(word for text in texts.values() for word in asked.intersection(text))
    if len(texts) < _ROWS:
        return _Matched(texts, seen)
    matching = await reading.count(f"{scope} and {_holding('any', words)}")
    frequencies = {word: seen[word] * matching / len(texts) for word in words}
    more = await _texts(reading, f"{scope} and {_rarer(words, frequencies)}")
    read = texts | more
    # a word that the sample hadn't met: what was read since is all there is of it, or a lower bound
    met = Counter(word for text in read.values() for word in asked.intersection(text))
    return _Matched(read, {word: max(frequencies[word], met[word]) for word in words})


def _rarer(words: Sequence[str], frequencies: Mapping[str, float]) -> str:
    """Rows with any of the rarest words that fit into what may be read; else those with all words."""
    rare: list[str] = []
    expected = 0.0
    for word in sorted(words, key=lambda word: (frequencies[word], word)):
        expected += frequencies[word]
        if expected > _ROWS:
            break
        rare.append(word)
    return _holding("any", rare) if rare else _holding("all", words)


def _holding(how: str, words: Sequence[str]) -> str:
    return f"array_contains_{how}(term_ids, [{', '.join(str(word_id(word)) for word in words)}])"


async def _texts(reading: Reading, expression: str) -> dict[str, Sequence[str]]:
    rows = await reading.query(expression, ["row_id", "terms"], _ROWS)
    return {row["row_id"]: row["terms"].split() for row in rows}


def bm25(
    words: Sequence[str],
    texts: Mapping[str, Sequence[str]],
    frequencies: Mapping[str, float],
    passages: int,
) -> dict[str, float]:
    """Positive scores by row id; ``passages`` is how many there are to choose from."""
    average = sum(map(len, texts.values())) / len(texts) if texts else 0.0
    idf = {
        # a count and an estimate, made at two moments, may disagree
        word: math.log(1 + (max(0.0, passages - seen) + 0.5) / (seen + 0.5))
        for word in words
        if (seen := frequencies.get(word, 0)) > 0
    }
    asked = frozenset(idf)
    scores: dict[str, float] = {}
    for row_id, text in texts.items():
        counts = Counter(filter(asked.__contains__, text))
        if not counts:
            continue
        length = len(text) / average
        scores[row_id] = sum(idf[word] * saturated(count, length) for word, count in counts.items())
    return scores


async def _both(one: Awaitable[S], other: Awaitable[T]) -> tuple[S, T]:
    """Side by side; when one fails or the caller is cancelled, the other ends as well."""
    tasks = asyncio.ensure_future(one), asyncio.ensure_future(other)
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
