"""The figures of a run of repeated questions: what was predicted beside what three sides have counted."""

from collections.abc import Mapping
from typing import Any

from gateway.evaluation.forecast import text
from loadtest.driver_record import load_line

#: what generation starts may be off by
STARTS_AIM = 0.02


def checks(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What must hold for the run to count: ``what``, ``aim`` and whether it was ``met``."""
    measured, clients = found["capacity"]["measured"], found["clients"]
    starts = found["capacity"]["generation_starts_per_s"]
    off = abs(starts["predicted"] - starts["measured"]) / starts["measured"] if starts["measured"] else 1.0
    asked, cached, calls = measured["questions"], measured["hits"], measured["generation_starts"]
    return [
        _check(f"generation starts off by {off:.2%}", f"at most {STARTS_AIM:.0%}", off <= STARTS_AIM),
        _check(f"{asked:g} questions counted", f"{clients['asked']} asked", asked == clients["asked"]),
        _check(f"{cached:g} hits counted", f"{clients['cached']} at clients", cached == clients["cached"]),
        _check(
            f"{calls:g} generations counted",
            f"{found['model_calls']} at the model",
            calls == found["model_calls"],
        ),
        _check("the driver was in time", "it was", bool(found["driver"]["valid"])),
    ]


def _check(what: str, aim: str, met: bool) -> dict[str, Any]:
    return {"what": what, "aim": aim, "met": met}


def table(found: Mapping[str, Any]) -> str:
    mix, clients = found["mix"], found["clients"]
    outcomes = ", ".join(f"{name} {n}" for name, n in found["driver"]["outcomes"].items() if n)
    return "\n".join(
        [
            f"{clients['asked']} questions in {mix['seconds']:g} s, {mix['repeated']:.0%} of them repeated; "
            f"kept answers in {found['store']}, seed {mix['seed']}",
            f"outcomes: {outcomes}; told again {clients['cached']}, distinct questions answered "
            f"{clients['distinct']}, model calls {found['model_calls']}",
            *(f"{name}: {_counts(counts)}" for name, counts in found["cache"].items()),
            "",
            text(found["capacity"]),
            "",
            "places in use, watched each half second, beside arrivals x time:",
            *(_place(part) for part in found["watched"]["parts"] if part["used"]["measured"] is not None),
            "",
            *(f"{one['what']:40} aim: {one['aim']:20} {_met(one)}" for one in found["checks"]),
            load_line(found),
        ]
    )


def _counts(counts: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {count:g}" for name, count in counts.items()) or "none"


def _place(part: Mapping[str, Any]) -> str:
    used = part["used"]
    return f"  {part['name']:12}{used['predicted']:>8.2f} predicted{used['measured']:>8.2f} seen"


def _met(one: Mapping[str, Any]) -> str:
    return "met" if one["met"] else "MISSED"
