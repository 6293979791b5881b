"""What an import has to say in the end: the failures by reason, with what to do about each."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from gateway.cli.folder import LeftOut, printable
from gateway.cli.following import Outcome
from gateway.cli.reasons import PASSED_OVER, advice, meaning

_NAMES_A_GROUP = 20


def failures(outcomes: Iterable[Outcome]) -> Iterator[str]:
    """A line for each reason, most frequent first, and one for each of its first files."""
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.outcome == "failed":
            groups[outcome.reason].append(outcome)
    for reason, group in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        todo = f"; {advice(reason)}" if advice(reason) else ""
        yield f"failed ({reason}, {len(group)}): {meaning(reason)}{todo}"
        yield from _named(sorted(group, key=lambda outcome: outcome.source))


def _named(group: Sequence[Outcome]) -> Iterator[str]:
    for outcome in group[:_NAMES_A_GROUP]:
        detail = f": {outcome.detail}" if outcome.detail else ""
        yield f"  {printable(outcome.source)}{printable(detail)}"
    if len(group) > _NAMES_A_GROUP:
        yield f"  … and {len(group) - _NAMES_A_GROUP} more; --json names all of them"


def passed_over(left_out: Iterable[LeftOut]) -> str:
    """One line, such as "Passed over: 5 (hidden: 3, empty: 2)."; empty when nothing was."""
    counts = Counter(each.reason for each in left_out)
    parts = [f"{PASSED_OVER[reason]}: {count}" for reason, count in counts.most_common()]
    return f"Passed over: {counts.total()} ({', '.join(parts)})." if parts else ""
