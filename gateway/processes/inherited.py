"""Inherited: what a web process has from its supervisor, and how the two know of each other.

The line is one end of a socket pair; the supervisor holds the other. One byte on it says that this
process answers. Its end says that the supervisor is gone, and a web process doesn't outlive that.
"""

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_ANSWERING = b"\x01"
#: what a web process may take after its drain, to close its parts
CLOSE_S = 15.0


@dataclass(frozen=True, slots=True)
class Inherited:
    """``listener`` is bound already."""

    listener: socket.socket
    line: socket.socket

    def tell_answering(self) -> None:
        """This process accepts connections."""
        with contextlib.suppress(OSError):  # that the supervisor has just ended is noticed elsewhere
            self.line.send(_ANSWERING)


@contextmanager
def inherited(listener_fd: int, line_fd: int, drain_s: float) -> Iterator[Inherited]:
    """Both sockets, kept from our own children; from now on this process ends with its supervisor."""
    with socket.socket(fileno=listener_fd) as listener, socket.socket(fileno=line_fd) as line:
        listener.set_inheritable(False)
        line.set_inheritable(False)
        # A thread, not the loop: it is there before the loop is, and also while the loop hangs.
        threading.Thread(target=_end_with_supervisor, args=(line, drain_s), daemon=True).start()
        yield Inherited(listener, line)


def _end_with_supervisor(line: socket.socket, drain_s: float) -> None:
    try:
        line.recv(1)  # the supervisor never writes: this returns when it has ended
    except OSError:
        return
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(drain_s + CLOSE_S)
    os.kill(os.getpid(), signal.SIGKILL)
