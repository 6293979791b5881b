"""Citing: the citations of a finished answer, found without holding up the answers beside it."""

from collections.abc import Sequence
from dataclasses import replace

import anyio

from gateway.answer.citation import cite_all
from gateway.answer.evidence import Evidence
from gateway.answer.generation import Generated
from gateway.stream.protocol import CitedSource

#: of what is shorter the citations are found in less time than a thread costs others
_SHORT_CHARS = 2000


class Citing:
    """Reads long answers in a thread, one at a time: more would only take the interpreter from each other."""

    def __init__(self) -> None:
        self._one = anyio.CapacityLimiter(1)

    async def citations(self, generated: Generated, evidence: Sequence[Evidence]) -> tuple[CitedSource, ...]:
        """One for each number that is cited. Who is cancelled leaves at once; what was begun ends unheard."""
        by_number = {item.n: (item.chunk, *item.before, *item.after) for item in evidence}
        cited = {n: by_number[n] for n in generated.cited}
        if not cited or len(generated.text) <= _SHORT_CHARS:
            citations = cite_all(generated.text, cited)
        else:
            citations = await anyio.to_thread.run_sync(
                cite_all, generated.text, cited, abandon_on_cancel=True, limiter=self._one
            )
        if generated.sure:
            return citations
        return tuple(replace(citation, supported=False) for citation in citations)
