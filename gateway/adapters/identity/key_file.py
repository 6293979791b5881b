"""Key files: secrets of development, made on first use, whole, for their owner's eyes."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path


def kept_secret(path: Path, make: Callable[[], bytes]) -> bytes:
    """What the file holds; written with what ``make`` gives when there is none. Raises OSError."""
    if not path.exists():
        _write_new(path, make())
    return path.read_bytes()


def _write_new(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # A name that no killed process left behind: in a container each start has the same process id.
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        os.link(draft, path)  # two first starts at once: the first secret stays
    except FileExistsError:
        pass
    finally:
        os.unlink(draft)
