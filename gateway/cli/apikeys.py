"""``apikey create|list|revoke``: keys for programs, made from one's own rights (scope operate)."""

import json
from typing import Annotated

import typer

from gateway.access.apikey import LONGEST_TTL_S
from gateway.access.principal import SCOPES
from gateway.cli.duration import seconds
from gateway.cli.moments import moment
from gateway.cli.options import DEFAULT_URL, AsJson, Token, Url, client, exiting, notes, out

_LONGEST_DAYS = LONGEST_TTL_S // 86_400
#: not a rich table: ids must stay whole, however narrow the terminal
_LINE = "{:<24}  {:<20}  {:<30}  {:<17}  {}"


def add_commands(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="Make, list and revoke API keys.")
    group.command("create")(exiting(create))
    group.command("list")(exiting(list_))
    group.command("revoke")(exiting(revoke))
    app.add_typer(group, name="apikey")


def create(
    name: Annotated[str, typer.Option("--name", help="The key acts as the user apikey:NAME.")],
    scope: Annotated[str, typer.Option("--scope", help=f"Any of {', '.join(sorted(SCOPES))} that you have.")],
    group: Annotated[list[str] | None, typer.Option("--group", help="A group that you are in.")] = None,
    ttl: Annotated[
        str | None, typer.Option("--ttl", help="Like 12h or 90d; none: until it is revoked.")
    ] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    token: Token = "",
) -> int:
    """Make a key and print it, this once (scope operate)."""
    ttl_s = None if ttl is None else seconds(ttl, _LONGEST_DAYS)
    scopes = [one.strip() for one in scope.split(",") if one.strip()]
    with client(url, token) as gateway:
        made = gateway.create_api_key(name, scopes=scopes, groups=group or [], ttl_s=ttl_s)
    if as_json:
        print(json.dumps(made, ensure_ascii=False))
    else:
        print(made["api_key"])
        notes.print(f"Key {made['key_id']}; it is not shown again.", markup=False)
    return 0


def list_(as_json: AsJson = False, url: Url = DEFAULT_URL, token: Token = "") -> int:
    """List the tenant's keys, newest first, revoked and expired ones too (scope operate)."""
    with client(url, token) as gateway:
        keys = gateway.api_keys()
    if as_json:
        for key in keys:
            print(json.dumps(key, ensure_ascii=False))
        return 0
    print(_LINE.format("key", "name", "scopes", "expires", "revoked"))
    for key in keys:
        moments = (moment(key["expires_at"]), moment(key["revoked_at"]))
        print(_LINE.format(key["key_id"], key["name"], ",".join(key["scopes"]), *moments))
    return 0


def revoke(
    key_id: Annotated[str, typer.Argument(metavar="KEY_ID")],
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    token: Token = "",
) -> int:
    """End a key at once (scope operate)."""
    with client(url, token) as gateway:
        key = gateway.revoke_api_key(key_id)
    text = json.dumps(key, ensure_ascii=False) if as_json else f"Revoked: {key['key_id']} ({key['name']})."
    out.print(text, markup=False)
    return 0
