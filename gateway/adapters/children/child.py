"""Child: a process of ours that answers one request after another and never outlives us.

Not ``anyio.to_process``: its worker runs the parent's main module again, outlives a parent that was
killed while it works, unpickles what the child says, inherits every secret of the environment, and a
cancel while it starts leaves it behind. Here both sides speak in plain frames (see ``child_loop``).
"""

import os
import sys
from collections.abc import Mapping, Sequence
from subprocess import DEVNULL, PIPE

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from gateway.adapters.children.child_loop import ANSWER, FAILED, READY, REQUEST

_START_CAP_S = 30.0
_STOP_CAP_S = 5.0
# What an interpreter may need to start; everything else, secrets above all, stays here.
_ENVIRONMENT = ("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
_ENDED = (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError, anyio.ClosedResourceError)


class ChildNotStarted(Exception):
    """No child could be started, or the owner has closed it."""


class ChildEnded(Exception):
    """The child ended before it answered."""


class AnswerTooLarge(Exception):
    """The child was about to answer more than was agreed."""


class Child:
    """Runs ``python -m MODULE ARGUMENTS... OUR_PID``, started on first use and reused.

    One request at a time: the owner sees to that. ``answer_bytes`` bounds an answer.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str] = (),
        *,
        answer_bytes: int,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._module = module
        self._arguments = tuple(arguments)
        self._answer_bytes = answer_bytes
        self._added_environment = dict(environment or {})
        self._process: Process | None = None
        self._answers: BufferedByteReceiveStream | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The living child's process id."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    @property
    def closed(self) -> bool:
        return self._closed

    async def ask(self, head: bytes, body: bytes, cap_s: float) -> tuple[bytes, bytes]:
        """The answer's kind and payload. ``cap_s`` doesn't count the start of a child.

        Whatever ends the exchange early, also a cancel, ends the child, and so does an answer of kind
        FAILED. Raises ChildNotStarted, ChildEnded, AnswerTooLarge, TimeoutError.
        """
        process, answers = await self._ready_child()
        answered = False
        try:
            with anyio.fail_after(cap_s):
                assert process.stdin is not None  # noqa: S101 - it was asked for
                await process.stdin.send(REQUEST.pack(len(head), len(body)) + head + body)
                answer = await self._answer(answers)
            answered = answer[0] != FAILED
            return answer
        except _ENDED:
            raise ChildEnded from None
        finally:
            if not answered:
                await self._discard()

    async def aclose(self) -> None:
        """Ends the child for good, also one at work; its request raises ChildEnded."""
        self._closed = True
        await self._discard()

    async def _ready_child(self) -> tuple[Process, BufferedByteReceiveStream]:
        if self._closed:
            raise ChildNotStarted
        if self.pid is None:
            await self._discard()
            await self._start()
        if self._process is None or self._answers is None:  # closed in the meantime
            raise ChildNotStarted
        return self._process, self._answers

    async def _start(self) -> None:
        command = [sys.executable, "-P", "-m", self._module, *self._arguments, str(os.getpid())]
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        environment |= self._added_environment
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
                started = (await self._answer(answers))[0] == READY and not self._closed
        except (OSError, TimeoutError, *_ENDED):
            raise ChildNotStarted from None
        finally:
            if not started:
                await self._discard()
        if not started:
            raise ChildNotStarted

    async def _answer(self, answers: BufferedByteReceiveStream) -> tuple[bytes, bytes]:
        kind, size = ANSWER.unpack(await answers.receive_exactly(ANSWER.size))
        if size > self._answer_bytes:
            raise AnswerTooLarge
        return kind, await answers.receive_exactly(size)

    async def _discard(self) -> None:
        process, self._process, self._answers = self._process, None, None
        if process is None:
            return
        if process.returncode is None:
            process.kill()
        with anyio.move_on_after(_STOP_CAP_S, shield=True):
            await process.aclose()
