"""``serve``, ``demo``, ``worker``, ``token`` and ``settings``."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from gateway.access.principal import SCOPES
from gateway.cli.duration import seconds
from gateway.cli.options import DataDir, Host, Port, ReadyFile, exiting, notes, out, settings_with
from gateway.processes.readyfile import write_ready_file

# The server and its parts take seconds to import: only the commands that need them do so.

Workers = Annotated[
    int | None, typer.Option("--workers", min=1, max=64, help="Web processes (GATEWAY_WORKERS).")
]

_LONGEST_TTL_DAYS = 366


def add_commands(app: typer.Typer) -> None:
    for command in (demo, serve, worker, token, settings):
        app.command()(exiting(command))
    app.command(hidden=True)(exiting(web_process))


def demo(
    port: Port = None,
    data_dir: DataDir = None,
    ready_file: ReadyFile = None,
) -> int:
    """Serve two tenants' sample knowledge bases from a temporary folder, with tokens to try."""
    from gateway.cli.demo import run_demo

    if data_dir is not None:
        run_demo(settings_with(data_dir, None, port), ready_file)
        return 0
    with tempfile.TemporaryDirectory(prefix="qa-gateway-demo-") as folder:
        run_demo(settings_with(Path(folder), None, port), ready_file)
    return 0


def serve(
    host: Host = None,
    port: Port = None,
    data_dir: DataDir = None,
    ready_file: ReadyFile = None,
    workers: Workers = None,
) -> int:
    """Serve questions, imports and the chat page."""
    chosen = settings_with(data_dir, host, port)
    if workers is not None:
        chosen = chosen.model_copy(update={"workers": workers})

    def ready(url: str) -> None:
        notes.print(f"Serving on {url}", markup=False)
        if ready_file is not None:
            content = {"base_url": url, "data_dir": str(chosen.data_dir.resolve())}
            write_ready_file(ready_file, content)

    if chosen.workers > 1:
        from gateway.processes.supervisor import supervise

        return supervise(chosen, ready)

    from gateway.processes.web import run

    run(chosen, lambda url, _: ready(url))
    return 0


def web_process(
    listener_fd: Annotated[int, typer.Option("--listener-fd")],
    line_fd: Annotated[int, typer.Option("--line-fd")],
) -> int:
    """One of several that serve; started by their supervisor."""
    from gateway.processes.web import run_web_process

    run_web_process(settings_with(), listener_fd, line_fd)
    return 0


def worker(ready_file: ReadyFile = None) -> int:
    """Import documents, and nothing else; needs PostgreSQL and a Milvus server."""
    from gateway.processes.worker import refuse_embedded, run_worker

    chosen = settings_with()
    refuse_embedded(chosen)

    from gateway.bootstrap.opening import open_worker

    def ready(name: str) -> None:
        notes.print(f"Importing as {name}", markup=False)
        if ready_file is not None:
            write_ready_file(ready_file, {"worker": name})

    run_worker(chosen, open_worker, ready)
    return 0


def token(
    tenant: Annotated[str, typer.Option("--tenant")],
    subject: Annotated[str, typer.Option("--subject")],
    scope: Annotated[str, typer.Option("--scope", help=f"Any of {', '.join(sorted(SCOPES))}.")],
    group: Annotated[list[str] | None, typer.Option("--group")] = None,
    ttl: Annotated[str, typer.Option("--ttl", help="Like 30m, 1h or 7d.")] = "1h",
    data_dir: DataDir = None,
) -> int:
    """Sign a token with the local key (development)."""
    from gateway.bootstrap.identity import local_key

    scopes = [name.strip() for name in scope.split(",") if name.strip()]
    unknown = set(scopes) - SCOPES
    if unknown or not scopes:
        raise typer.BadParameter(f"scopes are {', '.join(sorted(SCOPES))}")
    chosen = settings_with(data_dir)
    signed = local_key(chosen).sign(
        tenant=tenant,
        subject=subject,
        groups=group or [],
        scopes=scopes,
        ttl_s=seconds(ttl, _LONGEST_TTL_DAYS),
        audience=chosen.token_audience,
    )
    print(signed)
    return 0


def settings() -> int:
    """Print the settings in force, secrets masked."""
    for name, value in sorted(settings_with().model_dump(mode="json").items()):
        out.print(f"GATEWAY_{name.upper()}={'' if value is None else value}", markup=False)
    return 0
