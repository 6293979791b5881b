"""The report: an evaluation's JSON as Markdown tables and plots, and nothing that isn't in it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gateway.evaluation.labelled import ANSWERABLE, NEAR, OUTSIDE
from gateway.evaluation.plots import Line, Plot, Point

#: in the order of the tables, with what is wanted of them
_FIGURES = (
    *("recall@1", "recall@5", "recall@10", "nDCG@10", "MRR", "zero results"),
    *("false refusals", "false acceptances", "near misses refused", "near misses caught"),
    *("answers with the gold string", "citations supported", "answers flagged"),
)
_DEPTHS = (1, 2, 3, 5, 10, 20, 50)

Report = Mapping[str, Any]


def markdown(found: Report) -> str:
    """Everything but the raw columns and the curves, which are plotted."""
    return "\n".join([*_head(found), "", *_figure_table(found), "", *_other_tables(found), ""])


def _head(found: Report) -> Iterator[str]:
    machine, versions = found["machine"], found["versions"]
    named = ", ".join(f"{package} {version}" for package, version in versions.items() if version)
    asked = "all questions" if found["sample"] is None else f"at most {found['sample']} questions a kind"
    yield f"`{found['command']}`"
    yield ""
    yield (
        f"Space `{found['space']}`, {found['gateway']} gateway, {asked}, {found['callers']} callers at once, "
        f"seed {found['seed']}, commit {found['commit'] or 'unknown'}, {found['seconds']:.0f} s."
    )
    yield (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}, Python {machine['python']}; "
        f"{named}. "
        f"Load average at the start {', '.join(f'{load:g}' for load in found['load_average'])}."
    )


def _figure_table(found: Report) -> Iterator[str]:
    sets = found["sets"]
    yield "| | " + " | ".join(f"{name}, all | {name}, held out" for name in sets) + " |"
    yield "|---|" + "---|---|" * len(sets)
    for name in _FIGURES:
        cells = [cell_of(one[part].get(name)) for one in sets.values() for part in ("figures", "held_out")]
        if any(cells):
            yield f"| {name} | " + " | ".join(cells) + " |"
    counts = ((str(sum(one["questions"].values())), "") for one in sets.values())
    yield "| questions asked | " + " | ".join(cell for pair in counts for cell in pair) + " |"


def cell_of(figure: Mapping[str, float] | None) -> str:
    """``.972 (.964-.979)``; empty where nothing was measured."""
    if figure is None:
        return ""
    value, low, high = (share(figure[name]) for name in ("value", "low", "high"))
    return f"{value} ({low}-{high})"


def share(value: float) -> str:
    return f"{value:.3f}".removeprefix("0") if value < 1 else f"{value:.2f}"


def _other_tables(found: Report) -> Iterator[str]:
    yield "| ms | n | p50 | p95 | p99 |"
    yield "|---|---|---|---|---|"
    for name, one in found["sets"].items():
        for stage, times in one["ms"].items():
            if times:
                cells = " | ".join(f"{times[key]:g}" for key in ("n", "p50", "p95", "p99"))
                yield f"| {name}: {stage} | {cells} |"
    if found.get("speed"):
        speed = found["speed"]
        for stage, times in speed["ms"].items():
            if times:
                cells = " | ".join(f"{times[key]:g}" for key in ("n", "p50", "p95", "p99"))
                asked = f"{speed['chunks']} passages, {speed['callers']} callers of one scope: {stage}"
                yield f"| {asked} | {cells} |"
        yield ""
        yield f"A second: {speed['per s']['search']:g} searches, {speed['per s']['answers']:g} answers."
    yield ""
    yield "| set | AUC outside | AUC near | reasons of refusals | failed requests |"
    yield "|---|---|---|---|---|"
    for name, one in found["sets"].items():
        aucs = [one["auc"].get(kind) for kind in (OUTSIDE, NEAR)]
        shown = [share(value) if value is not None else "" for value in aucs]
        yield f"| {name} | {shown[0]} | {shown[1]} | {_reasons(one)} | {_counted(one['errors']) or 'none'} |"
    yield ""
    yield from _rerank_table(found)
    yield "| set | mode | served by | common with auto in the first 10 | same order |"
    yield "|---|---|---|---|---|"
    for name, one in found["sets"].items():
        for mode, paths in one["modes"]["served_by"].items():
            pair = one["modes"]["overlap"].get(f"auto / {mode}")
            same = ["", ""] if pair is None else [share(pair["common"]), share(pair["same order"])]
            yield f"| {name} | {mode} | {_counted(paths)} | {same[0]} | {same[1]} |"


def _rerank_table(found: Report) -> Iterator[str]:
    """Which order was measured; evaluations of before don't say."""
    if not any("searches ranked by" in one for one in found["sets"].values()):
        return
    yield "| set | searches ranked by | reranks skipped, of searches and answers |"
    yield "|---|---|---|"
    for name, one in found["sets"].items():
        skipped = _counted(one["reranks skipped"]) or "none"
        yield f"| {name} | {_counted(one['searches ranked by'])} | {skipped} |"
    yield ""


def _reasons(one: Mapping[str, Any]) -> str:
    return "; ".join(f"{kind}: {_counted(reasons)}" for kind, reasons in one["reasons"].items() if reasons)


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def plots(found: Report) -> dict[str, str]:
    """File name -> SVG."""
    return {
        "gate.svg": _gate(found).svg(),
        "recall.svg": _recall(found).svg(),
    }


def _gate(found: Report) -> Plot:
    lines = []
    for name, one in found["sets"].items():
        for kind, points in one["curves"].items():
            figures = one["figures"]
            refused = figures["false refusals"]["value"]
            let_pass = figures["false acceptances"]["value"] if kind == OUTSIDE else 1 - _caught(figures)
            lines.append(Line(f"{name}, {kind}", points, [(refused, let_pass)]))
    return Plot(
        "The gate as its threshold moves; dots: the whole pipeline as it is",
        "answerable questions refused",
        "unanswerable questions answered",
        lines,
        x_most=0.4,
    )


def _caught(figures: Mapping[str, Any]) -> float:
    return float(figures["near misses caught"]["value"])


def _recall(found: Report) -> Plot:
    lines = []
    for name, one in found["sets"].items():
        if ANSWERABLE in one["raw"]:
            lines.append(Line(name, recall_points(one["raw"][ANSWERABLE]["rank"])))
    least = min((y for line in lines for _, y in line.points), default=0.0)
    return Plot(
        "Share of answerable questions whose passage is among the first k",
        "k",
        "recall",
        lines,
        x_most=float(_DEPTHS[-1]),
        y_least=np.floor(least * 10) / 10 if least < 1 else 0.9,
    )


def recall_points(ranks: Sequence[int]) -> list[Point]:
    places = np.array(ranks)
    return [(float(k), float(((places > 0) & (places <= k)).mean())) for k in _DEPTHS]
