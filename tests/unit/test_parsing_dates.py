"""When a document holds, as it says itself: only what can't be misread counts."""

from datetime import UTC, datetime

import pytest

from gateway.access.authorizer import DocumentRef
from gateway.ingest import chunkfile
from gateway.ingest.building import build_document
from gateway.ingest.version import BuiltVersion, validity

Span = tuple[str | None, str | None]


def day(moment: int | None) -> str | None:
    return None if moment is None else datetime.fromtimestamp(moment, UTC).isoformat()[:16]


def stated(text: str, source: str = "policy.md") -> Span:
    built = build_document(source, "", text.encode())
    return day(built.valid_from), day(built.valid_until)


def at(date: str | None) -> str | None:
    return None if date is None else f"{date}T00:00"


@pytest.mark.parametrize(
    ("line", "start", "end"),
    [
        ("Effective date: 2026-01-01", "2026-01-01", None),
        ("**Effective Date:** January 1, 2026", "2026-01-01", None),
        ("Effective as of 1st March 2026.", "2026-03-01", None),
        ("Valid until 31 December 2026", None, "2027-01-01"),
        ("Expiry date: 5 Sept 2026", None, "2026-09-06"),
        ("Expires on 2028-02-29", None, "2028-03-01"),
        ("Valid from 1 January 2026 to 31 December 2026", "2026-01-01", "2027-01-01"),
        ("Validity period: 2026-01-01 – 2026-06-30", "2026-01-01", "2026-07-01"),
        ("Owner: HR Effective date: 2026-01-01 Version: 3", "2026-01-01", None),
        ("Effective: 2026/03/01 | Owner: HR", "2026-03-01", None),
        ("生效日期：2026年1月1日", "2026-01-01", None),
        ("有效期至：2026年12月31日", None, "2027-01-01"),
        ("有效期：2026年1月1日至2026年12月31日", "2026-01-01", "2027-01-01"),
        ("生效日期：2026-01-01，失效日期：2026-12-31", "2026-01-01", "2027-01-01"),
        ("本办法自2026年1月1日起施行。", "2026-01-01", None),
    ],
)
def test_a_clear_statement_near_the_top_counts(line: str, start: str | None, end: str | None) -> None:
    """A first day from its beginning, a last day up to its end."""
    assert stated(f"# Policy\n\n{line}\n\nThe rules follow here.\n") == (at(start), at(end))


@pytest.mark.parametrize(
    "line",
    [
        "Effective date: 01/02/2026",
        "Effective date: 2026-13-01",
        "Expires on 2026-02-30",
        "Effective from 1 January 2026, staff may choose.",
        "The contract is valid until 31 December 2026 for everyone.",
        "Not valid until: 2026-01-01",
        "Date: 2026-01-01",
        "Validity period: 2026-01-01",
        "Valid from 31 December 2026 to 1 January 2026",
        "Effective date: 2026-01-01\n\nEffective date: 2026-02-01",
        "Valid until 2026-01-01\n\nValid until 2026-02-01",
        "自2026年1月1日的会议以来，规则没有变化。",
        "```\nEffective date: 2026-01-01\n```",
        "Rules. " * 500 + "\n\nEffective date: 2026-01-01",
    ],
)
def test_everything_else_says_nothing(line: str) -> None:
    """Ambiguous, impossible, contradictory, about something else, in code, or far down."""
    assert stated(f"# Policy\n\n{line}\n\nThe rules follow here.\n") == (None, None)


@pytest.mark.parametrize(
    ("front", "start", "end"),
    [
        ("effective_date: 2026-01-01", "2026-01-01", None),
        ("valid-from: '2026-01-01'\nvalid-until: \"2026-12-31\"", "2026-01-01", "2027-01-01"),
        ("expires: 2026-06-30  # yearly", None, "2026-07-01"),
        ("valid_from: 2026-01-01T00:00:00Z", "2026-01-01", None),
        ("expires: soon", None, None),
        ("expires: 01/02/2026", None, None),
    ],
)
def test_front_matter_counts(front: str, start: str | None, end: str | None) -> None:
    """Its keys are labels already."""
    assert stated(f"---\ntitle: T\n{front}\n---\n\nThe rules.\n") == (at(start), at(end))


def test_front_matter_goes_before_the_text() -> None:
    """It is what a publishing system keeps up to date."""
    text = "---\nvalid_until: 2026-12-31\n---\n\nValid until 30 June 2026\n\nThe rules.\n"
    assert stated(text) == (None, at("2027-01-01"))


def test_a_table_of_properties_counts() -> None:
    """Policies begin with one more often than with a sentence."""
    page = (
        "<h1>Policy</h1><table><tr><td>Owner</td><td>HR</td></tr>"
        "<tr><td>Effective date</td><td>1 January 2026</td></tr></table><p>The rules.</p>"
    )
    assert stated(page, "policy.html") == (at("2026-01-01"), None)
    assert stated("Policy\n\nEffective date: 2026-01-01\n\nRules.", "policy.txt") == (at("2026-01-01"), None)


@pytest.mark.parametrize("source", ["contracts.csv", "policy.py", "policy.yaml"])
def test_tables_of_data_and_code_state_nothing_about_themselves(source: str) -> None:
    """A date in them is about something else."""
    assert stated("Valid until,2026-12-31\nEffective date: 2026-01-01,x\n", source) == (None, None)


def test_dates_survive_the_chunk_file() -> None:
    """And a file written before there were any is still read."""
    built = build_document("a.txt", "", b"Valid from 1 January 2026 to 31 December 2026\n\nThe rules.")
    assert None not in (built.valid_from, built.valid_until)
    assert chunkfile.load(chunkfile.dump(built)) == built
    old = b'{"title":"T","parser_version":"p","splitter_version":"s","passages":[]}'
    assert (chunkfile.load(old).valid_from, chunkfile.load(old).valid_until) == (None, None)


@pytest.mark.parametrize(
    ("given", "said", "holds"),
    [
        ((None, None), (10, 20), (10, 20)),
        ((5, None), (10, 20), (5, 20)),
        ((None, 30), (10, 20), (10, 30)),
        ((1, 2), (10, 20), (1, 2)),
        ((25, None), (10, 20), (25, None)),
        ((None, 5), (10, None), (None, 5)),
        ((None, None), (None, None), (None, None)),
    ],
)
def test_what_the_importer_gave_comes_first(
    given: tuple[int | None, int | None],
    said: tuple[int | None, int | None],
    holds: tuple[int | None, int | None],
) -> None:
    """And a statement that would leave no moment with it doesn't count."""
    built = BuiltVersion(DocumentRef("d", 1), "T", "p", "s", "k", (), "space", {}, *said)
    assert validity(*given, built) == holds
