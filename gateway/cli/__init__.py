"""The ``qa-gateway`` command. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused for want of evidence."""

import os
import sys
from typing import NoReturn

import typer
from pydantic import ValidationError

from gateway.cli import apikeys, asking, knowledge, operating, serving
from gateway.client import ApiError
from gateway.errors import ConfigurationError, GatewayError

FAILED = 1
WRONG_USAGE = 2
_INTERRUPTED = 130  # Typer's own code for Ctrl-C

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Permitted, evidenced, streamed answers over your own documents.",
)
for module in (serving, operating, asking, knowledge, apikeys):
    module.add_commands(app)


def main() -> None:
    """Runs the command line; every failure is one line on stderr. Wrong usage exits inside ``app``."""
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # its notes on forking would stand between our lines
    try:
        app()
    except SystemExit as end:
        sys.exit(FAILED if end.code == _INTERRUPTED else end.code)
    except ValidationError as error:
        for problem in error.errors():
            name = "_".join(str(part) for part in problem["loc"]).upper()
            print(f"GATEWAY_{name}: {problem['msg']}", file=sys.stderr)
        sys.exit(WRONG_USAGE)
    except ConfigurationError as error:
        _fail(error.reason, error, WRONG_USAGE)
    except ApiError as error:
        _fail(error.problem_code, error, FAILED)
    except GatewayError as error:
        _fail(error.code, error, FAILED)
    except KeyboardInterrupt:
        sys.exit(FAILED)


def _fail(code: str, error: GatewayError, exit_code: int) -> NoReturn:
    print(f"{code}: {error.detail or error.title}", file=sys.stderr)
    sys.exit(exit_code)
