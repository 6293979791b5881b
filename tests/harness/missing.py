"""What a test says when a real part isn't on this machine: CI fails, a laptop skips."""

import os
import shutil
from typing import NoReturn

import pytest


def part_missing(part: str, install: str) -> NoReturn:
    """Ends the test: skipped with the reason and the line that installs the part, failed with CI=true."""
    reason = f"{part} is not installed: {install}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def program(name: str, install: str, *elsewhere: str) -> str:
    """The path of an installed program, looked for on PATH and in the given folders."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *elsewhere])
    found = shutil.which(name, path=path)
    if found is None:
        part_missing(name, install)
    return found
