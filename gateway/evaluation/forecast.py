"""The forecast: what a load asks of each part, beside what was measured, as one record and as a table."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gateway.admission.capacity import Load, Part, bottleneck
from gateway.evaluation.demand import BULKHEADS, Measured, Sizes, parts_of

_MILLION = 1e6


@dataclass(frozen=True, slots=True)
class Prices:
    """Of a million tokens, in any currency."""

    input: float
    output: float

    def of(self, load: Load) -> float:
        """One generation."""
        return (load.input_tokens * self.input + load.output_tokens * self.output) / _MILLION


def forecast(
    load: Load, sizes: Sizes, *, shortage: float, prices: Prices | None = None, seen: Measured | None = None
) -> dict[str, Any]:
    """Everything as plain values. ``difference`` is that of the prediction from what was measured, as a share
    of the latter; rates are in the unit that their names end with.
    """
    parts = parts_of(load, sizes)
    first = bottleneck(parts, shortage)
    found: dict[str, Any] = {
        "load": asdict(load),
        "processes": sizes.processes,
        "shortage": shortage,
        "generation_starts_per_s": _beside(load.starts, None if seen is None else seen.starts / seen.seconds),
        "model_tokens_per_min": _beside(load.tokens_per_minute, _tokens_seen(seen)),
        "parts": [_part(part, load, shortage, seen) for part in parts],
        "bottleneck": None if first is None else first.name,
        "serves_per_s": None if first is None else first.serves(shortage),
        "saturates_at_per_s": None if first is None else first.saturates_at,
    }
    if prices is not None:
        each = prices.of(load)
        found["cost"] = {
            "of_a_generation": each,
            "of_a_question": each * load.shares.started,
            "of_an_hour": each * load.starts * 3600,
        }
    if seen is not None:
        found["measured"] = {
            "seconds": seen.seconds,
            "processes": seen.processes,
            **{name: getattr(seen, name) for name in ("questions", "lost", "hits", "shared", "refused")},
            "generation_starts": seen.starts,
            "load": asdict(seen.load),
        }
    return found


def _beside(predicted: float, measured: float | None) -> dict[str, float | None]:
    difference = None if not measured else predicted / measured - 1
    return {"predicted": predicted, "measured": measured, "difference": difference}


def _tokens_seen(seen: Measured | None) -> float | None:
    return None if seen is None else seen.load.tokens * seen.starts / seen.seconds * 60


def _part(part: Part, load: Load, shortage: float, seen: Measured | None) -> dict[str, Any]:
    busy = seen.busy.get(part.name) if seen is not None and part.name in BULKHEADS else None
    return {
        "name": part.name,
        "unit": part.unit,
        "used": _beside(part.used(load.arrivals), busy),
        "pools": part.pools,
        "size": part.size,
        "needed": part.needed(load.arrivals, shortage),
        "serves_per_s": part.serves(shortage),
        "saturates_at_per_s": part.saturates_at,
    }


# -- for people ---------------------------------------------------------------------------------------

_SHARES = {
    "lost": "  lost: turned away, failed, left",
    "hits": "  of the others: told a kept answer",
    "shared": "  of the others: told another's answer",
    "refused": "  of the others: refused without a model",
}
_COSTS = {
    "of_a_generation": "cost of a generation",
    "of_a_question": "cost of a question",
    "of_an_hour": "cost of an hour",
}
_QUESTIONS = ("", "predicted", "measured", "difference")
_PARTS = ("", "in use", "measured", "difference", "there is", "needed", "serves", "used up at")
_WHOSE_LIMITS = (
    "limits of calls and tokens are this command's own settings and options: a gateway doesn't tell its own"
)


def text(found: Mapping[str, Any]) -> str:
    """Two tables, whose limits these are, and the bottleneck."""
    return "\n".join(
        [
            *_aligned(_QUESTIONS, _of_questions(found)),
            "",
            *_aligned(_PARTS, _of_parts(found)),
            *([_WHOSE_LIMITS] if "measured" in found else []),
            "",
            _verdict(found),
        ]
    )


def _of_questions(found: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    given, seen = found["load"], found.get("measured", {}).get("load")
    yield (
        "arrivals a second",
        _number(given["arrivals"]),
        "" if seen is None else _number(seen["arrivals"]),
        "",
    )
    for name, line in _SHARES.items():
        was = "" if seen is None else f"{seen['shares'][name]:.1%}"
        yield line, f"{given['shares'][name]:.1%}", was, ""
    yield "generation starts a second", *_beside_text(found["generation_starts_per_s"])
    yield "model tokens a minute", *_beside_text(found["model_tokens_per_min"])
    for name, cost in found.get("cost", {}).items():
        yield _COSTS[name], f"{cost:.4g}", "", ""


def _of_parts(found: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for part in found["parts"]:
        pools = f"{part['pools']} x " if part["pools"] > 1 else ""
        size = "no limit" if part["size"] is None else f"{pools}{_number(part['size'])}"
        yield (
            f"{part['name'].replace('_', ' ')}, {part['unit']}",
            *_beside_text(part["used"]),
            size,
            f"{pools}{_number(part['needed'])}",
            _number(part["serves_per_s"]),
            _number(part["saturates_at_per_s"]),
        )


def _verdict(found: Mapping[str, Any]) -> str:
    if found["bottleneck"] is None:
        return "nothing that was looked at has a limit"
    name = found["bottleneck"].replace("_", " ")
    serves, full = _number(found["serves_per_s"]), _number(found["saturates_at_per_s"])
    return f"bottleneck: {name}, serves {serves} questions a second, used up at {full}"


def _beside_text(pair: Mapping[str, float | None]) -> tuple[str, str, str]:
    difference = pair["difference"]
    beside = "" if difference is None else f"{difference:+.1%}"
    return _number(pair["predicted"]), _number(pair["measured"]), beside


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _aligned(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> Iterator[str]:
    """Names to the left, numbers to the right."""
    lines = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for name, *cells in lines:
        right = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        yield "  ".join([name.ljust(widths[0]), *right]).rstrip()
