"""Index tables: what ``loadtest.index_check`` measured of vector indexes, its JSON as Markdown."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gateway.evaluation.report import share

#: by the names that the check gives its routes
_ROUTES = {"dense": "By vector", "words": "By words"}

Checked = Mapping[str, Any]


def is_index_check(found: Checked) -> bool:
    return bool(_sides(found))


def _sides(found: Checked) -> list[Checked]:
    """Each with its name."""
    return [
        {"name": key.split()[0], **side}
        for key, side in found.items()
        if isinstance(side, Mapping) and "ef_summary" in side
    ]


def markdown(found: Checked) -> str:
    """Recall, times, memory and what they were measured on."""
    sides = _sides(found)
    parts = [_head(found), *(_route(sides, route) for route in _ROUTES), _stored(sides), _efs(sides)]
    return "\n\n".join("\n".join(lines) for lines in map(list, parts) if lines) + "\n"


def _head(found: Checked) -> Iterator[str]:
    machine = found["machine"]
    named = ", ".join(f"{package} {version}" for package, version in machine["versions"].items())
    before, after = (f"{found['load_average'][when][0]:.1f}" for when in ("before", "after"))
    yield f"`{found['command']}`"
    yield ""
    yield (
        f"Commit {found.get('commit') or 'unknown'}, {found['seconds']:.0f} s. {machine['cpu']}, "
        f"{machine['cores']} cores for all of it; {named}. Load average {before} before, {after} after."
    )


def _route(sides: Sequence[Checked], route: str) -> list[str]:
    rows = [(side, one) for side in sides for one in side["summary"] if one["route"] == route]
    if not rows:
        return []
    callers = sorted({one["callers"] for _, one in rows})
    times = [f"{n} at once: ms p50 / p95 / p99, over 200" for n in callers]
    head = [
        "index, rows",
        "permitted",
        "recall@10" if route == "dense" else "agreement",
        *times,
        "CPU ms a read, alone: here + store",
    ]
    lines = [f"{_ROUTES[route]}:", "", f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for side in sides:
        mine = [one for one in side["summary"] if one["route"] == route]
        for case in dict.fromkeys(one["case"] for one in mine):
            lines.append(
                _row(side, case, {one["callers"]: one for one in mine if one["case"] == case}, callers)
            )
    return lines


def _row(side: Checked, case: str, by_callers: Mapping[int, Checked], callers: Sequence[int]) -> str:
    each = [by_callers[n] for n in sorted(by_callers)]
    first, least = each[0], min(one["recall"] for one in each)
    timed = [_times(by_callers[n]) if n in by_callers else "" for n in callers]
    cpu = f"{_middle(first['own_cpu_ms'])} + {_middle(first['store_cpu_ms'])}"
    name = f"{_name(side)}, {side['written']['rows']:,}"
    permitted = f"{side['cases'][case]['permitted']:,} ({case})"
    return f"| {' | '.join([name, permitted, share(least), *timed, cpu])} |"


def _times(one: Checked) -> str:
    return f"{one['p50']:.0f} / {one['p95']:.0f} / {one['p99']:.0f}, {one['over_cap']:.0%}"


def _middle(spread: Sequence[float]) -> str:
    """Of the least and most of the rounds."""
    return f"{(spread[0] + spread[1]) / 2:.1f}"


def _name(side: Checked) -> str:
    return f"{side.get('index', '')}, {side['name']}"


def _stored(sides: Sequence[Checked]) -> Iterator[str]:
    memory_head = "memory MB empty, filled, after the reads"
    yield f"| index, rows | rows/s written | sealed, then indexed after, s | {memory_head} | disk MB |"
    yield "|---|---|---|---|---|"
    for side in sides:
        wrote = side["written"]
        memory = [_of(usage, "rss_mb") for usage in (wrote["before"], wrote["after"], side["usage"])]
        spent = f"{_of(wrote, 'sealing_s')}, {_of(wrote, 'then_indexing_s')}"
        rate, disk = _of(wrote, "rows_per_s"), _of(side["usage"], "disk_mb")
        yield f"| {_name(side)}, {wrote['rows']:,} | {rate} | {spent} | {', '.join(memory)} | {disk} |"


def _of(usage: Mapping[str, float], name: str) -> str:
    """A question mark for what wasn't measured: a server of somebody else has no process to look at."""
    return f"{usage[name]:,.0f}" if name in usage else "?"


def _efs(sides: Sequence[Checked]) -> list[str]:
    rows = [one for side in sides for one in side["ef_summary"]]
    if not rows:
        return []
    head = ["HNSW, ef, a bare client", "recall@10", "ms p50 / p95"]
    lines = [f"| {' | '.join(head)} |", "|---|---|---|"]
    return lines + [
        f"| {one['case']}, ef {one['ef']} | {share(one['recall'])} | {one['p50']:.0f} / {one['p95']:.0f} |"
        for one in rows
    ]
