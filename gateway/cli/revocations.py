"""``revoke`` and ``revocations list|add|lift``: what must not be seen any more, and what may be again."""

import json
from enum import StrEnum
from typing import Annotated

import typer

from gateway.cli.folder import printable
from gateway.cli.moments import moment
from gateway.cli.options import DEFAULT_URL, AsJson, Token, Url, client, exiting, out

#: not a rich table: ids must stay whole, however narrow the terminal
_LINE = "{:<36}  {:<14}  {:<17}  {:<17}  {:<36}  {}"


class RevocationSubject(StrEnum):
    USER = "user"
    GROUP = "group"
    DOCUMENT = "document"
    KNOWLEDGE_BASE = "knowledge_base"


def add_commands(app: typer.Typer) -> None:
    app.command()(exiting(revoke))
    group = typer.Typer(no_args_is_help=True, help="List, make and lift revocations.")
    group.command("list")(exiting(list_))
    group.command("add")(exiting(revoke))
    group.command()(exiting(lift))
    app.add_typer(group, name="revocations")


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
    task_id = revocation.get("task_id")
    clean_up = f"; qa-gateway tasks watch {task_id} follows its clean-up" if task_id else ""
    text = f"Revoked: {revocation['revocation_id']}{clean_up}."
    out.print(json.dumps(revocation) if as_json else text, markup=False)
    return 0


def list_(as_json: AsJson = False, url: Url = DEFAULT_URL, token: Token = "") -> int:
    """List the tenant's revocations, newest first, lifted ones too (scope revoke)."""
    with client(url, token) as gateway:
        found = gateway.revocations()
    if as_json:
        for one in found:
            print(json.dumps(one, ensure_ascii=False))
        return 0
    print(_LINE.format("revocation", "kind", "since", "lifted", "of", "reason"))
    for one in found:
        moments = (moment(one["created_at"]), moment(one["lifted_at"]))
        words = (printable(one["id"]), printable(one["reason"]))
        print(_LINE.format(one["revocation_id"], one["kind"], *moments, *words))
    return 0


def lift(
    revocation_id: Annotated[str, typer.Argument(metavar="REVOCATION_ID")],
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    token: Token = "",
) -> int:
    """End a revocation (scope revoke)."""
    with client(url, token) as gateway:
        lifted = gateway.lift(revocation_id)
    if as_json:
        print(json.dumps(lifted, ensure_ascii=False))
        return 0
    print(f"Lifted: {revocation_id} of the {lifted['kind']} {printable(lifted['id'])}.")
    if lifted["kind"] == RevocationSubject.DOCUMENT:
        print("A release that was built meanwhile lacks it: qa-gateway releases build --kb NAME takes it in.")
    return 0
