"""The page of an evaluation says what was measured, what was left out, and what is missed by how much."""

from collections import Counter
from typing import Any

import httpx2
import pytest

from gateway.evaluation import targets
from gateway.evaluation.gateways import Target
from gateway.evaluation.report import markdown
from gateway.evaluation.skips import MetricsUnreadable, rerank_skips

METRICS = """\
gateway_rerank_skips_total{reason="too_slow"} 3.0
gateway_rerank_skips_total{reason="overloaded"} 0.0
gateway_retrieval_fallbacks_total{reason="too_slow"} 9.0
"""


def target(status: int) -> Target:
    transport = httpx2.MockTransport(lambda _: httpx2.Response(status, text=METRICS))
    return Target("offline", "http://offline", lambda _: "token", transport)


def test_skips_are_counted_by_reason_from_the_metrics() -> None:
    """What was counted before a set is taken off; other counters of the same reasons aren't these."""
    found = rerank_skips(target(200))
    assert found == Counter(too_slow=3)
    assert dict(found - Counter(too_slow=1)) == {"too_slow": 2}
    with pytest.raises(MetricsUnreadable):
        rerank_skips(target(503))


def test_the_page_says_by_what_searches_were_ranked() -> None:
    """And nothing where an evaluation of before doesn't tell."""
    one = {
        "figures": {},
        "held_out": {},
        "questions": {"answerable": 150},
        "ms": {},
        "auc": {},
        "reasons": {},
        "errors": {},
        "modes": {"served_by": {}, "overlap": {}},
    }
    told = {**one, "searches ranked by": {"rerank": 148, "rrf": 2}, "reranks skipped": {"too_slow": 3}}
    head: dict[str, Any] = {
        "machine": {"cpu": "c", "cores": 2, "system": "s", "python": "3"},
        "versions": {},
        "sample": None,
        "command": "qa-gateway eval",
        "space": "s",
        "gateway": "temporary",
        "callers": 4,
        "seed": 7,
        "commit": "",
        "seconds": 1.0,
        "load_average": [],
    }
    assert "| small | rerank 148, rrf 2 | too_slow 3 |" in markdown({**head, "sets": {"small": told}})
    assert "ranked by" not in markdown({**head, "sets": {"small": one}})


def test_what_is_missed_is_said_in_words() -> None:
    """Of held-out articles alone, by how much, and whether more questions might tell otherwise."""
    held_out: dict[str, Any] = {
        "recall@5": {"value": 0.969, "low": 0.927, "high": 1.0},
        "MRR": {"value": 0.913, "low": 0.86, "high": 0.96},
        "false acceptances": {"value": 0.195, "low": 0.122, "high": 0.293},
    }
    told = targets.markdown({"sets": {"squad_en": {"figures": {}, "held_out": held_out}}})
    assert "- squad_en, recall@5: 0.969 where 0.97 is wanted, 0.001 off; with so few" in told
    assert "- squad_en, false acceptances: 0.195 where 0.10 is wanted, 0.095 off, which is more than" in told
    assert "MRR:" not in told
    good = {"recall@5": {"value": 0.98, "low": 0.9, "high": 1.0}}
    said = targets.markdown({"sets": {"squad_en": {"figures": {}, "held_out": good}}})
    assert "no target is missed" in said
