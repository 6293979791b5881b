"""What the overhead benchmark knows and asks, and the answer that the scripted model gives."""

import itertools
import re

KNOWLEDGE_BASE = "handbook"

_THINGS = (
    "badge",
    "bicycle",
    "catering",
    "expense",
    "laptop",
    "parking",
    "phone",
    "printer",
    "travel",
    "visitor",
)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")

DOCUMENTS = {
    f"{thing}.md": (
        f"# The {thing} policy\n\n"
        + "\n\n".join(
            f"## Requests on a {day}\n\nA {thing} request that arrives on a {day} is approved by the "
            f"facilities desk within {number + place} hours, and the limit for one {thing} request is "
            f"{100 * number + place} euros. The desk keeps the {thing} form of that {day} for two years."
            for place, day in enumerate(_DAYS, start=1)
        )
    )
    for number, thing in enumerate(_THINGS, start=2)
}


def question(number: int) -> str:
    """Each has its passage among the documents."""
    thing, day = _THINGS[number % len(_THINGS)], _DAYS[number // len(_THINGS) % len(_DAYS)]
    return f"What is the limit for a {thing} request that arrives on a {day}?"


#: each word holds one ``w``, by which the load counts tokens; one of them carries a citation
_SENTENCE = " now we know how two new rows allow slow answers when writers follow which row was shown[1]."


def tokens(count: int) -> list[str]:
    return list(itertools.islice(itertools.cycle(re.findall(r" \S+", _SENTENCE)), count))
