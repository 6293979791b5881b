"""ChildParser: parses and chunks in a child process, where a hostile file can only hurt that child.

Not ``anyio.to_process``: its worker runs the parent's main module again, outlives a parent that was
killed while it works, unpickles what the child says, inherits every secret of the environment, and a
cancel while it starts leaves it behind. The child here is ``build_loop`` with plain frames.
"""

import json
import os
import sys
from subprocess import DEVNULL, PIPE

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from gateway.adapters.build_loop import ANSWER, BUILT, FAILED, READY, REJECTED, REQUEST
from gateway.errors import DocumentRejected, InvariantViolated, Unavailable
from gateway.ingest import chunkfile
from gateway.ingest.document import BuiltDocument

_START_CAP_S = 30.0
_STOP_CAP_S = 5.0
_ANSWER_BYTES = 256 * 1024 * 1024
# What an interpreter may need to start; everything else, secrets above all, stays here.
_ENVIRONMENT = ("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
_ENDED = (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError, anyio.ClosedResourceError)


class ChildParser:
    """A DocumentParser with one child, started on first use and reused; builds wait for each other.

    ``cap_s`` bounds one document's wall clock and CPU time, ``max_bytes`` its size. A cancel or the cap
    kills the child. A reused child that dies is replaced once, since something else may have killed it.
    """

    def __init__(self, *, cap_s: float, max_bytes: int) -> None:
        self._cap_s = cap_s
        self._max_bytes = max_bytes
        self._lock = anyio.Lock()
        self._process: Process | None = None
        self._answers: BufferedByteReceiveStream | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The living child's process id."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def build(self, source: str, media_type: str, content: bytes) -> BuiltDocument:
        """Raises DocumentRejected with any of its reasons; Unavailable when no child can be started."""
        if len(content) > self._max_bytes:
            raise DocumentRejected(
                "too_large", f"The file has {len(content):,} bytes; at most {self._max_bytes:,} are allowed."
            )
        async with self._lock:
            reused = self.pid is not None
            try:
                kind, payload = await self._ask(source, media_type, content)
            except _ENDED:
                if not reused:
                    raise self._too_much() from None
                try:
                    kind, payload = await self._ask(source, media_type, content)
                except _ENDED:
                    raise self._too_much() from None
        return _built(kind, payload)

    async def aclose(self) -> None:
        """Ends the child, also one at work; that build raises Unavailable."""
        self._closed = True
        await self._discard()

    def _too_much(self) -> DocumentRejected | Unavailable:
        if self._closed:
            return Unavailable("the document reader is closed")
        return DocumentRejected(
            "too_complex", "Reading the document took more memory or computing time than allowed."
        )

    async def _ask(self, source: str, media_type: str, content: bytes) -> tuple[bytes, bytes]:
        """One exchange. Whatever ends it early, also a cancel, ends the child."""
        process, answers = await self._ready_child()
        head = json.dumps({"source": source, "media_type": media_type}).encode()
        answered = False
        try:
            with anyio.fail_after(self._cap_s):
                assert process.stdin is not None  # noqa: S101 - it was asked for
                await process.stdin.send(REQUEST.pack(len(head), len(content)) + head + content)
                answer = await _answer(answers)
            answered = answer[0] != FAILED
            return answer
        except TimeoutError:
            raise DocumentRejected(
                "too_complex", f"Reading the document took longer than {self._cap_s:g} seconds."
            ) from None
        finally:
            if not answered:
                await self._discard()

    async def _ready_child(self) -> tuple[Process, BufferedByteReceiveStream]:
        if self._closed:
            raise Unavailable("the document reader is closed")
        if self.pid is None:
            await self._discard()
            await self._start()
        assert self._process is not None  # noqa: S101 - just started
        assert self._answers is not None  # noqa: S101 - likewise
        return self._process, self._answers

    async def _start(self) -> None:
        command = [
            sys.executable,
            *("-P", "-m", "gateway.adapters.build_loop"),
            *(str(self._cap_s), str(os.getpid())),
        ]
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        started = False
        try:
            with anyio.CancelScope(shield=True):  # a cancel here would leave a child that nobody knows
                self._process = process = await anyio.open_process(
                    command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=environment, start_new_session=True
                )
            assert process.stdout is not None  # noqa: S101 - it was asked for
            self._answers = answers = BufferedByteReceiveStream(process.stdout)
            with anyio.fail_after(_START_CAP_S):
                started = (await _answer(answers))[0] == READY
        except (OSError, TimeoutError, *_ENDED):
            raise Unavailable("the document reader could not be started") from None
        finally:
            if not started:
                await self._discard()
        if not started:
            raise Unavailable("the document reader could not be started")

    async def _discard(self) -> None:
        process, self._process, self._answers = self._process, None, None
        if process is None:
            return
        if process.returncode is None:
            process.kill()
        with anyio.move_on_after(_STOP_CAP_S, shield=True):
            await process.aclose()


async def _answer(answers: BufferedByteReceiveStream) -> tuple[bytes, bytes]:
    kind, size = ANSWER.unpack(await answers.receive_exactly(ANSWER.size))
    if size > _ANSWER_BYTES:
        raise DocumentRejected("too_complex", "The document becomes too large when it is cut into passages.")
    return kind, await answers.receive_exactly(size)


def _built(kind: bytes, payload: bytes) -> BuiltDocument:
    if kind == BUILT:
        return chunkfile.load(payload)
    if kind == REJECTED:
        reason, detail = json.loads(payload)
        raise DocumentRejected(reason, detail)
    if kind == FAILED:
        where = payload.decode("utf-8", "replace")
        raise DocumentRejected("corrupt", f"The document could not be read ({where}).")
    raise InvariantViolated("the document reader gave an unknown answer")
