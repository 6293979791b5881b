"""``documents list|show|delete``: what a knowledge base is made of, as its importers see it."""

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from gateway.cli.folder import printable
from gateway.cli.moments import moment
from gateway.cli.options import DEFAULT_URL, AsJson, KnowledgeBase, Token, Url, client, exiting, out

#: not a rich table: ids must stay whole, however narrow the terminal
_LINE = "{:<36}  {:>7}  {:<10}  {:>6}  {}"
_FIELD = "{:<18}  {}"

DocumentId = Annotated[str, typer.Argument(metavar="DOCUMENT_ID")]


def add_commands(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="List, show and delete documents.")
    group.command("list")(exiting(list_))
    for command in (show, delete):
        group.command()(exiting(command))
    app.add_typer(group, name="documents")


def list_(kb: KnowledgeBase, as_json: AsJson = False, url: Url = DEFAULT_URL, token: Token = "") -> int:
    """List a knowledge base's documents by name (scope ingest).

    The version and its state are those of the newest upload; "stands" is the newest version that has neither
    failed nor been rolled back. Of what is revoked readers see no version at all.
    """
    with client(url, token) as gateway:
        found = gateway.documents(kb)["documents"]
    if as_json:
        for document in found:
            print(json.dumps(document, ensure_ascii=False))
        return 0
    print(_LINE.format("document", "version", "state", "stands", "source"))
    for document in found:
        source = printable(document["source"]) + _since(document)
        stands = (document.get("standing") or {}).get("document_version", "-")
        versions = (document["document_version"], _state(document), stands)
        print(_LINE.format(document["document_id"], *versions, source))
    return 0


def _state(document: Mapping[str, Any]) -> str:
    """In lower case what keeps a version that is READY from being shown."""
    if document.get("revoked_at") is not None:
        return "revoked"
    if document.get("withdrawn"):
        return "withdrawn"
    return "unapproved" if document.get("awaiting_approval") else str(document["state"])


def _since(document: Mapping[str, Any]) -> str:
    """Of a revocation: nobody who imports may list those."""
    revoked_at = document.get("revoked_at")
    return "" if revoked_at is None else f"  (revoked {moment(revoked_at)})"


def show(document_id: DocumentId, as_json: AsJson = False, url: Url = DEFAULT_URL, token: Token = "") -> int:
    """Show one document (scope ingest)."""
    with client(url, token) as gateway:
        found = gateway.document(document_id)
    if as_json:
        print(json.dumps(found, ensure_ascii=False))
        return 0
    for name, value in found.items():
        print(_FIELD.format(name.replace("_", " "), _shown(name, value)))
    return 0


def _shown(name: str, value: object) -> str:
    if name.endswith("_at") and isinstance(value, float | int):
        return moment(value)
    if isinstance(value, list):
        return ", ".join(printable(str(one)) for one in value) or "-"
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {one}" for name, one in value.items())
    return "-" if value in (None, "") else printable(str(value))


def delete(
    document_id: DocumentId, as_json: AsJson = False, url: Url = DEFAULT_URL, token: Token = ""
) -> int:
    """Delete a document: blocked for every reader at once, cleaned away after that (scope ingest)."""
    with client(url, token) as gateway:
        task_id = gateway.delete_document(document_id)
    if as_json:
        print(json.dumps({"document_id": document_id, "task_id": task_id}))
    else:
        clean_up = "" if task_id is None else f"; qa-gateway tasks watch {task_id} follows its clean-up"
        out.print(f"Deleted: {document_id}{clean_up}.", markup=False)
    return 0
