"""``releases list|show|build|activate|rollback|diff``: what readers see, and what they would see."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from gateway.cli.folder import printable
from gateway.cli.moments import moment
from gateway.cli.options import DEFAULT_URL, AsJson, KnowledgeBase, Token, Url, client, exiting, out
from gateway.cli.waiting import built_release
from gateway.errors import NotFound

#: not a rich table: ids must stay whole, however narrow the terminal
_LINE = "{:<36}  {:<10}  {:>3}  {:>5}  {:>6}  {}"
_FIELD = "{:<18}  {}"
_CHANGES = ("added", "changed", "moved", "removed")
_SHOWN = 20

ReleaseId = Annotated[str, typer.Argument(metavar="RELEASE_ID")]


def add_commands(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="List, build, activate, compare and roll back releases.")
    group.command("list")(exiting(list_))
    for command in (show, build, activate, rollback, diff):
        group.command()(exiting(command))
    app.add_typer(group, name="releases")


def list_(kb: KnowledgeBase, as_json: AsJson = False, url: Url = DEFAULT_URL, token: Token = "") -> int:
    """List a knowledge base's releases, newest first (scope release)."""
    with client(url, token) as gateway:
        found = gateway.releases(kb)
    if as_json:
        for item in found:
            print(json.dumps(item, ensure_ascii=False))
        return 0
    print(_LINE.format("release", "state", "seq", "docs", "chunks", "created"))
    for item in found:
        numbers = (item["release_sequence"] or "-", item["documents"], item["chunks"])
        print(_LINE.format(item["release_id"], item["state"], *numbers, moment(item["created_at"])))
    return 0


def show(
    release_id: ReleaseId,
    kb: KnowledgeBase,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    token: Token = "",
) -> int:
    """Show one release (scope release)."""
    with client(url, token) as gateway:
        found = next((item for item in gateway.releases(kb) if item["release_id"] == release_id), None)
    if found is None:
        raise NotFound(f"there is no such release in {kb}")
    if as_json:
        print(json.dumps(found, ensure_ascii=False))
        return 0
    for name, value in found.items():
        print(_FIELD.format(name.replace("_", " "), _shown(name, value)))
    return 0


def build(
    kb: KnowledgeBase,
    activates: Annotated[
        bool, typer.Option("--activate/--no-activate", help="Let readers see it at once.")
    ] = True,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    token: Token = "",
) -> int:
    """Build a release of what is ready now, and activate it (scope release)."""
    with client(url, token) as gateway:
        release_id = built_release(gateway, kb)
        if activates:
            return _active(gateway.activate(release_id), as_json)
    text = json.dumps({"release_id": release_id}) if as_json else f"Release {release_id} of {kb} is built."
    out.print(text, markup=False)
    return 0


def activate(
    release_id: ReleaseId,
    kb: Annotated[str | None, typer.Option("--kb", help="Its knowledge base; the id is enough.")] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    token: Token = "",
) -> int:
    """Activate a release that is READY or RETIRED (scope release)."""
    with client(url, token) as gateway:
        return _active(gateway.activate(release_id), as_json)


def rollback(
    kb: KnowledgeBase,
    what: Annotated[
        str, typer.Option(help="release; config or model: the retrieval config or model adapter alone.")
    ] = "release",
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    token: Token = "",
) -> int:
    """Go back to the release before (scope release)."""
    with client(url, token) as gateway:
        return _active(gateway.roll_back(kb, what=what), as_json)


def _active(activation: Mapping[str, Any], as_json: bool) -> int:
    text = f"Release {activation['release_sequence']} of {activation['knowledge_base']} is active."
    out.print(json.dumps(activation, ensure_ascii=False) if as_json else text, markup=False)
    return 0


def diff(
    release_id: ReleaseId,
    against: Annotated[
        str | None, typer.Argument(metavar="[OTHER_ID]", help="Default: the active release.")
    ] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    token: Token = "",
) -> int:
    """What a release would change for readers, compared with another one (scope release)."""
    with client(url, token) as gateway:
        found = gateway.diff_releases(release_id, against)
    if as_json:
        print(json.dumps(found, ensure_ascii=False))
        return 0
    for line in _diff_lines(found):
        print(line)
    return 0


def _diff_lines(found: Mapping[str, Any]) -> Iterator[str]:
    documents, chunks, vectors = found["documents"], found["chunks"], found["vectors"]
    yield _FIELD.format("from", found["from"] or "nothing")
    yield _FIELD.format("to", found["to"])
    for kind in _CHANGES:
        yield from _changed(kind, documents["counts"][kind], documents[kind])
    yield _FIELD.format(
        "chunks",
        f"{chunks['from']} -> {chunks['to']} ({chunks['added']} added, {chunks['removed']} removed, "
        f"{chunks['unchanged']} unchanged)",
    )
    if vectors["embedded"] is not None:
        yield _FIELD.format("vectors", f"{vectors['reused']} reused, {vectors['embedded']} embedded")


def _changed(kind: str, count: int, named: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield _FIELD.format(f"documents {kind}", count)
    for document in named[:_SHOWN]:
        source = printable(document["source"])
        yield _FIELD.format("", f"{source} (version {document['document_version']})")
    if count > _SHOWN:
        yield _FIELD.format("", f"… and {count - _SHOWN} more")


def _shown(name: str, value: object) -> object:
    if value is None:
        return "-"
    return moment(value) if name.endswith("_at") and isinstance(value, float | int) else value
