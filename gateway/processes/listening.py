"""The listening socket: bound before anything else is opened, so that a taken port is told first."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.errors import ConfigurationError


@contextmanager
def bound(host: str, port: int) -> Iterator[socket.socket]:
    """A socket that is bound and doesn't listen yet. Raises ConfigurationError("address_unusable")."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            raise ConfigurationError(
                "address_unusable", f"can't listen on {_authority(host, port)}: {error.strerror}"
            ) from error
        yield listener


def url_of(listener: socket.socket) -> str:
    """Where a bound socket is reached."""
    host, port = listener.getsockname()[:2]
    return f"http://{_authority(host, port)}"


def _authority(host: str, port: int) -> str:
    """As in a URL (RFC 3986, section 3.2.2)."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
