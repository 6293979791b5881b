"""``eval``: how well the gateway finds and refuses, in figures, and whether that has become worse."""

import contextlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli.options import exiting, notes

if TYPE_CHECKING:
    from gateway.evaluation.gateways import Target

# What it takes is imported by the parts that need it: a server and its models take seconds.

_FAILED = 1
#: what does something else than measuring, and all that it looks at
_ALONE = {"compare": {"compare"}, "calibrate": {"calibrate", "data"}}
#: options that mean nothing without the other one
_BESIDE = (
    *(("sample", "data"), ("callers", "data"), ("speed_chunks", "data")),
    *(("name", "data"), ("name", "write_docs"), ("token", "url"), ("kb", "url")),
)
_EITHER = (("url", "offline"), ("url", "speed_chunks"))

Data = Annotated[Path | None, typer.Option("--data", help="A folder of labelled sets (docs/retrieval.md).")]
GoldenCases = Annotated[Path | None, typer.Option("--golden", help="A folder of golden cases (eval/golden).")]
Out = Annotated[Path, typer.Option("--out", help="Where JSON, Markdown and plots go.")]
Docs = Annotated[Path | None, typer.Option("--write-docs", help="A docs folder whose page gets the figures.")]
Name = Annotated[str, typer.Option("--name", help="The name of the figures in the docs.")]
Calibration = Annotated[
    Path | None,
    typer.Option("--calibrate", help="Fit the gate of the models in force on --data; write its file."),
]
Compare = Annotated[
    tuple[Path, Path] | None, typer.Option("--compare", help="Two JSON files, before and after.")
]
Sample = Annotated[int | None, typer.Option("--sample", min=1, help="At most so many questions a kind.")]
Seed = Annotated[int, typer.Option("--seed")]
Callers = Annotated[int, typer.Option("--callers", min=1, max=64, help="How many ask at once.")]
Speed = Annotated[
    int, typer.Option("--speed-chunks", min=0, help="Time searches in a knowledge base of so many passages.")
]
Offline = Annotated[bool, typer.Option("--offline", help="In memory, without a server of its own.")]
At = Annotated[str | None, typer.Option("--url", help="A running gateway: it is read and never written.")]
Bearer = Annotated[str, typer.Option("--token", envvar="GATEWAY_TOKEN", show_default=False)]
Base = Annotated[str, typer.Option("--kb", help="What the running gateway is asked about.")]


def add_commands(app: typer.Typer) -> None:
    app.command("eval")(exiting(evaluate))


def evaluate(
    context: typer.Context,
    data: Data = None,
    golden: GoldenCases = None,
    out: Out = Path("evaluation"),
    write_docs: Docs = None,
    name: Name = "retrieval",
    calibrate: Calibration = None,
    compare: Compare = None,
    sample: Sample = None,
    seed: Seed = 7,
    callers: Callers = 4,
    speed_chunks: Speed = 0,
    offline: Offline = False,
    url: At = None,
    token: Bearer = "",
    kb: Base = "",
) -> int:
    """Measure ranking, gate and answers on labelled questions. Exit 1 = a case failed, or figures dropped."""
    _refuse_unused(context)
    if compare is not None:
        return _compare(*compare)
    if data is None and golden is None:
        raise typer.BadParameter("give --data, --golden or --compare")
    if calibrate is not None:
        if data is None:
            raise typer.BadParameter("--calibrate fits on --data")
        return _calibrate(data, calibrate)
    if url is not None and not (token and kb):
        raise typer.BadParameter("a running gateway needs --token and --kb")
    with _target(url, token, offline=offline, kb=kb) as target:
        code = 0
        if golden is not None:
            code = _golden(target, golden, out, write_docs, seed, kb)
        if data is not None:
            from gateway.evaluation.measuring import Choice

            choice = Choice(seed, sample, callers, speed_chunks=speed_chunks)
            _labelled(target, data, out, write_docs, name, choice, kb)
    return code


def _refuse_unused(context: typer.Context) -> None:
    """Raises BadParameter for options that would be passed over."""
    given = {name for name in context.params if _is_typed(context, name)}
    for command, its in _ALONE.items():
        if command in given and given - its:
            raise typer.BadParameter(f"{_flags([command])} goes without {_flags(given - its)}")
    for name, needed in _BESIDE:
        if name in given and needed not in given:
            raise typer.BadParameter(f"{_flags([name])} is of use beside {_flags([needed])} alone")
    for pair in _EITHER:
        if given.issuperset(pair):
            raise typer.BadParameter(f"give one of {_flags(pair)}")


def _is_typed(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _flags(names: Iterable[str]) -> str:
    return ", ".join(f"--{name.replace('_', '-')}" for name in sorted(names))


@contextlib.contextmanager
def _target(url: str | None, token: str, *, offline: bool, kb: str) -> Iterator["Target"]:
    from gateway.evaluation.gateways import offline_gateway, running_gateway, temporary_gateway

    if url is not None:
        yield running_gateway(url, token)
        return
    if offline:
        from gateway.observe.logging import configure_logging

        configure_logging("error")
    with offline_gateway() if offline else temporary_gateway() as target:
        yield target


def _golden(target: "Target", folder: Path, out: Path, docs: Path | None, seed: int, kb: str) -> int:
    from gateway.evaluation.golden import checked, fill_golden, markdown, read_golden
    from gateway.evaluation.page import write_docs, write_report

    golden = read_golden(folder)
    if target.kind != "running":
        fill_golden(target, golden)
    found = checked(target, golden, seed, kb)
    write_report(out, "golden", found, markdown)
    if docs is not None:
        write_docs(docs, "golden", found)
    print(markdown(found))
    return 0 if found["passed"] == found["cases"] else _FAILED


def _labelled(
    target: "Target", folder: Path, out: Path, docs: Path | None, name: str, choice: Any, kb: str
) -> None:
    from gateway.evaluation.labelled import read_sets
    from gateway.evaluation.measuring import evaluated
    from gateway.evaluation.page import write_docs, write_report
    from gateway.evaluation.report import markdown

    found = evaluated(target, read_sets(folder), choice, lambda text: notes.print(text, markup=False), kb)
    write_report(out, "evaluation", found, markdown)
    if docs is not None:
        write_docs(docs, name, found)
    print(markdown(found))


def _calibrate(data: Path, calibration: Path) -> int:
    from gateway.evaluation.gate_fit import main

    main(["--data", str(data), "--write", str(calibration)])
    return 0


def _compare(before: Path, after: Path) -> int:
    from gateway.evaluation.comparing import compared, table

    differences = compared(*(json.loads(path.read_text("utf-8")) for path in (before, after)))
    print(table(differences))
    return _FAILED if any(one.worse for one in differences) else 0
