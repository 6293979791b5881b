"""What remains after a clean-up, why, and until when: sentences for the report."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Remainder:
    what: str
    why: str
    until: str


_AUDIT = Remainder(
    "audit entries",
    "they say who imported, deleted or revoked what, by its id and without its text",
    "kept as long as the catalog",
)
_JOURNAL = Remainder(
    "the journal's entry",
    "it keeps a restored backup from bringing this back",
    "as long as the oldest backup",
)
_BACKUPS = Remainder(
    "backups made before",
    "a backup is never changed; when one is restored, the journal has this done again",
    "the last of them is deleted",
)
_LOGS = Remainder(
    "logs",
    "they hold ids and codes, never text, questions or answers",
    "your log store's own retention",
)
_TRACES = Remainder(
    "traces of questions",
    "they are the words of those who asked; what they quoted is gone from them",
    "GATEWAY_TRACE_DAYS after each question, or until somebody erases a person's",
)
_TURNS = Remainder(
    "questions of conversations",
    "those that its passages have answered are gone; while nobody may see it none of them is used",
    "GATEWAY_CONVERSATION_HOURS after each question",
)
_REVOKED_TRACES = Remainder(
    "previews in traces of questions",
    "whoever reads a trace sees no passage of it that he may not see at that moment",
    "GATEWAY_TRACE_DAYS after each question, or until the document is deleted",
)
_UNTOLD = "whoever asks is told none that rests on what he may not see at that moment"
_THEIR_TIME = "GATEWAY_ANSWER_CACHE_TTL_S after each was made"
ANSWERS_NOT_KEPT = Remainder("cached answers", "not kept here", "")
ANSWERS_UNDER_WAY = Remainder("cached answers that were just being made", _UNTOLD, _THEIR_TIME)
ANSWERS_LEFT = Remainder("cached answers", _UNTOLD, _THEIR_TIME)
_NOT_KEPT = tuple(Remainder(what, "not kept here", "") for what in ("feedback", "evaluation copies"))
_CATALOG = Remainder(
    "source, address, author and hash of each version in the catalog",
    "a later import under the same source must not bring the deleted versions back",
    "kept as long as the catalog",
)
_WHY_SHARED: Mapping[str, tuple[str, str]] = {
    "originals": (
        "originals with the same bytes as another document's",
        "the other document is made of them",
    ),
    "chunk_files": ("chunk files", "something refers to them again"),
    "vector_files": (
        "vector files that also hold vectors of other documents' texts",
        "other documents have the same passages; a file goes with the last of them",
    ),
}


def after_deletion(shared: Mapping[str, int], uncounted: int, answers: Remainder) -> list[Remainder]:
    """``shared``: how many objects of each kind stay; ``uncounted``: revisions whose term statistics still
    count the document, as the file to count them by is lost; ``answers``: what is left of kept ones.
    """
    told = [
        Remainder(f"{count} {_WHY_SHARED[kind][0]}", _WHY_SHARED[kind][1], "those documents are deleted")
        for kind, count in sorted(shared.items())
        if count
    ]
    if uncounted:
        told.append(
            Remainder(
                f"word counts in {uncounted} releases", "the chunk file is lost", "the releases are reclaimed"
            )
        )
    return [*told, _CATALOG, _TRACES, _TURNS, answers, _AUDIT, _JOURNAL, _BACKUPS, _LOGS, *_NOT_KEPT]


def after_revocation(document_id: str | None, answers: Remainder) -> list[Remainder]:
    """Of one document, or of a whole knowledge base when None. Nothing is lost, so that a lift works."""
    why = "a revocation can be lifted; nobody is let at them, and no model gets them"
    until = "it is lifted, or the document is deleted" if document_id else "it is lifted"
    rows = "its rows in the vector store" if document_id is None else "its rows, moved to a class of nobody"
    kept = [Remainder(what, why, until) for what in (rows, "originals", "chunk files", "vector files")]
    return [*kept, _REVOKED_TRACES, _TURNS, answers, _AUDIT, _JOURNAL, _BACKUPS, _LOGS, *_NOT_KEPT]
