"""The ``qa-gateway`` command. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused for want of evidence."""

import os
import sys
from typing import TYPE_CHECKING, NoReturn

import typer

from gateway.cli import (
    apikeys,
    asking,
    capacity,
    documents,
    evaluating,
    governing,
    importing,
    keeping,
    operating,
    reindexing,
    releases,
    revocations,
    serving,
    tasks,
)
from gateway.client import ApiError
from gateway.errors import ConfigurationError, GatewayError

if TYPE_CHECKING:
    from pydantic import ValidationError

FAILED = 1
WRONG_USAGE = 2
_INTERRUPTED = 130  # Typer's own code for Ctrl-C

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Permitted, evidenced, streamed answers over your own documents.",
)
for module in (
    serving,
    operating,
    asking,
    importing,
    documents,
    governing,
    tasks,
    releases,
    reindexing,
    revocations,
    keeping,
    apikeys,
    evaluating,
    capacity,
):
    module.add_commands(app)


def main() -> NoReturn:
    """Runs the command line and leaves, with everything closed that a command has opened.

    Not by the interpreter's own end, which takes apart every module that was loaded: a second for a server,
    in which a supervisor waits and a port isn't free.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # its notes on forking would stand between our lines
    # products of small matrices: waking a thread for each core costs many times what they do
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    code = run()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:  # what it had to say is lost
        code = code or FAILED
    os._exit(code)


def _wrong_settings() -> "tuple[type[ValidationError]]":
    """Loaded only once something has failed: most commands have no settings, and it takes long."""
    from pydantic import ValidationError

    return (ValidationError,)


def run() -> int:
    """The exit code; every failure is one line on stderr."""
    try:
        app()
    except SystemExit as end:
        return _number(end.code)
    except _wrong_settings() as error:
        for problem in error.errors():
            name = "_".join(str(part) for part in problem["loc"]).upper()
            print(f"GATEWAY_{name}: {problem['msg']}", file=sys.stderr)
        return WRONG_USAGE
    except ConfigurationError as error:
        return _failed(error.reason, error, WRONG_USAGE)
    except ApiError as error:
        return _failed(error.problem_code, error, FAILED)
    except GatewayError as error:
        return _failed(error.code, error, FAILED)
    except KeyboardInterrupt:
        return FAILED
    return 0


def _number(code: object) -> int:
    """Typer has said what there is to say; what isn't a number is a failure."""
    if code is None:
        return 0
    return code if isinstance(code, int) and code != _INTERRUPTED else FAILED


def _failed(code: str, error: GatewayError, exit_code: int) -> int:
    print(f"{code}: {error.detail or error.title}", file=sys.stderr)
    return exit_code
