"""The ready file: how a process tells whoever started it that it is there, and where."""

import json
import os
from collections.abc import Mapping
from pathlib import Path


def write_ready_file(path: Path, content: Mapping[str, object]) -> None:
    """Whole or not at all, and for its owner's eyes: it may hold tokens."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(content, file)
    draft.replace(path)
