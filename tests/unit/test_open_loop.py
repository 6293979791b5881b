"""The open loop's schedule, its clients' manners and the figures it makes of them."""

import itertools
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from loadtest import client_events, driver_docs, open_loop
from loadtest.arrivals import Arrivals, schedule
from loadtest.client_manner import Phase
from loadtest.client_record import Ending, Record
from loadtest.open_loop_report import spread, summary, table
from loadtest.open_loop_run import DRIVER_EXHAUSTED
from loadtest.overhead_text import DOCUMENTS
from loadtest.scenarios import FILE, names, plan, questions, scenario

ANSWERED = Record(at=1.0, lag_ms=0.5, ending=Ending.ANSWERED, status=200, last_ms=400.0, first_delta_ms=50.0)
REJECTED = Record(at=1.0, lag_ms=0.5, ending=Ending.REJECTED, status=503, code="overloaded", last_ms=4.0)


def test_constant_arrivals_are_evenly_spaced() -> None:
    """The first one is due at the start, the last one before the end."""
    assert schedule(Arrivals.CONSTANT, rate=4, seconds=1.5, seed=1) == [0, 0.25, 0.5, 0.75, 1.0, 1.25]


def test_poisson_arrivals_are_the_same_for_the_same_seed() -> None:
    """And others for another seed."""
    first, again, other = (schedule(Arrivals.POISSON, 10, 5, seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_poisson_arrivals_have_the_asked_rate_and_the_spread_of_chance() -> None:
    """Over many: as many as rate times seconds, gaps whose deviation is their mean."""
    times = schedule(Arrivals.POISSON, rate=50, seconds=200, seed=3)
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert len(times) == pytest.approx(10_000, rel=0.03)
    assert deviation == pytest.approx(mean, rel=0.05)
    assert times == sorted(times)
    assert times[-1] < 200


def test_a_rate_of_nothing_is_no_schedule() -> None:
    """It would be one that never ends."""
    with pytest.raises(ValueError, match="above 0"):
        schedule(Arrivals.POISSON, rate=0, seconds=1, seed=1)


@pytest.mark.parametrize("name", names())
def test_every_scenario_of_the_file_makes_a_plan(name: str) -> None:
    """The same each time; its shares are those of the file."""
    chosen = scenario(name, seconds=60.0)
    clients = plan(chosen, questions())
    assert clients == plan(chosen, questions())
    assert len(clients) == pytest.approx(60 * chosen.rate, rel=0.1)
    leaving = [one for one in clients if one.manner.leaving is not None]
    staying = len(clients) - len(leaving)
    assert len(leaving) / len(clients) == pytest.approx(chosen.leaving, abs=0.05)
    slow = sum(one.manner.bytes_per_s is not None for one in clients)
    assert slow / max(1, staying) == pytest.approx(chosen.slow, abs=0.05)
    unanswerable = sum(one.question in questions().unanswerable for one in clients)
    assert unanswerable / len(clients) == pytest.approx(chosen.unanswerable, abs=0.05)


def test_those_who_leave_do_so_in_every_phase_and_way() -> None:
    """In about equal shares."""
    clients = plan(scenario("impatient", seconds=30.0), questions())
    ways = Counter((c.manner.leaving.phase, c.manner.leaving.how) for c in clients if c.manner.leaving)
    assert len(ways) == 3 * 2
    assert min(ways.values()) > len(clients) / 6 * 0.7
    assert Phase.ENDED not in {phase for phase, _ in ways}


def test_every_question_of_the_scenarios_is_about_a_document() -> None:
    """Those that are meant to have an answer."""
    text = " ".join(DOCUMENTS.values())
    for question in questions().answerable:
        words = question.removeprefix("What is the limit for ").removesuffix("?").split()
        thing, day = words[1], words[-1]
        assert f"{thing} request that arrives on a {day} is approved" in text


def test_events_are_told_apart_however_their_bytes_were_split() -> None:
    """Deltas without their text, comments not at all."""
    wire = (
        b': \n\nevent: meta\nid: 1\ndata: {"request_id": "r"}\n\n'
        b'event: delta\nid: 2\ndata: {"text": "x"}\n\n'
        b': \n\nevent: done\nid: 3\ndata: {"status": "ANSWERED"}\n\n'
    )
    expected = [("meta", {"request_id": "r"}), ("delta", {}), ("done", {"status": "ANSWERED"})]
    for size in range(1, len(wire)):
        events = client_events.Events()
        pieces = [wire[start : start + size] for start in range(0, len(wire), size)]
        assert [event for piece in pieces for event in events.feed(piece)] == expected


def test_a_spread_of_one_value_is_that_value() -> None:
    """And of none there is none."""
    assert spread([3.0, None]) == {"n": 1, "p50": 3.0, "p95": 3.0, "p99": 3.0, "max": 3.0}
    assert spread([None]) is None


def test_figures_count_every_outcome_with_its_codes() -> None:
    """Latencies are those of answers; a rejection's is its own."""
    records = [ANSWERED, ANSWERED, REJECTED, replace(ANSWERED, ending=Ending.LEFT, left=Phase.AFTER_META)]
    found = summary(records, seconds=2.0)
    assert found["outcomes"]["answered"] == 2
    assert found["outcomes"]["left"] == 1
    assert found["codes"]["rejected"] == {"overloaded": 1}
    assert found["left"] == {"after_meta": 1}
    assert found["answered"]["first_delta_ms"]["n"] == 2
    assert found["rejected_ms"]["max"] == 4.0
    assert found["goodput_per_s"] == 1.0
    assert "overloaded 1" in table(found)


def test_goodput_counts_only_answers_that_ended_in_its_time() -> None:
    """Neither those of the settling time nor those that came after the last arrival."""
    early, late = replace(ANSWERED, at=0.1), replace(ANSWERED, at=1.9)
    assert summary([early, ANSWERED, late], seconds=2.0, settle_s=1.0)["goodput_per_s"] == 1.0


def test_a_stream_that_broke_is_lost_and_one_that_its_client_left_is_not() -> None:
    """Nor is a question that was turned away."""
    broken = replace(ANSWERED, ending=Ending.TRUNCATED)
    failed = replace(ANSWERED, ending=Ending.ERROR)
    left = replace(ANSWERED, ending=Ending.LEFT)
    assert summary([broken, failed, left, REJECTED], seconds=2.0)["lost"] == 2


def test_a_run_whose_driver_was_late_is_not_valid() -> None:
    """Nor one whose driver ran out of descriptors; both say so."""
    late = [replace(ANSWERED, lag_ms=30.0)] * 5
    exhausted = [replace(ANSWERED, ending=Ending.UNREACHABLE, code=DRIVER_EXHAUSTED)]
    assert summary([ANSWERED], seconds=2.0)["valid"]
    for records, said in ((late, "was late"), (exhausted, "no descriptor"), ([], "nothing was asked")):
        found = summary(records, seconds=2.0)
        assert not found["valid"]
        assert said in found["invalid_because"][0]


def test_the_command_line_replaces_single_parts_of_a_scenario() -> None:
    """What isn't named stays as the file has it."""
    chosen = open_loop.chosen_scenario(open_loop.options(["--scenario", "office", "--rate", "3"]))
    assert chosen == replace(scenario("office"), rate=3)


def test_a_scenario_that_the_file_has_not_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """With the names of those it has."""
    with pytest.raises(SystemExit):
        open_loop.options(["--scenario", "none"])
    said = capsys.readouterr().err
    assert all(name in said for name in json.loads(FILE.read_text())["scenarios"])


def test_the_page_of_load_shows_the_figures_of_its_files() -> None:
    """`python -m loadtest.driver_docs` was run after the last benchmark."""
    page = driver_docs.PAGE.read_text()
    assert driver_docs.filled(page) == page


def test_a_figure_that_was_not_measured_is_told_as_such(tmp_path: Path) -> None:
    """And what stood there before goes."""
    page = "# Load\n<!-- figures overload -->\nold\n<!-- end -->\nafter\n"
    found = driver_docs.filled(page, tmp_path)
    assert found == "# Load\n<!-- figures overload -->\nNot run yet.\n<!-- end -->\nafter\n"


def test_a_section_without_a_table_is_a_mistake(tmp_path: Path) -> None:
    """Else a misspelt name would stay empty for ever."""
    with pytest.raises(KeyError):
        driver_docs.filled("<!-- figures nothing -->\n<!-- end -->", tmp_path)
