"""Recombined: as many passages as one wants, made of the sentences of labelled ones and about as long."""

import html
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gateway.answer.support.sentences import split_sentences
from gateway.evaluation.filling import Document
from gateway.evaluation.labelled import LabelledSet
from gateway.ingest.chunking import DEFAULT_LIMITS
from gateway.ingest.document import Passage
from gateway.ingest.risk import detected_risk
from gateway.ingest.splitting import estimate_tokens
from gateway.ingest.tokens import most_tokens

_SECTIONS = 100
#: a longer sentence might leave no room for a second one
_LONGEST = DEFAULT_LIMITS.target // 3
#: a shorter section might share its passage with the next
_SHORTEST = DEFAULT_LIMITS.shared


@dataclass(frozen=True, slots=True)
class _Pool:
    """What one set has to give: its sentences, and how long its passages are, in estimated tokens."""

    sentences: tuple[str, ...]
    lengths: tuple[int, ...]

    @classmethod
    def of(cls, labelled: LabelledSet) -> "_Pool":
        texts = [passage.text for passage in labelled.passages]
        found = [sentence for text in texts for sentence in split_sentences(text)]
        return cls(
            tuple(sentence for sentence in found if _usable(sentence)),
            tuple(max(_SHORTEST, estimate_tokens(text)) for text in texts),
        )

    def section(self, rng: random.Random) -> str:
        """Sentences until it is about as long as one of the set's passages; fewer where it would be split."""
        wanted, text = rng.choice(self.lengths), ""
        while estimate_tokens(text) < wanted:
            longer = f"{text} {rng.choice(self.sentences)}".strip()
            too_long = estimate_tokens(text) + estimate_tokens(longer) > 2 * wanted
            if too_long or not _one_passage(longer):
                break
            text = longer
        return text


def recombined(sets: Sequence[LabelledSet], passages: int, rng: random.Random) -> Iterator[Document]:
    """Pages of many sections, each of which becomes one passage of sentences of one of the sets."""
    pools = [pool for pool in map(_Pool.of, sets) if pool.sentences]
    for first in range(0, passages, _SECTIONS):
        count = min(_SECTIONS, passages - first)
        sections = "".join(
            f"<h2>Section {place}</h2><p>{html.escape(pools[place % len(pools)].section(rng))}</p>"
            for place in range(first, first + count)
        )
        page = f"<html><head><title>Part {first}</title></head><body>{sections}</body></html>"
        yield Document(f"part-{first}.html", "text/html", page.encode())


def _usable(sentence: str) -> bool:
    """What looks like an injection would keep its page out of the release until somebody approves it."""
    risky = detected_risk("", "", [Passage("", sentence)])
    return estimate_tokens(sentence) <= _LONGEST and not risky


def _one_passage(text: str) -> bool:
    """Whether the splitter leaves it whole."""
    limits = DEFAULT_LIMITS
    return estimate_tokens(text) <= limits.target and most_tokens([text], limits.maximum) <= limits.maximum
