"""``migrate`` and ``doctor``: what an operator runs before and beside the processes that serve."""

import asyncio
import json
import os
from typing import Annotated

import typer
from rich.table import Table

from gateway.cli.options import AsJson, DataDir, exiting, out, settings_with
from gateway.observe.logging import configure_logging

# The parts take seconds to import: only a command that looks at them does so.

_PASSWORD = "GATEWAY_MILVUS_ACCOUNT_PASSWORD"  # noqa: S105 - the variable's name
_STYLES = {"ok": "green", "warning": "yellow", "failed": "red"}


def add_commands(app: typer.Typer) -> None:
    for command in (migrate, doctor):
        app.command()(exiting(command))


def migrate(
    runtime_account: Annotated[
        str | None,
        typer.Option("--runtime-account", help="A PostgreSQL role that gets what a running gateway needs."),
    ] = None,
    milvus_account: Annotated[
        str | None,
        typer.Option("--milvus-account", help=f"The same in Milvus; its password is in {_PASSWORD}."),
    ] = None,
    data_dir: DataDir = None,
) -> int:
    """Bring schema, collection and grants to what this version needs, with the owner's accounts."""
    password = os.environ.get(_PASSWORD, "")
    if milvus_account is not None and not password:
        raise typer.BadParameter(f"set {_PASSWORD} to the account's password")
    chosen = settings_with(data_dir)
    configure_logging(chosen.log_level)

    from gateway.bootstrap.migrating import migrate_parts

    asyncio.run(
        migrate_parts(
            chosen,
            lambda line: out.print(line, markup=False),
            runtime_account=runtime_account,
            milvus_account=None if milvus_account is None else (milvus_account, password),
        )
    )
    return 0


def doctor(as_json: AsJson = False, data_dir: DataDir = None) -> int:
    """Look at every part as a start would. Exit 1 when something would keep it from working."""
    chosen = settings_with(data_dir)
    configure_logging("error")

    from gateway.bootstrap.doctor import Verdict, examine

    findings = asyncio.run(examine(chosen))
    if as_json:
        for one in findings:
            record = {"part": one.part, "verdict": one.verdict.value, "code": one.code}
            print(json.dumps(record | {"detail": one.detail, "advice": one.advice}))
    else:
        table = Table("part", "", "what was found", box=None, pad_edge=False)
        for one in findings:
            verdict = f"[{_STYLES[one.verdict.value]}]{one.verdict.value}[/]"
            text = one.detail if one.code == "ok" else f"{one.detail} ({one.code})"
            table.add_row(one.part, verdict, f"{text}\n→ {one.advice}" if one.advice else text)
        out.print(table)
    return int(any(one.verdict is Verdict.FAILED for one in findings))
