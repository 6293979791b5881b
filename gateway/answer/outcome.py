"""The outcome of one making: how an answer opens, and how it ends. Nothing in it belongs to one asker."""

from dataclasses import dataclass

from gateway.access.authorizer import DocumentRef
from gateway.stream.protocol import AnswerStatus, CitedSource, Searched, Source, Usage


@dataclass(frozen=True, slots=True)
class Opening:
    """What stands before the first word. ``documents`` are those of every passage that was found for it, be
    it cited or not, and of a refusal too: it says how many there are, and which words none of them has.
    ``shared`` is False where a search found what depends on who asked.
    """

    model: str
    sources: tuple[Source, ...]
    documents: frozenset[DocumentRef]
    shared: bool = True


@dataclass(frozen=True, slots=True)
class Ending:
    """What stands behind the last word. ``reasons`` are those of a refusal, which has no citations;
    ``unkept`` says why nobody else may get this answer later, '' when somebody may.
    """

    reasons: tuple[str, ...]
    citations: tuple[CitedSource, ...]
    usage: Usage
    searched: Searched | None = None
    unkept: str = ""

    @property
    def status(self) -> AnswerStatus:
        return AnswerStatus.REFUSED_NO_EVIDENCE if self.reasons else AnswerStatus.ANSWERED


def rests_on(opening: Opening, ending: Ending) -> frozenset[DocumentRef]:
    """The documents of the evidence, cited or not; none of a refusal."""
    sources = () if ending.reasons else opening.sources
    return frozenset(DocumentRef(source.document_id, source.document_version) for source in sources)


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """A whole answer, or a refusal, as it may be told again. ``made_at`` is in seconds since the epoch."""

    opening: Opening
    text: str
    ending: Ending
    made_at: float
