"""``backup`` and ``restore``: what an operator runs on a schedule, and what he hopes never to run."""

import asyncio
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.options import AsJson, DataDir, exiting, notes, out, settings_with

if TYPE_CHECKING:
    from gateway.settings import Settings

# The parts take seconds to import: only a command that uses them does so.

FAILED = 1
#: what these commands write holds digests of keys and everything that was imported
_PRIVATE = 0o077
_NAMED = 10


def add_commands(app: typer.Typer) -> None:
    for command in (backup, restore):
        app.command()(exiting(command))


def backup(
    target: Annotated[str, typer.Argument(help="A folder, or an object store like s3://bucket/backups.")],
    keep: Annotated[
        int | None, typer.Option("--keep", min=1, help="Remove all but the newest so many backups.")
    ] = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> int:
    """Copy the catalog and every object it needs, beside whatever runs. Exit 1 when something was missing."""
    chosen = _chosen(data_dir)

    from gateway.bootstrap.keeping import back_up

    taken, removed = asyncio.run(back_up(chosen, target, keep))
    manifest = taken.manifest
    for key in manifest.missing[:_NAMED]:
        notes.print(f"missing or damaged: {key}", markup=False)
    if as_json:
        record = {"backup_id": manifest.backup_id, "rows": manifest.rows, "objects": taken.objects}
        record |= {"copied": taken.copied, "copied_bytes": taken.copied_bytes, "removed": removed}
        print(json.dumps(record | {"missing": len(manifest.missing)}))
    else:
        out.print(
            f"Backup {manifest.backup_id}: {manifest.rows} rows, {taken.objects} objects "
            f"({taken.copied} of them copied now, {taken.copied_bytes} bytes).",
            markup=False,
        )
        if removed:
            out.print(f"{removed} older backups removed.")
    if manifest.missing:
        notes.print(f"{len(manifest.missing)} objects couldn't be had: see qa-gateway doctor --compare.")
    return FAILED if manifest.missing else 0


def restore(
    source: Annotated[
        str | None, typer.Argument(help="Where the backups are; none = only --confirm.")
    ] = None,
    backup_id: Annotated[str | None, typer.Option("--backup", help="Another one than the newest.")] = None,
    journal: Annotated[
        str | None, typer.Option("--journal", help="Where the journal is (GATEWAY_JOURNAL_URL).")
    ] = None,
    without_journal: Annotated[
        bool,
        typer.Option("--without-journal", help="Go on though the journal is lost, or lacks entries."),
    ] = False,
    confirm: Annotated[bool, typer.Option("--confirm", help="Open it to questions.")] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> int:
    """Bring a backup back into an empty installation. Stopped anywhere, run the same again."""
    chosen = _chosen(data_dir)
    if journal is not None:
        chosen = chosen.model_copy(update={"journal_url": journal})
    if source is None and not confirm:
        raise typer.BadParameter("say where the backups are, or --confirm what was restored")
    if source is not None:
        _restore(chosen, source, backup_id, without_journal, as_json)
    if confirm:
        _confirm(chosen)
    else:
        notes.print("No question is answered before: qa-gateway restore --confirm")
    return 0


def _restore(
    settings: "Settings", source: str, backup_id: str | None, without_journal: bool, as_json: bool
) -> None:
    from gateway.bootstrap.keeping import restore as bring_back

    def say(line: str) -> None:
        notes.print(line, markup=False)

    restored = asyncio.run(
        bring_back(settings, source, say, backup_id=backup_id, without_journal=without_journal)
    )
    if as_json:
        print(json.dumps(asdict(restored)))
        return
    newest = restored.newest_entry_age_s
    entry = "the journal is empty" if newest is None else f"the journal's newest entry is {newest:.0f} s old"
    out.print(f"RPO: the backup is {restored.backup_age_s:.0f} s old, {entry}.")
    out.print(f"RTO: {restored.took_s:.1f} s for this run.")
    out.print(
        f"{restored.objects} objects, {restored.releases} releases with {restored.rows} rows; "
        f"{restored.citations} sampled citations read back."
    )


def _confirm(settings: "Settings") -> None:
    from gateway.bootstrap.keeping import confirm as open_up

    opened = asyncio.run(open_up(settings))
    out.print("Confirmed: questions are answered again." if opened else "There was nothing to confirm.")


def _chosen(data_dir: Path | None) -> "Settings":
    from gateway.observe.logging import configure_logging

    os.umask(_PRIVATE)
    chosen = settings_with(data_dir)
    configure_logging("error")
    return chosen
