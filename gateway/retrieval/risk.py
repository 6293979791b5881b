"""Risk markers: what a passage may be marked with, and what the policy makes of it."""

import re
from collections.abc import Collection, Iterable
from enum import StrEnum

#: nobody has approved the version yet; says nothing about its text
UNREVIEWED = "unreviewed"
#: the text holds phrases that read like orders to a model, or characters that nobody sees
INJECTION_LIKE = "injection-like"
#: its importer says that nobody may rely on it before a person has looked at it
HIGH_RISK = "high-risk"
#: a person has rejected the same bytes in this knowledge base, and nobody has approved this version yet
REJECTED_BEFORE = "rejected-before"

#: what a marker is made of: a name to compare, and no room for a sentence in somebody's prompt
MARKER = re.compile(r"[a-z0-9-]{1,32}")

#: what a person said of a version; until then it is unreviewed
APPROVED = "approved"
REJECTED = "rejected"

#: a version so marked enters a release only once a person has approved it
NEEDS_APPROVAL = frozenset({HIGH_RISK, INJECTION_LIKE, REJECTED_BEFORE})


class RiskPolicy(StrEnum):
    """What becomes of a passage with risk markers."""

    ALLOW = "allow"  # nothing
    MARK = "mark"  # whoever sees it sees its markers
    WITHHOLD = "withhold"  # and it never reaches a model

    def shown(self, markers: tuple[str, ...]) -> tuple[str, ...]:
        """The markers that are told of a passage."""
        return () if self is RiskPolicy.ALLOW else markers

    def withholds(self, markers: Collection[str]) -> bool:
        """Whether a passage with these markers is kept from models.

        ``unreviewed`` alone doesn't: else nothing would be answered before somebody has read everything.
        """
        return self is RiskPolicy.WITHHOLD and any(marker != UNREVIEWED for marker in markers)


def needs_approval(markers: Collection[str]) -> bool:
    """Whether a version with these markers waits for a person."""
    return not NEEDS_APPROVAL.isdisjoint(markers)


def told_to_models(markers: Iterable[str]) -> tuple[str, ...]:
    """Without what was stored before markers had a form: it may be any text of an importer's."""
    return tuple(marker for marker in markers if MARKER.fullmatch(marker))


def merged(given: Collection[str], detected: Collection[str]) -> tuple[str, ...]:
    """What the importer said and what was found, each once, in an order of its own."""
    return tuple(sorted({*given, *detected}))


def markers_of(kept: Collection[str], approval: str) -> tuple[str, ...]:
    """A version's markers as its passages carry them: the approval can change, what is in the text can't."""
    if approval == APPROVED:
        return tuple(sorted(frozenset(kept) - {UNREVIEWED, REJECTED_BEFORE}))
    return tuple(sorted({*kept, UNREVIEWED}))
