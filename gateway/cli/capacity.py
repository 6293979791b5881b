"""``capacity``: how many questions a gateway can serve, beside what a running one has served."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.admission.capacity import LEAST_SHORTAGE, Load
from gateway.cli.options import AsJson, exiting, notes, out, settings_with

if TYPE_CHECKING:
    from gateway.evaluation.demand import Measured, Sizes

# The parts take seconds to import: only a command that looks at them does so.

_WATCHED_S = 30.0
_MOST_SHORTAGE = 0.5
_COUNT = re.compile("[1-9][0-9]{0,8}")

Rate = Annotated[float | None, typer.Option("--arrivals", min=0, help="Questions a second.")]
Lost = Annotated[
    float | None,
    typer.Option("--lost", min=0, max=1, help="Share turned away, failed or gone before an answer."),
]
Hits = Annotated[
    float | None, typer.Option("--hits", min=0, max=1, help="Share of the others told a kept answer.")
]
Shared = Annotated[
    float | None,
    typer.Option(
        "--shared", min=0, max=1, help="Share of the others told what somebody else is having made."
    ),
]
Refusals = Annotated[
    float | None,
    typer.Option("--refusals", min=0, max=1, help="Share of the others refused without a model."),
]
EmbeddingS = Annotated[
    float | None, typer.Option("--embedding-seconds", min=0, help="Of one making, mean. So the next two.")
]
RetrievalS = Annotated[float | None, typer.Option("--retrieval-seconds", min=0)]
RerankS = Annotated[float | None, typer.Option("--rerank-seconds", min=0)]
GenerationS = Annotated[
    float | None, typer.Option("--generation-seconds", min=0, help="Of one generation, mean.")
]
AnswerS = Annotated[
    float | None,
    typer.Option("--answer-seconds", min=0, help="From a question to the end of its answer, mean of all."),
]
InputTokens = Annotated[float | None, typer.Option("--input-tokens", min=0, help="Of one generation, mean.")]
OutputTokens = Annotated[float | None, typer.Option("--output-tokens", min=0, help="The same.")]
Processes = Annotated[int | None, typer.Option("--processes", min=1, help="Web processes of the gateway.")]
Places = Annotated[
    list[str] | None,
    typer.Option(
        "--places", help="NAME=N of one process: sessions, embedding, retrieval, rerank, generation."
    ),
]
TokensPerMinute = Annotated[
    int | None,
    typer.Option("--tokens-per-minute", min=1, help="Of the model (GATEWAY_MODEL_TOKENS_PER_MINUTE)."),
]
TenantShare = Annotated[
    float, typer.Option("--tenant-share", min=0, max=1, help="Of the tenant that asks most.")
]
InputPrice = Annotated[float | None, typer.Option("--input-price", min=0, help="Of a million tokens.")]
OutputPrice = Annotated[float | None, typer.Option("--output-price", min=0, help="Of a million tokens.")]
Shortage = Annotated[
    float, typer.Option("--shortage", help="Share of moments in which a part may be too small.")
]
Urls = Annotated[
    list[str] | None, typer.Option("--url", help="A running process, watched for --seconds. Each of several.")
]
Seconds = Annotated[
    float | None, typer.Option("--seconds", help="How long to watch (30), or what lies between the files.")
]
Before = Annotated[
    list[Path] | None, typer.Option("--before", exists=True, dir_okay=False, help="A saved /metrics.")
]
After = Annotated[
    list[Path] | None, typer.Option("--after", exists=True, dir_okay=False, help="The same process, later.")
]


def add_commands(app: typer.Typer) -> None:
    app.command()(exiting(capacity))


def capacity(
    arrivals: Rate = None,
    lost: Lost = None,
    hits: Hits = None,
    shared: Shared = None,
    refusals: Refusals = None,
    embedding_seconds: EmbeddingS = None,
    retrieval_seconds: RetrievalS = None,
    rerank_seconds: RerankS = None,
    generation_seconds: GenerationS = None,
    answer_seconds: AnswerS = None,
    input_tokens: InputTokens = None,
    output_tokens: OutputTokens = None,
    processes: Processes = None,
    places: Places = None,
    tokens_per_minute: TokensPerMinute = None,
    tenant_share: TenantShare = 1.0,
    input_price: InputPrice = None,
    output_price: OutputPrice = None,
    shortage: Shortage = 0.01,
    url: Urls = None,
    seconds: Seconds = None,
    before: Before = None,
    after: After = None,
    as_json: AsJson = False,
) -> int:
    """Predict what a load asks of each part: Little's law for places, tokens a minute for the model.

    What isn't given is measured, where --url or --before and --after name a running gateway. Sizes are
    --places, then that gateway's, then those of the settings (GATEWAY_GENERATION_CONCURRENCY, ...). Limits of
    calls and tokens (GATEWAY_MODEL_*, GATEWAY_QUOTA_*) are those of this command's own settings.

    Shares are of what those before them leave, so no question is in two: generation starts = arrivals
    x (1 - lost) x (1 - hits) x (1 - shared) x (1 - refusals). In use: the mean. Needed: what is enough in
    all moments but --shortage of them. Serves: arrivals a second for which what there is is enough so.
    Used up at: arrivals a second at which the mean is all there is.
    """
    from gateway.evaluation.forecast import Prices, forecast, text

    inputs = {
        "arrivals": arrivals,
        "embedding_s": embedding_seconds,
        "retrieval_s": retrieval_seconds,
        "rerank_s": rerank_seconds,
        "generation_s": generation_seconds,
        "answer_s": answer_seconds,
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
    }
    shares = {"lost": lost, "hits": hits, "shared": shared, "refused": refusals}
    _check([*inputs.values(), *shares.values(), seconds, input_price, output_price, tenant_share], shortage)
    chosen = _places(places or [])
    seen = _seen(url or [], before or [], after or [], seconds)
    load = _load(seen, _given(inputs), _given(shares))
    sizes = replace(_sizes(seen, chosen, processes), tenant_share=tenant_share)
    if tokens_per_minute is not None:
        sizes = replace(sizes, model=replace(sizes.model, tokens=tokens_per_minute))
    prices = None
    if input_price is not None or output_price is not None:
        prices = Prices(input_price or 0.0, output_price or 0.0)
    found = forecast(load, sizes, shortage=shortage, prices=prices, seen=seen)
    out.print(json.dumps(found) if as_json else text(found), markup=False)
    return 0


def _check(amounts: Sequence[float | None], shortage: float) -> None:
    if not all(amount is None or math.isfinite(amount) for amount in amounts):
        raise typer.BadParameter("an amount is a finite number")
    if not LEAST_SHORTAGE <= shortage <= _MOST_SHORTAGE:
        raise typer.BadParameter(f"--shortage is at least {LEAST_SHORTAGE:g} and at most {_MOST_SHORTAGE}")


def _given(options: Mapping[str, float | None]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _places(given: Sequence[str]) -> dict[str, float]:
    from gateway.evaluation.demand import BULKHEADS

    found: dict[str, float] = {}
    for one in given:
        name, _, number = one.partition("=")
        if name not in BULKHEADS or not _COUNT.fullmatch(number):
            raise typer.BadParameter(f"--places is NAME=N, NAME one of {', '.join(BULKHEADS)}")
        found[name] = int(number)
    return found


def _seen(
    urls: Sequence[str], before: Sequence[Path], after: Sequence[Path], seconds: float | None
) -> "Measured | None":
    """What was measured; None when nobody said where."""
    if urls and (before or after):
        raise typer.BadParameter("give --url, or --before and --after")
    if len(before) != len(after):
        raise typer.BadParameter("each --before has its --after, in the same order")
    if not urls and not before:
        if seconds is not None:
            raise typer.BadParameter("--seconds goes with --url, or with --before and --after")
        return None
    if seconds is None and before:
        raise typer.BadParameter("--seconds says how long it is from --before to --after")
    if seconds is not None and seconds <= 0:
        raise typer.BadParameter("--seconds is above 0")

    from gateway.evaluation.demand import measured
    from gateway.evaluation.watching import saved, watched

    seconds = seconds or _WATCHED_S
    if urls:
        notes.print(f"watching for {seconds:g} seconds: {', '.join(urls)}", markup=False)
        return measured(*watched(urls, seconds))
    return measured(saved(before, after), seconds)


def _load(seen: "Measured | None", inputs: dict[str, Any], shares: dict[str, Any]) -> Load:
    """What was measured, and on top of it what was given."""
    if seen is None and "arrivals" not in inputs:
        raise typer.BadParameter(
            "give --arrivals, or a gateway to measure with --url or --before and --after"
        )
    load = Load(arrivals=0.0) if seen is None else seen.load
    return replace(load, **inputs, shares=replace(load.shares, **shares))


def _sizes(seen: "Measured | None", chosen: Mapping[str, float], processes: int | None) -> "Sizes":
    from gateway.evaluation.demand import sizes_of, with_places

    known = 1 if seen is None else seen.processes
    sizes = sizes_of(settings_with(), processes or known)
    return with_places(sizes, {**(seen.places if seen is not None else {}), **chosen})
