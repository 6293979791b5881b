"""Twins of the answer model and the embedder: scripted, deterministic, and held where a test says."""

import hashlib
import math
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field

import anyio
import anyio.lowlevel

from gateway.answer.model import ModelFinish, ModelPiece, ModelUsage, TextPiece
from gateway.answer.prompt import Prompt
from gateway.context import Deadline
from gateway.errors import DeadlineExceeded, GatewayError
from gateway.release.model import EmbeddingSpace
from gateway.retrieval.embedding import Vector


@dataclass
class Gate:
    """A place where a call waits: ``reached`` is set on arrival, ``release`` lets it go on."""

    reached: anyio.Event = field(default_factory=anyio.Event)
    release: anyio.Event = field(default_factory=anyio.Event)

    async def wait(self) -> None:
        self.reached.set()
        await self.release.wait()


class ScriptedModel:
    """Plays ``pieces`` for every call; a string is a TextPiece.

    ``hold`` and ``fail`` map a place to a Gate or an error: place -1 is before the headers, place i before
    piece i, place len(pieces) before the end. Without a ModelFinish of its own a script ends with
    ModelUsage (a token a piece) and ModelFinish("stop"), unless ``cut_short``.
    """

    def __init__(
        self,
        pieces: Sequence[str | ModelPiece] = (),
        *,
        name: str = "scripted",
        max_sensitivity: int = 2**31 - 1,
        hold: Mapping[int, Gate] | None = None,
        fail: Mapping[int, GatewayError] | None = None,
        cut_short: bool = False,
    ) -> None:
        self._pieces = [TextPiece(piece) if isinstance(piece, str) else piece for piece in pieces]
        ended = any(isinstance(piece, ModelFinish) for piece in self._pieces)
        if not ended and not cut_short:
            self._pieces += [ModelUsage(1, len(self._pieces), estimated=False), ModelFinish("stop")]
        self._name = name
        self._max_sensitivity = max_sensitivity
        self._hold = dict(hold or {})
        self._fail = dict(fail or {})
        #: calls begun, answered with headers, and left again
        self.called = 0
        self.opened = 0
        self.closed = 0
        #: pieces handed out, over all calls
        self.produced = 0
        self.prompts: list[Prompt] = []

    @property
    def name(self) -> str:
        return self._name

    @property
    def max_sensitivity(self) -> int:
        return self._max_sensitivity

    @asynccontextmanager
    async def stream(self, prompt: Prompt, deadline: Deadline) -> AsyncIterator[AsyncIterator[ModelPiece]]:
        """Raises what ``fail`` says, and DeadlineExceeded past the deadline and where a hold outlasts it."""
        self.called += 1
        self.prompts.append(prompt)
        try:
            await self._pass(-1, deadline)
            self.opened += 1
            async with aclosing(self._play(deadline)) as played:
                yield played
        finally:
            self.closed += 1

    async def _play(self, deadline: Deadline) -> AsyncGenerator[ModelPiece, None]:
        for place, piece in enumerate(self._pieces):
            await self._pass(place, deadline)
            self.produced += 1
            yield piece
        await self._pass(len(self._pieces), deadline)

    async def _pass(self, place: int, deadline: Deadline) -> None:
        stage = "first_token" if place <= 0 else "idle"
        deadline.budget(stage, math.inf)
        if place in self._hold:
            with anyio.move_on_after(deadline.remaining()) as scope:
                await self._hold[place].wait()
            if scope.cancelled_caught:
                raise DeadlineExceeded(stage)
        await anyio.lowlevel.checkpoint()
        if place in self._fail:
            raise self._fail[place]


class FixedEmbedder:
    """A unit vector from the hashes of a text's words: equal texts are equal, shared words are near.

    ``vectors`` fixes texts by hand; ``hold`` and ``error`` act on every call.
    """

    def __init__(
        self,
        *,
        space_id: str = "fixed-32-v1",
        dimension: int = 32,
        vectors: Mapping[str, Vector] | None = None,
        hold: Gate | None = None,
        error: GatewayError | None = None,
        max_sensitivity: int = 3,
    ) -> None:
        self._max_sensitivity = max_sensitivity
        self._space = EmbeddingSpace(space_id=space_id, model="fixed", dimension=dimension)
        self._vectors = dict(vectors or {})
        self._hold = hold
        self.error = error
        self.calls = 0

    @property
    def space(self) -> EmbeddingSpace:
        return self._space

    @property
    def max_sensitivity(self) -> int:
        return self._max_sensitivity

    async def embed(self, texts: Sequence[str], deadline: Deadline) -> list[Vector]:
        self.calls += 1
        deadline.budget("embedding", math.inf)
        if self._hold is not None:
            with anyio.move_on_after(deadline.remaining()) as scope:
                await self._hold.wait()
            if scope.cancelled_caught:
                raise DeadlineExceeded("embedding")
        await anyio.lowlevel.checkpoint()
        if self.error is not None:
            raise self.error
        return [self._vectors.get(text) or self._vector(text) for text in texts]

    def _vector(self, text: str) -> Vector:
        total = [0.0] * self._space.dimension
        for word, count in Counter(text.lower().split() or [""]).items():
            for place, value in enumerate(_direction(word, self._space.dimension)):
                total[place] += count * value
        length = sum(value * value for value in total) ** 0.5
        return tuple(value / length for value in total)


def _direction(word: str, dimension: int) -> list[float]:
    """Odd integers, so that no coordinate is zero; from SHAKE-256, so the same on every machine."""
    raw = hashlib.shake_256(word.encode()).digest(dimension)
    return [2.0 * byte - 255.0 for byte in raw]
