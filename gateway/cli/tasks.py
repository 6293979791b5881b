"""``tasks list|show|cancel|watch``: long work of the server, seen from outside."""

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from gateway.cli.folder import printable
from gateway.cli.moments import moment
from gateway.cli.options import DEFAULT_URL, AsJson, Token, Url, client, exiting, notes, out
from gateway.cli.waiting import Task, ended, error_of, said_of, wait_for

FAILED = 1
#: not a rich table: ids must stay whole, however narrow the terminal
_LINE = "{:<37}  {:<8}  {:<9}  {:<17}  {:<16}  {}"
_FIELD = "{:<12}  {}"

TaskId = Annotated[str, typer.Argument(metavar="TASK_ID")]


def add_commands(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="List, show, watch and cancel tasks.")
    group.command("list")(exiting(list_))
    for command in (show, watch, cancel):
        group.command()(exiting(command))
    app.add_typer(group, name="tasks")


def list_(
    kb: Annotated[str | None, typer.Option("--kb", help="Of one knowledge base.")] = None,
    state: Annotated[str | None, typer.Option("--state", help="PENDING, RUNNING, …")] = None,
    kind: Annotated[str | None, typer.Option("--kind", help="import, release, …")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000)] = 20,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    token: Token = "",
) -> int:
    """List the newest tasks (scope ingest or release)."""
    with client(url, token) as gateway:
        found = gateway.tasks(knowledge_base=kb, state=state, kind=kind, limit=limit)
    if as_json:
        for task in found:
            print(json.dumps(task, ensure_ascii=False))
        return 0
    print(_LINE.format("task", "kind", "state", "created", "knowledge base", ""))
    for task in found:
        what = (task["kind"], task["state"], moment(task["created_at"]), task["knowledge_base"])
        print(_LINE.format(task["task_id"], *what, _more(task)).rstrip())
    return 0


def show(task_id: TaskId, as_json: AsJson = False, url: Url = DEFAULT_URL, token: Token = "") -> int:
    """Show one task with its documents (scope ingest or release)."""
    with client(url, token) as gateway:
        task = gateway.task(task_id)
    if as_json:
        print(json.dumps(task, ensure_ascii=False))
        return 0
    for name, value in (("task", task_id), ("kind", task["kind"]), ("state", task["state"])):
        print(_FIELD.format(name, value))
    if not ended(task):
        print(_FIELD.format("stage", _more(task)))
    if task["error"]:
        print(_FIELD.format("error", error_of(task)))
    for line in _report_lines(task.get("report") or {}):
        print(line)
    for document in task["documents"]:
        error = f" ({document['error']})" if document["error"] else ""
        print(_FIELD.format(document["state"], printable(f"{document['source']}{error}")))
    return 0


def watch(task_id: TaskId, as_json: AsJson = False, url: Url = DEFAULT_URL, token: Token = "") -> int:
    """Follow a task to its end. Exit 1 unless it succeeds (scope ingest or release)."""

    def shown(task: Task) -> None:
        line = json.dumps(task, ensure_ascii=False) if as_json else said_of(task)
        out.print(line, markup=False)

    with client(url, token) as gateway:
        task = wait_for(gateway, task_id, on_change=shown)
    if task["state"] == "SUCCEEDED":
        return 0
    notes.print(error_of(task), markup=False)
    return FAILED


def cancel(task_id: TaskId, as_json: AsJson = False, url: Url = DEFAULT_URL, token: Token = "") -> int:
    """Ask for a task's end; it ends at its next step (scope ingest, or release for a release)."""
    with client(url, token) as gateway:
        gateway.cancel_task(task_id)
    text = json.dumps({"task_id": task_id}) if as_json else f"Asked to stop: {task_id}."
    out.print(text, markup=False)
    return 0


def _more(task: Task) -> str:
    """What a table says of it beside its state."""
    if ended(task):
        return task["error"]["code"] if task["error"] else ""
    return f"{said_of(task)}, {task['progress']['done']} of {task['progress']['total']}"


def _report_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """What a clean-up has removed, and what remains for how long."""
    for what, count in report.get("removed", {}).items():
        yield _FIELD.format("removed", f"{count} {what.replace('_', ' ')}")
    for rest in report.get("remains", ()):
        until = f" (until: {rest['until']})" if rest["until"] else ""
        yield _FIELD.format("remains", f"{rest['what']}: {rest['why']}{until}")
