"""A web process without a gateway in it, for a real supervisor: `python -m tests.integration.small_web`.

Each connection gets this process's id in a line, and is open until the client sends a line; that is what
a stream is here. SIGTERM: no new connections, an end once the open ones have ended.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from gateway.processes.inherited import inherited

DRAIN_S = 20.0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--listener-fd", type=int, required=True)
    parser.add_argument("--line-fd", type=int, required=True)
    parser.add_argument("--starts", type=Path, required=True, help="A file that gets a line a start.")
    parser.add_argument("--refuse-if", type=Path, help="Says why and exits 2 while this file exists.")
    parser.add_argument("--crash", action="store_true", help="Ends without a word.")
    given = parser.parse_args()
    with given.starts.open("a") as starts:
        print(os.getpid(), file=starts)
    if given.crash:
        os.kill(os.getpid(), signal.SIGKILL)
    with inherited(given.listener_fd, given.line_fd, DRAIN_S) as line:
        if given.refuse_if is not None and given.refuse_if.exists():
            sys.stderr.write("not_today: the file is there\n")
            sys.exit(2)
        asyncio.run(_serve(line.listener, line.tell_answering))


async def _serve(listener: socket.socket, tell_answering: Callable[[], None]) -> None:
    told, open_ones = asyncio.Event(), asyncio.TaskGroup()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(f"{os.getpid()}\n".encode())
        with contextlib.suppress(OSError):
            if await reader.readline():
                writer.write(b"end\n")
            writer.close()
            await writer.wait_closed()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_ones.create_task(hold(reader, writer))

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    async with open_ones:
        server = await asyncio.start_server(accept, sock=listener)
        tell_answering()
        await told.wait()
        server.close()


if __name__ == "__main__":
    main()
