"""Waiting for tasks of the server, and for the release that one of them builds."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import typer

from gateway.cli.options import notes
from gateway.cli.patience import Patience
from gateway.client import GatewayClient

FIRST_POLL_S = 0.2
LONGEST_POLL_S = 1.0

#: asks once
HASTE = Patience(0.0, lambda *_: None)

#: a task as the server shows it
Task = Mapping[str, Any]


def ended(task: Task) -> bool:
    return task["state"] in {"SUCCEEDED", "FAILED", "CANCELLED"}


def wait_for(
    gateway: GatewayClient,
    task_id: str,
    patience: Patience = HASTE,
    on_change: Callable[[Task], None] = lambda _: None,
) -> Task:
    """The task once it has ended; every change of it is shown. Raises ApiError, ServerUnreachable."""
    shown: Task | None = None
    pause_s = FIRST_POLL_S
    while True:
        task = patience.call(lambda: gateway.task(task_id))
        if task != shown:
            on_change(task)
            shown = task
        if ended(task):
            return task
        time.sleep(pause_s)
        pause_s = min(1.5 * pause_s, LONGEST_POLL_S)


def said_of(task: Task) -> str:
    """What the task is doing, in a few words."""
    if task.get("trouble"):
        return f"waiting: {task['trouble']}{_retry(task)}"
    if task["state"] == "PENDING":
        return "queued"
    if task["state"] == "RUNNING":
        return str(task["stage"])
    error = f" ({task['error']['code']})" if task["error"] else ""
    return f"{task['state'].lower()}{error}"


def _retry(task: Task) -> str:
    retry_at = task.get("retry_at")
    return "" if retry_at is None else f", retry in {max(0, round(retry_at - time.time()))} s"


def error_of(task: Task) -> str:
    """``code: detail`` of a task that didn't succeed."""
    error = task["error"] or {"code": task["state"].lower(), "detail": "it was stopped before its end"}
    return f"{error['code']}: {error['detail']}"


def release(gateway: GatewayClient, knowledge_base: str, patience: Patience = HASTE) -> dict[str, Any]:
    """Builds a release of what is live, waits, activates it. Raises as ``built_release``."""
    release_id = built_release(gateway, knowledge_base, patience)
    return patience.call(lambda: gateway.activate(release_id))


def built_release(gateway: GatewayClient, knowledge_base: str, patience: Patience = HASTE) -> str:
    """The id of a release of what is live, once it is built. Raises ApiError, typer.Exit."""
    with notes.status("releasing") as status:
        accepted = patience.call(lambda: gateway.build_release(knowledge_base))

        def shown(task: Task) -> None:
            status.update(f"releasing: {said_of(task)}")

        task = wait_for(gateway, accepted["task_id"], patience, shown)
    if task["state"] != "SUCCEEDED":
        notes.print(error_of(task), markup=False)
        raise typer.Exit(1)
    return str(task["release_id"])
