"""``acl`` and ``approve``: who may see a document, and a person's word on a version of it."""

import json
from typing import Annotated

import typer

from gateway.cli.options import DEFAULT_URL, AsJson, Token, Url, client, exiting, out

DocumentId = Annotated[str, typer.Argument(metavar="DOCUMENT_ID")]


def add_commands(app: typer.Typer) -> None:
    for command in (acl, approve):
        app.command()(exiting(command))


def acl(
    document_id: DocumentId,
    allow: Annotated[list[str], typer.Option("--allow", help="group:G, user:U or public.")],
    deny: Annotated[list[str] | None, typer.Option("--deny", help="Beats --allow.")] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    token: Token = "",
) -> int:
    """Say who may see a document from now on (scope ingest). It opens no version beyond its own import."""
    with client(url, token) as gateway:
        changed = gateway.set_acl(document_id, allow, deny or [])
    if as_json:
        print(json.dumps(changed, ensure_ascii=False))
        return 0
    deny_text = f", never {', '.join(changed['deny'])}" if changed["deny"] else ""
    out.print(f"{document_id} is for {', '.join(changed['allow'])}{deny_text}.", markup=False)
    if changed["task_id"] is not None:
        out.print(f"Its stored passages follow: qa-gateway tasks watch {changed['task_id']}", markup=False)
    return 0


def approve(
    document_id: DocumentId,
    version: Annotated[
        int | None, typer.Option("--version", min=1, help="The version you have read; by default the newest.")
    ] = None,
    reject: Annotated[bool, typer.Option("--reject", help="Keep it out of the next release.")] = False,
    note: Annotated[str | None, typer.Option("--note", help="Why, for those who ask.")] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    token: Token = "",
) -> int:
    """Approve or reject a document's version (scope release). The next release follows it."""
    with client(url, token) as gateway:
        if version is None:
            version = int(gateway.document(document_id)["document_version"])
        decision = "reject" if reject else "approve"
        approval = gateway.judge(document_id, version, decision, note)
    if as_json:
        print(json.dumps(approval, ensure_ascii=False))
    else:
        done = f"Version {version} of {document_id} is {approval['approval']} by {approval['approved_by']}."
        out.print(f"{done} Build a release to show it.", markup=False)
    return 0
