"""The lock that gives a SQLite file to one process: a second one is refused at its start."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from gateway.errors import ConfigurationError

_PRIVATE = 0o600


def private_file(path: Path) -> int:
    """Opens the file, made when missing, readable by its owner only; returns the descriptor.

    Raises ConfigurationError ``data_dir_unusable``.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _PRIVATE)
        os.fchmod(descriptor, _PRIVATE)
    except OSError as error:
        raise ConfigurationError("data_dir_unusable", f"{path.name} can't be opened for writing") from error
    return descriptor


@contextlib.contextmanager
def exclusively(path: Path) -> Iterator[None]:
    """Holds ``<path>.lock``; the kernel frees it however this process ends.

    Raises ConfigurationError ``data_dir_in_use``.
    """
    descriptor = private_file(path.with_name(path.name + ".lock"))
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigurationError(
                "data_dir_in_use", f"another process has opened {path.name}; stop it first"
            ) from None
        yield
    finally:
        os.close(descriptor)
