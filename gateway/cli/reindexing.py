"""``reindex``: builds knowledge bases anew, as after a change of the embedder or of its calibration."""

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from gateway.cli.options import DEFAULT_URL, AsJson, Token, Url, client, exiting, notes
from gateway.cli.waiting import Task, error_of, said_of, wait_for
from gateway.client import GatewayClient

FAILED = 1


def add_commands(app: typer.Typer) -> None:
    app.command()(exiting(reindex))


def reindex(
    kb: Annotated[
        list[str] | None, typer.Option("--kb", help="A knowledge base (repeatable); none = every one.")
    ] = None,
    activate: Annotated[
        bool, typer.Option("--activate", help="Let questions be answered from what was built.")
    ] = False,
    uncalibrated: Annotated[
        bool, typer.Option("--uncalibrated", help="Also where the gate has no thresholds: questions get 503.")
    ] = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    token: Token = "",
) -> int:
    """Build releases with the server's present embedder and calibration (scope release).

    What has a vector already is not embedded again, so a run that was interrupted goes on where it was.
    """
    failed = False
    with client(url, token) as gateway:
        for name in kb or [one["knowledge_base"] for one in gateway.knowledge_bases()]:
            line = _reindexed(gateway, name, activate=activate, uncalibrated=uncalibrated)
            failed = failed or line["error"] is not None
            print(json.dumps(line, ensure_ascii=False) if as_json else _said(line))
    return FAILED if failed else 0


def _reindexed(gateway: GatewayClient, name: str, *, activate: bool, uncalibrated: bool) -> dict[str, Any]:
    """One knowledge base's line: its release, the sequence it has when it is active, or why not."""
    line: dict[str, Any] = {"knowledge_base": name, "release_id": None, "release_sequence": None}
    task = wait_for(gateway, gateway.build_release(name)["task_id"], on_change=_shower(name))
    if task["state"] != "SUCCEEDED":
        return {**line, "state": task["state"], "error": error_of(task)}
    found = next(one for one in gateway.releases(name) if one["release_id"] == task["release_id"])
    line |= {"release_id": found["release_id"], "embedding_space_id": found["embedding_space_id"]}
    if activate and found["state"] != "ACTIVE":
        if not found["calibrated"] and not uncalibrated:
            return {**line, "state": found["state"], "error": "not_calibrated: built, not activated"}
        return {**line, "state": "ACTIVE", "error": None, **_sequence(gateway.activate(found["release_id"]))}
    return {**line, "state": found["state"], "error": None, **_sequence(found)}


def _sequence(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {"release_sequence": answer["release_sequence"]}


def _shower(name: str) -> Any:
    def show(task: Task) -> None:
        done = task["progress"]
        notes.print(f"{name}: {said_of(task)} {done['done']}/{done['total']}", markup=False)

    return show


def _said(line: Mapping[str, Any]) -> str:
    name, space = line["knowledge_base"], line.get("embedding_space_id")
    if line["error"] is not None:
        return f"{name}: {line['error']}"
    if line["state"] == "ACTIVE":
        return f"{name}: release {line['release_sequence']} is active, in {space}."
    return f"{name}: release {line['release_id']} is ready, in {space}."
