"""The page of an evaluation says what was measured, what was left out, and what is missed by how much."""

from collections import Counter
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gateway.evaluation import targets
from gateway.evaluation.gateways import Target
from gateway.evaluation.page import write_docs
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


def test_the_page_has_the_figures_of_an_index_check(tmp_path: Path) -> None:
    """Each index, case and number of callers with its recall, times and memory; filled into the page."""
    one = {"case": "1 %", "route": "dense", "p50": 12.4, "p95": 40.0, "p99": 60.0, "over_cap": 0.25}
    measured = {"recall": 0.991, "own_cpu_ms": [4.0, 6.0], "store_cpu_ms": [8.0, 8.0]}
    side = {
        "index": "IVF_FLAT",
        "server_version": "2.3.5",
        "written": {
            "rows": 1000,
            "rows_per_s": 900,
            "sealing_s": 3.0,
            "then_indexing_s": 4.0,
            "before": {"rss_mb": 200.0},
            "after": {"rss_mb": 900.0},
        },
        "usage": {"rss_mb": 800.0, "disk_mb": 1400.0},
        "cases": {"1 %": {"permitted": 10}},
        "summary": [{**one, **measured, "callers": 1}, {**one, **measured, "callers": 32, "p50": 150.0}],
        "ef_summary": [],
    }
    found = {
        "command": "python -m loadtest.index_check",
        "machine": {"cpu": "c", "cores": 2, "versions": {"milvus": "2.3.5"}},
        "load_average": {"before": [0.1], "after": [2.0]},
        "seconds": 60.0,
        "server IVF_FLAT": side,
    }
    (tmp_path / "retrieval.md").write_text("<!-- figures index -->\n<!-- end -->\n", "utf-8")
    write_docs(tmp_path, "index", found)
    page = (tmp_path / "retrieval.md").read_text("utf-8")
    times = "12 / 40 / 60, 25% | 150 / 40 / 60, 25%"
    assert f"| IVF_FLAT, server, 1,000 | 10 (1 %) | .991 | {times} | 5.0 + 8.0 |" in page
    assert "| IVF_FLAT, server, 1,000 | 900 | 3, 4 | 200, 900, 800 | 1,400 |" in page
    assert "By words" not in page
