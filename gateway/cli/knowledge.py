"""``revoke``: what must not be seen any more."""

import json
from enum import StrEnum
from typing import Annotated

import typer

from gateway.cli.options import DEFAULT_URL, AsJson, Token, Url, client, exiting, out


class RevocationSubject(StrEnum):
    USER = "user"
    GROUP = "group"
    DOCUMENT = "document"
    KNOWLEDGE_BASE = "knowledge_base"


def add_commands(app: typer.Typer) -> None:
    app.command()(exiting(revoke))


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
