"""Pinned: files of other packages that are read for what is in them, and not for what they are called."""

import hashlib
from pathlib import Path

from gateway.errors import EmbedderUnavailable


def refuse_other_file(path: Path, sha256: str) -> None:
    """Other weights or another vocabulary make vectors of another space. Raises EmbedderUnavailable."""
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise EmbedderUnavailable(f"{path.name} is missing") from error
    if found != sha256:
        raise EmbedderUnavailable(f"{path.name} is another file than the one of this space")
