"""The figures of an overhead run, put together: middle and spread over the rounds, and the table."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Round = Mapping[str, Any]
Summary = Mapping[str, Mapping[str, float]]

_SERVERS = ("bare", "gateway")
#: figure of the summary, what it should be at most
AIMS = {"cpu_ratio": 3.0, "gateway.added_ms": 5.0, "gateway.rss_kb_per_stream": 60.0}


def added_ms(one: Round) -> list[float]:
    """For each question alone: time to its first token, less that of model, embedding and search."""
    first = one["one_by_one_first_token_ms"]
    model_ms = statistics.median(first["stub"])
    return [
        came - model_ms - stages["embed_ms"] - stages["retrieve_ms"]
        for came, stages in zip(first["gateway"], one["gateway_stages_ms"], strict=True)
    ]


def figures(one: Round) -> dict[str, float]:
    """Everything that the table shows of one round, one number each."""
    found: dict[str, float] = {}
    for server in _SERVERS:
        found |= {f"{server}.{name}": value for name, value in _flat(one["streaming"][server])}
        found[f"{server}.idle_cores"] = one["idle_cores"][server][0]
    for server, first in one["one_by_one_first_token_ms"].items():
        found[f"{server}.alone_first_token_ms"] = statistics.median(first)
    for stage in one["gateway_stages_ms"][0]:
        found[f"stage.{stage}"] = statistics.median(each[stage] for each in one["gateway_stages_ms"])
    found["gateway.added_ms"] = statistics.median(added_ms(one))
    found["cpu_ratio"] = found["gateway.cpu_us_per_token"] / found["bare.cpu_us_per_token"]
    return found


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def summary(rounds: Sequence[Round]) -> Summary:
    """Median, smallest and largest of each figure over the rounds."""
    each = [figures(one) for one in rounds]
    return {
        name: {
            "median": round(statistics.median(one[name] for one in each), 3),
            "min": round(min(one[name] for one in each), 3),
            "max": round(max(one[name] for one in each), 3),
        }
        for name in each[0]
    }


_ROWS = (
    ("CPU a token, µs", "cpu_us_per_token"),
    ("  its children's, µs", "children_cpu_us_per_token"),
    ("  the model stub's meanwhile, µs", "stub_cpu_us_per_token"),
    ("  the load's meanwhile, µs", "load_cpu_us_per_token"),
    ("cores used while streaming", "cores"),
    ("cores used idle (taken off above)", "idle_cores"),
    ("tokens delivered / said", "kept_up"),
    ("gap between tokens, ms p50", "gap_ms.p50"),
    ("  p95", "gap_ms.p95"),
    ("  p99", "gap_ms.p99"),
    ("first token while opening, ms p50", "first_token_ms.p50"),
    ("  p95", "first_token_ms.p95"),
    ("  p99", "first_token_ms.p99"),
    ("first token alone, ms p50", "alone_first_token_ms"),
    ("memory an open stream, kB", "rss_kb_per_stream"),
    ("  each of as many more, kB", "rss_kb_per_further_stream"),
)


def table(found: Mapping[str, Any]) -> str:
    """For the terminal: middle and spread of each figure, then the aims."""
    each: Summary = found["summary"]
    lines = [f"{'':36}{'bare forwarder':>26}{'gateway':>26}"]
    for title, name in _ROWS:
        lines.append(f"{title:36}" + "".join(f"{_shown(each[f'{s}.{name}']):>26}" for s in _SERVERS))
    lines.append(f"{'the model stub alone, ms p50':36}{_shown(each['stub.alone_first_token_ms']):>26}")
    lines.append("stages of a question alone, ms p50:")
    lines.append("  " + ", ".join(_stages(each)))
    lines.append(f"catalog statements a question: {found['statements_per_question']}")
    lines += [_aim(name, aim, each[name]) for name, aim in AIMS.items()]
    before, after = (found["load_average"][when][0] for when in ("before", "after"))
    lines.append(f"load average {before:.2f} -> {after:.2f}, {found['seconds']:.0f} s")
    return "\n".join(lines)


def _aim(name: str, aim: float, one: Mapping[str, float]) -> str:
    verdict = "met" if one["median"] <= aim else "MISSED"
    return f"{name:36}{_shown(one):>26}   aim: at most {aim:g}   {verdict}"


def _shown(one: Mapping[str, float]) -> str:
    return f"{one['median']:.4g} ({one['min']:.4g}-{one['max']:.4g})"


def _stages(each: Summary) -> Iterator[str]:
    for name, one in each.items():
        if name.startswith("stage."):
            yield f"{name.removeprefix('stage.').removesuffix('_ms')} {one['median']:.2f}"
