"""The command line of an evaluation: what it refuses before anything is started."""

import pytest
from typer.testing import CliRunner

from gateway.cli import app


@pytest.mark.parametrize(
    "options",
    [
        "--compare a.json b.json --data folder",
        "--compare a.json b.json --seed 3",
        "--data folder --calibrate f.json --offline",
        "--data folder --calibrate f.json --url http://127.0.0.1:9 --token t --kb k",
        "--data folder --calibrate f.json --golden folder",
        "--data folder --calibrate f.json --sample 9",
        "--golden folder --sample 9",
        "--golden folder --callers 2",
        "--golden folder --write-docs docs --name other",
        "--data folder --name other",
        "--data folder --kb k",
        "--data folder --token t",
        "--data folder --offline --url http://127.0.0.1:9 --token t --kb k",
        "--data folder --speed-chunks 9 --url http://127.0.0.1:9 --token t --kb k",
        "--data folder --url http://127.0.0.1:9 --kb k",
    ],
)
def test_an_option_that_would_be_passed_over_is_refused(options: str) -> None:
    """Before anything is read or started: the folders don't even exist."""
    found = CliRunner().invoke(app, ["eval", *options.split()], env={"GATEWAY_TOKEN": None})
    assert found.exit_code == 2, found.output
