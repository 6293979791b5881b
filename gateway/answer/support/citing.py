"""Citing: the citations of a finished answer, found without holding up the answers beside it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import anyio

from gateway.answer.calls.generation import Generated
from gateway.answer.citation import cite_all, uncited
from gateway.answer.evidence import Evidence
from gateway.retrieval.chunk import Chunk
from gateway.stream.protocol import CitedSource

#: of what is shorter the citations are found in less time than a thread costs others
_SHORT_CHARS = 2000


@dataclass(frozen=True, slots=True)
class Cited:
    """``uncited`` counts the sentences that no marker stands behind."""

    sources: tuple[CitedSource, ...]
    uncited: int


class Citing:
    """Reads long answers in a thread, one at a time: more would only take the interpreter from each other."""

    def __init__(self) -> None:
        self._one = anyio.CapacityLimiter(1)

    async def citations(self, generated: Generated, evidence: Sequence[Evidence]) -> Cited:
        """One for each number that is cited. Who is cancelled leaves at once; what was begun ends unheard."""
        by_number = {item.n: (item.chunk, *item.before, *item.after) for item in evidence}
        used = {n: by_number[n] for n in generated.cited}
        if len(generated.text) <= _SHORT_CHARS:
            cited = _read(generated.text, used)
        else:
            cited = await anyio.to_thread.run_sync(
                _read, generated.text, used, abandon_on_cancel=True, limiter=self._one
            )
        if generated.sure:
            return cited
        return replace(cited, sources=tuple(replace(source, supported=False) for source in cited.sources))


def _read(answer: str, used: Mapping[int, Sequence[Chunk]]) -> Cited:
    return Cited(cite_all(answer, used), uncited(answer))
