"""``import``, ``releases`` and ``revoke``: what importers and releasers do."""

import json
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.importing import import_all, release, uploads_below
from gateway.cli.options import DEFAULT_URL, AsJson, KnowledgeBase, Token, Url, client, exiting, notes, out

FAILED = 1
#: not a rich table: ids must stay whole, however narrow the terminal
_RELEASE_LINE = "{:<36}  {:<10}  {:>3}  {:>5}  {:>6}  {}"


class ReleaseAct(StrEnum):
    LIST = "list"
    BUILD = "build"
    ACTIVATE = "activate"
    ROLLBACK = "rollback"


class RevocationSubject(StrEnum):
    USER = "user"
    GROUP = "group"
    DOCUMENT = "document"
    KNOWLEDGE_BASE = "knowledge_base"


def add_commands(app: typer.Typer) -> None:
    app.command("import")(exiting(import_))
    app.command()(exiting(releases))
    app.command()(exiting(revoke))


def import_(
    paths: Annotated[list[Path], typer.Argument(help="Files and folders.")],
    kb: KnowledgeBase,
    allow: Annotated[list[str], typer.Option("--allow", help="group:G, user:U or public.")],
    deny: Annotated[list[str] | None, typer.Option("--deny", help="Beats --allow.")] = None,
    category: Annotated[str, typer.Option("--category")] = "",
    sensitivity: Annotated[int, typer.Option("--sensitivity", min=0, max=3)] = 0,
    include: Annotated[
        list[str] | None, typer.Option("--include", help="Only such files of a folder, like '*.html'.")
    ] = None,
    activate: Annotated[bool, typer.Option("--activate", help="Release it at once.")] = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    token: Token = "",
) -> int:
    """Import files and folders into a knowledge base (scopes ingest, and release for --activate)."""
    uploads, skipped = uploads_below(paths, include or [])
    if not uploads:
        raise typer.BadParameter("there is no file to import")
    if skipped:
        notes.print(f"{skipped} hidden files and files of other types are passed over.")
    fields: dict[str, str | list[str]] = {
        "knowledge_base": kb,
        "allow": allow,
        "deny": deny or [],
        "category": category,
        "sensitivity": str(sensitivity),
    }
    with client(url, token) as gateway:
        report = import_all(gateway, uploads, fields, activate=activate)
    if as_json:
        for document in report.documents:
            print(json.dumps(document, ensure_ascii=False))
    for source, error in report.failures:
        notes.print(f"failed: {source}: {error}", markup=False)
    good = sum(document["state"] == "READY" for document in report.documents)
    notes.print(f"{good} of {len(uploads)} documents are ready in {kb}.", markup=False)
    if report.activation is not None:
        notes.print(f"Release {report.activation['release_sequence']} is active.")
    elif activate:
        notes.print("Nothing was activated; the release before stays.")
    return FAILED if report.failures else 0


def releases(
    act: ReleaseAct,
    kb: KnowledgeBase,
    release_id: Annotated[str | None, typer.Argument(help="For activate.")] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    token: Token = "",
) -> int:
    """List, build, activate or roll back releases (scope release)."""
    with client(url, token) as gateway:
        if act is ReleaseAct.LIST:
            found = gateway.releases(kb)
            if as_json:
                for item in found:
                    print(json.dumps(item))
                return 0
            print(_RELEASE_LINE.format("release", "state", "seq", "docs", "chunks", "created"))
            for item in found:
                created = datetime.fromtimestamp(item["created_at"], UTC)
                print(
                    _RELEASE_LINE.format(
                        item["release_id"],
                        item["state"],
                        item["release_sequence"] or "-",
                        item["documents"],
                        item["chunks"],
                        f"{created:%Y-%m-%d %H:%M}Z",
                    )
                )
            return 0
        if act is ReleaseAct.ACTIVATE:
            if release_id is None:
                raise typer.BadParameter("name the release to activate")
            done = gateway.activate(release_id)
        elif act is ReleaseAct.ROLLBACK:
            done = gateway.roll_back(kb)
        else:
            done = release(gateway, kb)
    text = f"Release {done['release_sequence']} of {kb} is active."
    out.print(json.dumps(done) if as_json else text, markup=False)
    return 0


def revoke(
    kind: RevocationSubject,
    subject: Annotated[str, typer.Argument(metavar="ID")],
    reason: Annotated[str, typer.Option("--reason")],
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    token: Token = "",
) -> int:
    """Block a user, group, document or knowledge base at once (scope revoke)."""
    with client(url, token) as gateway:
        revocation = gateway.revoke(kind.value, subject, reason)
    out.print(json.dumps(revocation) if as_json else f"Revoked: {revocation['revocation_id']}.", markup=False)
    return 0
