"""Modes: which of two paths reads the vectors, and what becomes of a question when the first one fails.

Both paths take the same ScopedQuery; neither can be asked without one. ``auto`` tries the framework's path
first where it may help, and falls back to our own on a part that is missing, an error or half of the time
gone, never after an error of scope or filter: those are defects or bad input, and a second try would only
hide them.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from gateway.context import Deadline
from gateway.errors import DeadlineExceeded, InvalidField, VectorStoreUnavailable
from gateway.retrieval.embedding import Vector
from gateway.retrieval.query import ScopedQuery
from gateway.retrieval.store import Hit

#: reasons of a fallback beside the codes of errors
NOT_INSTALLED = "not_installed"
EMBEDDED_STORE = "embedded_store"

_REST_S = 5.0


class Mode(StrEnum):
    """How a question's vectors are read: by the framework, by ourselves, or by whichever can."""

    AUTO = "auto"
    VECTORSTORE = "vectorstore"
    SDK = "sdk"


class DenseReader(Protocol):
    """The part of a ChunkReader that a framework can do; everything said there holds."""

    async def dense(self, query: ScopedQuery, vector: Vector, limit: int, deadline: Deadline) -> list[Hit]:
        """Nearest first by cosine similarity, under the query's whole filter."""
        ...


@dataclass(frozen=True, slots=True)
class Served:
    """What was found, by which path, and why not by the other one where ``auto`` would have had it."""

    hits: list[Hit]
    by: Mode
    fallback: str | None = None


class DenseRoute:
    """Dense search in a mode. ``embedded`` says that the store is: there ``auto`` gains nothing from a
    framework, so it isn't even loaded. A path that failed is left alone by ``auto`` for ``rest_s``.
    """

    def __init__(
        self,
        sdk: DenseReader,
        vectorstore: DenseReader | None,
        *,
        embedded: bool = False,
        rest_s: float = _REST_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sdk = sdk
        self._vectorstore = vectorstore
        self._embedded = embedded
        self._rest_s = rest_s
        self._clock = clock
        self._resting: tuple[float, str] | None = None

    def expect(self, mode: Mode) -> None:
        """Raises InvalidField for a mode that isn't installed."""
        if mode is Mode.VECTORSTORE and self._vectorstore is None:
            raise InvalidField("the vectorstore mode is not installed here; use auto or sdk")

    async def search(
        self, mode: Mode, query: ScopedQuery, vector: Vector, limit: int, deadline: Deadline
    ) -> Served:
        """Raises what the path that was asked for raises; InvalidField when it isn't installed."""
        self.expect(mode)
        fallback = self._out_of_question() if mode is Mode.AUTO else None
        if self._vectorstore is None or mode is Mode.SDK or fallback is not None:
            return Served(await self._sdk.dense(query, vector, limit, deadline), Mode.SDK, fallback)
        if mode is Mode.VECTORSTORE:
            return Served(await self._vectorstore.dense(query, vector, limit, deadline), mode)
        try:
            hits = await self._vectorstore.dense(query, vector, limit, _half(deadline))
        except (VectorStoreUnavailable, DeadlineExceeded) as error:
            self._resting = (self._clock() + self._rest_s, error.code)
            return Served(await self._sdk.dense(query, vector, limit, deadline), Mode.SDK, error.code)
        return Served(hits, Mode.VECTORSTORE)

    def _out_of_question(self) -> str | None:
        """Why the first path isn't tried now; None when it is."""
        if self._embedded:
            return EMBEDDED_STORE
        if self._vectorstore is None:
            return NOT_INSTALLED
        if self._resting is not None and self._clock() < self._resting[0]:
            return self._resting[1]
        return None


def _half(deadline: Deadline) -> Deadline:
    """What the first path may take of the time, so that the second one has some as well."""
    return Deadline.after(deadline.remaining() * 1000 / 2)
