"""``migrate`` and ``doctor``: what an operator runs before and beside the processes that serve."""

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from gateway.cli.options import AsJson, DataDir, exiting, out, settings_with

if TYPE_CHECKING:
    from gateway.cli.owner import OwnerSettings

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
    from gateway.observe.logging import configure_logging

    chosen = _owner_settings(data_dir)
    account = None if milvus_account is None else (milvus_account, _account_password(chosen))
    configure_logging(chosen.log_level)

    from gateway.bootstrap.migrating import migrate_parts

    asyncio.run(
        migrate_parts(
            chosen,
            lambda line: out.print(line, markup=False),
            runtime_account=runtime_account,
            milvus_account=account,
        )
    )
    return 0


def doctor(
    compare: Annotated[
        bool, typer.Option("--compare", help="Read every object and count every row: do they agree?")
    ] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="With --compare: make again what can be made again.")
    ] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> int:
    """Look at every part as a start would. Exit 1 when something would keep it from working.

    With embedded parts --compare needs the server stopped: it alone may open them.
    """
    if repair and not compare:
        raise typer.BadParameter("--repair goes with --compare")
    from gateway.bootstrap.doctor import Verdict, examine
    from gateway.observe.logging import configure_logging

    chosen = settings_with(data_dir)
    configure_logging("error")

    findings = asyncio.run(examine(chosen))
    if compare:
        from gateway.bootstrap.comparing import examine_agreement

        findings += asyncio.run(examine_agreement(chosen, repair=repair))
    if as_json:
        for one in findings:
            record = {"part": one.part, "verdict": one.verdict.value, "code": one.code}
            print(json.dumps(record | {"detail": one.detail, "advice": one.advice}))
    else:
        table = Table("part", "", "what was found", box=None, pad_edge=False)
        for one in findings:
            verdict = f"[{_STYLES[one.verdict.value]}]{one.verdict.value}[/]"
            text = one.detail if one.code == "ok" else f"{one.detail} ({one.code})"
            table.add_row(one.part, verdict, escape(f"{text}\n→ {one.advice}" if one.advice else text))
        out.print(table)
    return int(any(one.verdict is Verdict.FAILED for one in findings))


def _owner_settings(data_dir: Path | None) -> "OwnerSettings":
    from gateway.cli.owner import OwnerSettings

    return OwnerSettings() if data_dir is None else OwnerSettings(data_dir=data_dir)


def _account_password(settings: "OwnerSettings") -> str:
    if settings.milvus_account_password is None:
        raise typer.BadParameter(f"set {_PASSWORD} to the account's password")
    return settings.milvus_account_password.get_secret_value()
