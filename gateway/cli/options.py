"""Options that several commands share."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ParamSpec

import httpx2
import typer
from rich.console import Console

from gateway.client import GatewayClient

if TYPE_CHECKING:  # only a command that serves or operates has settings, and they take long to load
    from gateway.settings import Settings

P = ParamSpec("P")

Url = Annotated[str, typer.Option("--url", envvar="GATEWAY_URL", help="The gateway's address.")]
Token = Annotated[
    str, typer.Option("--token", envvar="GATEWAY_TOKEN", help="A bearer token.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable lines on stdout.")]
KnowledgeBase = Annotated[str, typer.Option("--kb", help="The knowledge base's name.")]
DataDir = Annotated[Path | None, typer.Option("--data-dir", help="The data folder (GATEWAY_DATA_DIR).")]
Host = Annotated[str | None, typer.Option("--host", help="The address to listen on (GATEWAY_HOST).")]
Port = Annotated[int | None, typer.Option("--port", min=0, max=65535, help="The port, 0 for any free one.")]
ReadyFile = Annotated[Path | None, typer.Option("--ready-file", help="Gets JSON once the server answers.")]

DEFAULT_URL = "http://127.0.0.1:8080"

#: people read this one, programs read stdout
notes = Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)
out = Console(highlight=False, emoji=False, soft_wrap=True)


def settings_with(
    data_dir: Path | None = None, host: str | None = None, port: int | None = None
) -> "Settings":
    """Settings of the environment, with what the command line says on top."""
    from gateway.settings import Settings

    given = {"data_dir": data_dir, "host": host, "port": port}
    return Settings(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]  # pydantic checks each one


def client(url: str, token: str) -> GatewayClient:
    if not token:
        raise typer.BadParameter("give a token with --token or GATEWAY_TOKEN")
    try:
        return GatewayClient(url, token)
    except httpx2.InvalidURL as error:
        raise typer.BadParameter(f"{url} is no address of a server") from error


def exiting(command: Callable[P, int]) -> Callable[P, None]:
    """The command as Typer runs it: what it returns becomes the exit code."""

    @functools.wraps(command)
    def run(*arguments: P.args, **named: P.kwargs) -> None:
        raise typer.Exit(command(*arguments, **named))

    return run
