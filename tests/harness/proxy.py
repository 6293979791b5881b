"""A TCP proxy between a client and a real part: it delays, stalls, cuts and refuses on a test's word."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_PIECE_BYTES = 65_536
_PIECES_AHEAD = 64


class Proxy:
    """Passes everything on until told otherwise. Runs on the test's own event loop."""

    def __init__(self, target_port: int, target_host: str = "127.0.0.1") -> None:
        self._target = (target_host, target_port)
        self._server: asyncio.Server | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._requests, self._replies = asyncio.Event(), asyncio.Event()
        self._held = asyncio.Event()
        self._idle = asyncio.Event()
        self._limits: dict[asyncio.Event, int] = {}
        self.port = 0
        #: before every piece, in both directions
        self.delay_s = 0.0

    @property
    def connections(self) -> int:
        """Open ones."""
        return len(self._running)

    def flow(self) -> None:
        """Back to passing everything on at once; what was held goes on its way."""
        self.delay_s = 0.0
        self._limits.clear()
        self._requests.set()
        self._replies.set()

    def stall(self) -> None:
        """Nothing passes in either direction; connections stay and are still accepted."""
        self._held.clear()
        self._requests.clear()
        self._replies.clear()

    def hold_replies(self) -> None:
        """Requests arrive, replies don't: followed by ``cut`` it is a reply that got lost."""
        self._held.clear()
        self._replies.clear()

    def cut_replies_after(self, length: int) -> None:
        """Each connection ends once this many bytes of reply have passed through it from now on."""
        self._limits[self._replies] = length

    def cut_requests_after(self, length: int) -> None:
        """Likewise for what a client sends."""
        self._limits[self._requests] = length

    async def held(self) -> None:
        """Returns once something waits behind ``stall`` or ``hold_replies``."""
        await self._held.wait()

    async def idle(self) -> None:
        """Returns once no connection is open."""
        if self._running:
            self._idle.clear()
            await self._idle.wait()

    async def cut(self) -> None:
        """Ends every open connection, and with it whatever was held."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def refuse(self) -> None:
        """Cuts, and accepts no new connection until ``accept``."""
        if self._server is not None:
            self._server.close()
            self._server = None
        await self.cut()

    async def accept(self) -> None:
        """Listens, again on the same port."""
        if self._server is None:
            self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._server is None:
            writer.transport.abort()
            return
        task = asyncio.create_task(self._pass_on(reader, writer))
        self._running.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._running.discard(task)
            writer.transport.abort()
            if not self._running:
                self._idle.set()

        task.add_done_callback(ended)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            target_reader, target_writer = await asyncio.open_connection(*self._target)
        except OSError:
            return
        ways = [
            asyncio.create_task(self._one_way(reader, target_writer, self._requests)),
            asyncio.create_task(self._one_way(target_reader, writer, self._replies)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            target_writer.transport.abort()
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _one_way(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event
    ) -> None:
        """Reads ahead, so that a side that leaves is noticed also while its bytes are held."""
        ahead: asyncio.Queue[bytes] = asyncio.Queue(_PIECES_AHEAD)
        writing = asyncio.create_task(self._write(ahead, writer, gate))
        try:
            while (piece := await reader.read(_PIECE_BYTES)) and not writing.done():
                await ahead.put(piece)
                if not gate.is_set():
                    self._held.set()
            if gate.is_set():
                await ahead.put(b"")
                await writing
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)

    async def _write(
        self, ahead: "asyncio.Queue[bytes]", writer: asyncio.StreamWriter, gate: asyncio.Event
    ) -> None:
        passed = 0
        while piece := await ahead.get():
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            await gate.wait()
            allowed = self._limits.get(gate)
            writer.write(piece if allowed is None else piece[: allowed - passed])
            await writer.drain()
            passed += 0 if allowed is None else len(piece)
            if allowed is not None and passed >= allowed:
                writer.transport.close()
                return


@asynccontextmanager
async def proxy_to(port: int, host: str = "127.0.0.1") -> AsyncIterator[Proxy]:
    """A proxy in front of that port, on a free loopback port; in the end every connection is cut."""
    proxy = Proxy(port, host)
    proxy.flow()
    await proxy.accept()
    try:
        yield proxy
    finally:
        await proxy.refuse()
